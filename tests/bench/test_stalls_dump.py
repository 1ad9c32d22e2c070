"""`benchmarks.stalls_dump` fails if Headwater stalls others, or needs both half a second and far more than Redis."""

from __future__ import annotations

import pytest

from benchmarks.stalls_dump import Row, failing


@pytest.mark.parametrize(
    ("total_ms", "stall_ms", "redis_ms"),
    [(501, 10, 300), (751, 10, 500), (100, 51, 900)],
    ids=["half a second", "on a slow machine", "stall"],
)
def test_a_row_over_a_bound_fails(total_ms: float, stall_ms: float, redis_ms: float) -> None:
    rows = [Row("DUMP", "headwater", total_ms, stall_ms), Row("DUMP", "redis-8.2", redis_ms, 900)]
    assert failing(rows)


@pytest.mark.parametrize(("total_ms", "redis_ms"), [(500, 100), (750, 500)])
def test_a_row_at_its_bounds_passes_and_redis_has_none(total_ms: float, redis_ms: float) -> None:
    rows = [
        Row("RESTORE", "headwater", total_ms, 50),
        Row("RESTORE", "redis-8.2", redis_ms, 900),
        Row("DUMP", "redis-8.2", 10, 900),
    ]
    assert not failing(rows)
