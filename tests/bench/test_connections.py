"""`benchmarks.connections` reports clients that were not served, and broken bounds."""

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


def test_served_clients_are_not_reported() -> None:
    assert faults(found()) == []


@pytest.mark.parametrize("changed", [{"served": 2}, {"different": 2}])
def test_unserved_and_doubly_served_clients_are_reported(changed: dict[str, int]) -> None:
    assert len(faults({**found(**changed)})) >= 1


def test_broken_bounds_are_reported() -> None:
    measured = found()
    assert over_bounds(measured) == []
    measured["idle_rss_mb"] = 101.0
    measured["woken"]["one entry for all"][0]["all_s"] = 0.6
    assert len(over_bounds(measured)) == 2


@pytest.mark.slow
def test_a_crowd_is_served() -> None:
    # Given fifty connections, idle, and blocked in three ways
    measured = measure("headwater", 50, 1)
    # Then each gets a reply and is woken, in one group each with another entry
    assert faults(measured) == []
    assert measured["woken"]["one each, one group"][0]["different"] == 50
