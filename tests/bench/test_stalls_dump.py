"""`benchmarks.stalls_dump`: which rows fail."""

from __future__ import annotations

import pytest

from benchmarks.stalls_dump import Row, failing


@pytest.mark.parametrize(("total_ms", "stall_ms"), [(501, 10), (100, 51)])
def test_a_bound_does_not_depend_on_redis(total_ms: float, stall_ms: float) -> None:
    rows = [Row("DUMP", "headwater", total_ms, stall_ms), Row("DUMP", "redis-8.2", 900, 900)]
    assert failing(rows)


def test_a_row_at_its_bounds_passes_and_redis_has_no_bounds() -> None:
    rows = [Row("RESTORE", "headwater", 500, 50), Row("RESTORE", "redis-8.2", 900, 900)]
    assert not failing(rows)
