"""Handing back: a consumer returns an entry to its group instead of letting it idle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import headwater
from headwater.testing import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> Iterator[Any]:
    """A store in which ann has read an entry."""
    with headwater.connect("headwater://memory", clock=clock, decode_responses=True) as client:
        client.xgroup_create("orders", "billing", id="0", mkstream=True)
        client.xadd("orders", {"item": "tea"}, id="1-0")
        client.xreadgroup("billing", "ann", {"orders": ">"})
        yield client


def claimed(store: Any) -> list[tuple[str, int]]:
    """Read as bob, and claim what was not renewed for a minute. Return ids and counted deliveries."""
    store.xreadgroup("billing", "bob", {"orders": ">"}, claim_min_idle_time=60_000)
    rows = store.xpending_range("orders", "billing", "-", "+", 10, consumername="bob")
    return [(row["message_id"], row["times_delivered"]) for row in rows]


def settle(store: Any, *how: str | int, consumer: str = "ann") -> Any:
    return store.execute_command("XSETTLE", "orders", "billing", consumer, *how, "IDS", 1, "1-0")


def test_a_released_entry_is_claimed_at_once_and_its_delivery_does_not_count(
    store: Any,
) -> None:
    assert claimed(store) == []
    settle(store, "SILENT")
    assert claimed(store) == [("1-0", 1)]


def test_a_failed_delivery_counts(store: Any) -> None:
    settle(store, "FAIL")
    assert claimed(store) == [("1-0", 2)]


def test_a_failed_entry_can_wait_before_its_next_delivery(store: Any, clock: ManualClock) -> None:
    settle(store, "FAIL", "DELAY", 5_000)
    assert store.execute_command("XDELAYED", "orders", "billing", "-", "+", 10) == [
        ["1-0", 5_000, 1]
    ]
    clock.advance(4.999)
    assert claimed(store) == []
    clock.advance(0.001)
    assert claimed(store) == [("1-0", 2)]


def test_only_the_owner_can_hand_an_entry_back(store: Any) -> None:
    settle(store, "SILENT", consumer="eve")
    assert claimed(store) == []


def test_an_entry_is_acknowledged_with_its_result_in_one_step(store: Any) -> None:
    # The result is added if the acknowledgement counts, and only then.
    to = ("TO", "invoices", "*", "FIELDS", 1, "order", "tea")
    settled = ("XSETTLE", "orders", "billing", "ann", "ACK", "IDS", 1, "1-0", *to)
    store.execute_command(*settled)
    store.execute_command(*settled)

    assert store.xlen("invoices") == 1
    assert store.xpending("orders", "billing")["pending"] == 0
