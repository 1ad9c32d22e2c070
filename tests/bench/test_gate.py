"""The gate: which rows fail, and that noise alone fails none."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from benchmarks import compare, gate, workloads
from benchmarks.rows import Row, Target
from benchmarks.selection import Selection
from benchmarks.workloads import Workload


def row_of(ratio: float, *, required: float = 1.3) -> Row:
    """Return a row with this ratio of processor time."""
    row = Row("gate", "XADD", "/s", target=Target(required, 2.0, by="cpu"))
    row.of("headwater").add(1.0, cpu_us=1.0)
    row.of("redis-8.2").add(1.0, cpu_us=ratio)
    return row


@pytest.mark.parametrize(("ratio", "passes"), [(1.03, False), (1.05, True), (2.0, True)])
def test_a_row_passes_at_eight_tenths_of_what_is_required(ratio: float, passes: bool) -> None:
    assert gate.passes(row_of(ratio)) is passes


def test_a_row_that_was_not_measured_does_not_pass() -> None:
    assert not gate.passes(Row("gate", "XADD", "/s", target=Target(1.0, 1.0, by="cpu")))


@pytest.mark.parametrize(
    ("ratios", "passes", "seconds"),
    [
        ([2.0], True, [0.25]),
        ([0.5, 1.2], True, [0.25, 0.5]),
        ([0.5, 0.6, 0.5, 1.2], True, [0.25, 0.5, 0.5, 0.5]),
        ([0.5, 0.6, 0.7, 0.8], False, [0.25, 0.5, 0.5, 0.5]),
    ],
)
def test_a_row_that_fails_is_measured_again(
    ratios: list[float],
    passes: bool,
    seconds: list[float],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # Given measurements with these ratios, in this order
    measured: list[float] = []

    def one_row(
        section: str,
        workload: Workload,
        stores: Sequence[object],
        selection: Selection,
        *,
        target: Target,
    ) -> Row:
        measured.append(selection.seconds)
        return row_of(ratios[len(measured) - 1])

    monkeypatch.setattr(gate, "one_row", one_row)
    # When the row is checked
    (row,) = gate.judge(gate.JUDGED[:1], [], seconds=0.25)
    # Then the last measurement counts, and the output has the result
    assert measured == seconds
    assert gate.passes(row) is passes
    said = capsys.readouterr().out
    assert said.startswith("ok" if passes else "FAIL")
    assert "required 1.3, bound 1.04" in said


def test_the_gate_does_not_measure_again_after_its_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a gate whose time is over
    measured: list[float] = []

    def one_row(*_: object, **__: object) -> Row:
        measured.append(1.0)
        return row_of(0.1)

    monkeypatch.setattr(gate, "one_row", one_row)
    rows = gate.judge(gate.JUDGED, [], within_seconds=-1.0)
    # Then each row was measured once
    assert len(measured) == len(rows) == len(gate.JUDGED)


def test_only_what_can_be_compared_quickly_is_judged() -> None:
    assert gate.JUDGED
    assert all(one.fsync is None for one in gate.JUDGED)
    assert workloads.PLAIN_ROW not in [one.name for one in gate.JUDGED]


def test_a_comparison_shows_the_spread_of_the_rounds() -> None:
    # Given three rounds in which this commit was 1.0, 1.1 and 1.2 times as fast
    row = Row("compare", "XADD", "/s", against="headwater 01234567")
    for ours in (100.0, 110.0, 120.0):
        row.of("headwater").add(ours, cpu_us=2.0)
        row.of(row.against).add(100.0, cpu_us=3.0)
    # Then the line has both medians, the ratio, its spread, and the same for processor time
    assert compare.sentence(row).split()[1:] == ["100", "110", "1.10", "18%", "3", "2", "1.50"]
    # And an error of the other commit replaces the numbers
    row.missing = "ERR unknown command"
    assert compare.sentence(row).split() == ["XADD", "ERR", "unknown", "command"]


def test_an_unknown_commit_is_named() -> None:
    with pytest.raises(compare.NoSuchCommit, match="no-such-branch is not a commit"):
        compare.commit_of("no-such-branch")
