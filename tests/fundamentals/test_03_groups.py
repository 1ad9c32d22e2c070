"""Consumer groups: each entry goes to one consumer of each group, and stays pending until it is acknowledged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import headwater


@pytest.fixture
def store() -> Iterator[Any]:
    with headwater.connect("headwater://memory", decode_responses=True) as client:
        client.xgroup_create("orders", "billing", id="0", mkstream=True)
        yield client


def add(store: Any, *items: str) -> list[Any]:
    return [store.xadd("orders", {"item": item}) for item in items]


def read(store: Any, consumer: str, count: int, group: str = "billing") -> list[str]:
    """Return the ids of new entries that a consumer gets."""
    found = store.xreadgroup(group, consumer, {"orders": ">"}, count=count)
    return [entry for _stream, entries in found for entry, _fields in entries]


def test_consumers_of_a_group_share_its_entries(store: Any) -> None:
    first, second, third = add(store, "tea", "milk", "salt")
    assert read(store, "ann", 2) == [first, second]
    assert read(store, "bob", 2) == [third]


def test_each_group_gets_every_entry(store: Any) -> None:
    store.xgroup_create("orders", "warehouse", id="0")
    (entry,) = add(store, "tea")
    assert read(store, "ann", 1) == [entry]
    assert read(store, "eve", 1, group="warehouse") == [entry]


def test_an_entry_is_pending_until_it_is_acknowledged(store: Any) -> None:
    first, second = add(store, "tea", "milk")
    read(store, "ann", 2)
    store.xack("orders", "billing", first)

    (row,) = store.xpending_range("orders", "billing", "-", "+", 10)
    assert (row["message_id"], row["consumer"], row["times_delivered"]) == (second, "ann", 1)


def test_a_consumer_can_read_again_what_it_has_not_acknowledged(store: Any) -> None:
    # After a restart under the same name.
    (entry,) = add(store, "tea")
    read(store, "ann", 1)
    assert store.xreadgroup("billing", "ann", {"orders": "0"}) == [
        ["orders", [(entry, {"item": "tea"})]]
    ]


def test_an_acknowledged_entry_stays_in_the_stream(store: Any) -> None:
    (entry,) = add(store, "tea")
    read(store, "ann", 1)
    store.xack("orders", "billing", entry)
    assert store.xlen("orders") == 1


def test_the_lag_is_what_a_group_has_not_read(store: Any) -> None:
    add(store, "tea", "milk", "salt")
    read(store, "ann", 1)
    (group,) = store.xinfo_groups("orders")
    assert (group["entries-read"], group["lag"], group["pending"]) == (1, 2, 1)


def test_a_group_can_begin_with_the_entries_to_come(store: Any) -> None:
    add(store, "tea")
    store.xgroup_create("orders", "alarms", id="$")
    (entry,) = add(store, "milk")
    assert read(store, "eve", 10, group="alarms") == [entry]
