"""Claiming: another consumer takes over what a dead one has left pending."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import headwater
from headwater.testing import ManualClock

MINUTE_MS = 60_000


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


def owner(store: Any) -> tuple[str, int]:
    """Return who owns the entry, and how often it was delivered."""
    (row,) = store.xpending_range("orders", "billing", "-", "+", 1)
    return row["consumer"], row["times_delivered"]


def test_a_pending_entry_is_delivered_to_nobody_by_itself(store: Any, clock: ManualClock) -> None:
    clock.advance(3600)
    assert store.xreadgroup("billing", "bob", {"orders": ">"}) == []
    assert owner(store) == ("ann", 1)


def test_an_entry_that_was_idle_for_long_enough_is_claimed(store: Any, clock: ManualClock) -> None:
    clock.advance(59)
    assert store.xclaim("orders", "billing", "bob", MINUTE_MS, ["1-0"]) == []
    clock.advance(1)
    assert store.xclaim("orders", "billing", "bob", MINUTE_MS, ["1-0"]) == [
        ("1-0", {"item": "tea"})
    ]
    assert owner(store) == ("bob", 2)


def test_all_idle_entries_are_found_and_claimed_at_once(store: Any, clock: ManualClock) -> None:
    clock.advance(60)
    following, claimed, deleted = store.xautoclaim("orders", "billing", "bob", MINUTE_MS)
    assert (following, claimed, deleted) == ("0-0", [("1-0", {"item": "tea"})], [])


def test_a_read_claims_and_reads_in_one_command(store: Any, clock: ManualClock) -> None:
    store.xadd("orders", {"item": "milk"}, id="2-0")
    clock.advance(60)
    ((_stream, entries),) = store.xreadgroup(
        "billing", "bob", {"orders": ">"}, claim_min_idle_time=MINUTE_MS
    )
    assert [entry[0] for entry in entries] == ["1-0", "2-0"]
    assert owner(store) == ("bob", 2)


def test_a_consumer_that_lives_renews_its_entries(store: Any, clock: ManualClock) -> None:
    for _ in range(10):
        clock.advance(30)
        assert store.execute_command("XRENEW", "orders", "billing", "ann", "IDS", 1, "1-0") == [1]
    assert store.xautoclaim("orders", "billing", "bob", MINUTE_MS)[1] == []


def test_only_the_owner_renews(store: Any) -> None:
    assert store.execute_command("XRENEW", "orders", "billing", "bob", "IDS", 1, "1-0") == [0]
    assert owner(store) == ("ann", 1)


def test_a_deleted_entry_is_removed_from_the_pending_list_when_it_is_claimed(
    store: Any, clock: ManualClock
) -> None:
    store.xdel("orders", "1-0")
    clock.advance(60)
    assert store.xautoclaim("orders", "billing", "bob", MINUTE_MS) == ["0-0", [], ["1-0"]]
    assert store.xpending("orders", "billing")["pending"] == 0
