"""The judge of connections: who is not served is told, and a crowd is served for what it asked."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.connections import faults, measure, over_bounds


def found(**changed: Any) -> dict[str, Any]:
    one = {"asked": 3, "served": 3, "different": 3, "all_s": 0.1}
    return {
        "store": "headwater",
        "connections": 3,
        "answered": 3,
        "idle_rss_mb": 50.0,
        "woken": {
            "one entry for all": [{**one, "different": 1}],
            "one each, one group": [{**one, **changed}],
        },
    }


def test_who_is_served_is_no_fault() -> None:
    assert faults(found()) == []


@pytest.mark.parametrize("changed", [{"served": 2}, {"different": 2}])
def test_who_is_not_served_or_twice_is_told(changed: dict[str, int]) -> None:
    assert len(faults({**found(**changed)})) >= 1


def test_what_is_over_a_bound_is_told() -> None:
    figures = found()
    assert over_bounds(figures) == []
    figures["idle_rss_mb"] = 101.0
    figures["woken"]["one entry for all"][0]["all_s"] = 0.6
    assert len(over_bounds(figures)) == 2


def test_a_crowd_is_served() -> None:
    # Given fifty connections, idle, and blocked in three ways
    figures = measure("headwater", 50, 1)
    # Then each is answered and woken, with an entry of its own where it should be
    assert faults(figures) == []
    assert figures["woken"]["one each, one group"][0]["different"] == 50
