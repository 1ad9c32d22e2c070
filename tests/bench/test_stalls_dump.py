"""`benchmarks.stalls_dump` fails if a row of Headwater exceeds a bound, whatever Redis needs."""

from __future__ import annotations

import pytest

from benchmarks.stalls_dump import Row, failing


@pytest.mark.parametrize(("total_ms", "stall_ms"), [(501, 10), (100, 51)])
def test_a_row_over_a_bound_fails_even_if_redis_is_slower(total_ms: float, stall_ms: float) -> None:
    rows = [Row("DUMP", "headwater", total_ms, stall_ms), Row("DUMP", "redis-8.2", 900, 900)]
    assert failing(rows)


def test_a_row_at_its_bounds_passes_and_redis_has_none() -> None:
    rows = [Row("RESTORE", "headwater", 500, 50), Row("RESTORE", "redis-8.2", 900, 900)]
    assert not failing(rows)
