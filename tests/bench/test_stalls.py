"""`benchmarks.stalls`: which rows pass, and that noise alone fails none."""

from __future__ import annotations

import pytest

from benchmarks import stalls
from benchmarks.stalls import Measured, StallRow, Subject

NOTHING = Subject("EXEC", lambda _store: None, lambda _client: None)


def row_of(ours_ms: float, redis_ms: float) -> StallRow:
    """Return a row with one measurement of each store."""
    return StallRow(
        "EXEC",
        {
            "headwater": [Measured(ours_ms, ours_ms, 1.0)],
            "redis-8.2": [Measured(redis_ms, redis_ms, 1.0)],
        },
    )


@pytest.mark.parametrize(
    ("ours_ms", "redis_ms", "passes"),
    [(200, 100, True), (201, 100, False), (50, 100, True), (4.9, 0.1, True), (5.1, 0.1, False)],
)
def test_a_stall_passes_up_to_twice_that_of_redis(
    ours_ms: float, redis_ms: float, passes: bool
) -> None:
    assert row_of(ours_ms, redis_ms).passes() is passes


@pytest.mark.parametrize(
    ("stalls_ms", "passes", "rounds"),
    [([100], True, [3]), ([300, 150], True, [3, 5]), ([300, 250], False, [3, 5])],
)
def test_a_row_over_the_bound_is_measured_again(
    stalls_ms: list[float],
    passes: bool,
    rounds: list[int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # Given measurements with these stalls, in this order
    asked: list[int] = []

    def measured_row(_subject: Subject, count: int) -> StallRow:
        asked.append(count)
        return row_of(stalls_ms[len(asked) - 1], 100)

    monkeypatch.setattr(stalls, "row_of", measured_row)

    # When the row is checked
    (row,) = stalls.judge([lambda: NOTHING], rounds=3)

    # Then the last measurement counts, and the output has the result
    assert asked == rounds
    assert row.passes() is passes
    assert capsys.readouterr().out.startswith("ok" if passes else "FAIL")


def test_a_median_hides_one_bad_measurement() -> None:
    row = row_of(100, 100)
    row.measurements["headwater"] += [Measured(900, 900, 1.0), Measured(110, 110, 1.0)]
    assert row.ratio() == pytest.approx(1.1)
