"""The arithmetic of the tables: medians, ratios, verdicts."""

from __future__ import annotations

import doctest
from types import ModuleType

import pytest

from benchmarks import rows, selection, show
from benchmarks.rows import CPU_RATIO, OWN_VALUE, Row, Target, paired, significant, spread


def a_row(
    ours: list[float],
    theirs: list[float],
    target: Target | None,
    *,
    better: str = "more",
    ours_cpu: list[float] | None = None,
    theirs_cpu: list[float] | None = None,
) -> Row:
    """Return a row of two stores."""
    row = Row("throughput", "XADD", "/s", better=better, target=target)
    for name, rates, cpu in (
        ("headwater", ours, ours_cpu or ours),
        ("redis-8.2", theirs, theirs_cpu or theirs),
    ):
        for rate, microseconds in zip(rates, cpu, strict=True):
            row.of(name).add(rate, cpu_us=microseconds)
    return row


@pytest.mark.parametrize("module", [rows, show, selection], ids=lambda module: module.__name__)
def test_the_examples_are_true(module: ModuleType) -> None:
    assert doctest.testmod(module).failed == 0


def test_a_machine_that_slows_down_during_the_run_changes_no_ratio() -> None:
    # Given twice the peer's rate in every round, and a machine at a tenth of its speed in three of five
    speeds = [1.0, 1.0, 0.1, 0.1, 0.1]
    ours, theirs = [200 * speed for speed in speeds], [100 * speed for speed in speeds]
    # When one store is also disturbed in a round
    ours[0] = 20.0
    # Then the ratio is unchanged
    assert paired(ours, theirs) == pytest.approx(2.0)


def test_different_numbers_of_rounds_are_compared_by_their_medians() -> None:
    assert paired([10.0, 20.0, 30.0], [10.0]) == 2.0


def test_the_ratio_of_processor_time_is_theirs_over_ours() -> None:
    row = a_row([1.0], [1.0], None, ours_cpu=[2.0], theirs_cpu=[5.0])
    assert row.ratios("redis-8.2") == {"ratio": 1.0, "cpu": 2.5}


def test_the_spread_is_a_fraction_of_the_median() -> None:
    assert spread([80.0, 100.0, 100.0, 100.0, 130.0]) == 0.5
    assert spread([0.0, 0.0]) == 0.0


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [(99.0, "missed"), (100.0, "required"), (149.0, "required"), (150.0, "goal")],
)
def test_a_ratio_is_at_least_what_is_required(ours: float, verdict: str) -> None:
    assert a_row([ours], [100.0], Target(1.0, 1.5)).verdict() == verdict


@pytest.mark.parametrize(
    ("ours", "verdict"), [(181.0, "missed"), (180.0, "required"), (90.0, "goal")]
)
def test_for_bytes_and_microseconds_less_is_better(ours: float, verdict: str) -> None:
    row = a_row([ours], [100.0], Target(1.8, 1.0), better="less")
    assert row.verdict() == verdict


def test_processor_time_is_judged_by_its_own_ratio() -> None:
    target = Target(1.0, 1.15, by=CPU_RATIO)
    row = a_row([1.0], [2.0], target, ours_cpu=[10.0], theirs_cpu=[11.0])
    assert (row.value(), row.verdict()) == (1.1, "required")


def test_a_target_for_our_own_measurement_needs_no_peer() -> None:
    row = Row("scans", "XAUTOCLAIM", "ms", better="less", target=Target(0.1, 0.013, by=OWN_VALUE))
    row.of("headwater").add(0.05)
    assert row.verdict() == "required"


def test_a_required_ratio_to_another_peer_counts_too() -> None:
    # Given a sufficient ratio to Redis, and an insufficient one to Valkey
    target = Target(1.0, 1.1, required_of={"valkey-9.1": 1.5})
    row = a_row([100.0], [80.0], target)
    row.of("valkey-9.1").add(90.0)
    # Then the row is missed
    assert row.verdict() == "missed"
    # But a peer that was not measured does not count
    del row.series["valkey-9.1"]
    assert row.verdict() == "goal"


def test_a_row_that_could_not_be_measured_has_no_verdict() -> None:
    alone = Row("throughput", "XADD", "/s", target=Target(1.0, 1.1))
    alone.of("headwater").add(100.0)
    assert alone.verdict() == "not available"
    refused = a_row([100.0], [1.0], Target(1.0, 1.1))
    refused.missing = "CONFIG SET refused"
    assert refused.verdict() == "not available"


def test_a_row_without_a_target_is_only_reported() -> None:
    assert a_row([1.0], [100.0], Target(1.0, 1.1, judged=False)).verdict() == "reported"
    assert a_row([1.0], [100.0], None).verdict() == "reported"


def test_the_ratio_can_be_to_another_peer() -> None:
    row = Row("embedded", "XADD", "/s", target=Target(3.0, 5.0), against="burner-redis")
    row.of("headwater").add(400.0)
    row.of("burner-redis").add(100.0)
    assert (row.value(), row.verdict()) == (4.0, "required")


def test_json_has_medians_rounds_and_ratios() -> None:
    row = a_row([100.0, 300.0, 200.0], [100.0, 100.0, 100.0], Target(1.3, 2.0))
    kept = row.as_json()
    assert kept["stores"]["headwater"] == {
        "median": 200.0,
        "spread": 1.0,
        "rounds": [100.0, 300.0, 200.0],
        "cpu_us": 200.0,
    }
    assert kept["ratios"] == {"redis-8.2": {"ratio": 2.0, "cpu": 0.5}}
    assert kept["target"]["value"] == 2.0
    assert kept["verdict"] == "goal"


def test_numbers_have_four_digits() -> None:
    assert [significant(value) for value in (0.0, 123456.0, 0.00098765, 12.0, None)] == [
        0.0, 123500, 0.0009877, 12.0, None,
    ]  # fmt: skip
