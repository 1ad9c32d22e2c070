"""Streams: entries in the order of their ids, which never change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis

import headwater
from headwater.testing import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> Iterator[Any]:
    with headwater.connect("headwater://memory", clock=clock, decode_responses=True) as client:
        yield client


def test_an_entry_has_an_id_and_fields(store: Any) -> None:
    # An id is a time in milliseconds, and a number within it.
    store.xadd("orders", {"item": "tea", "price": 2.5}, id="1700000000000-0")
    assert store.xrange("orders") == [("1700000000000-0", {"item": "tea", "price": "2.5"})]


def test_ids_grow_also_within_one_millisecond(store: Any) -> None:
    first, second = (store.xadd("orders", {"item": "tea"}) for _ in range(2))
    assert (first.split("-")[0], first.split("-")[1], second.split("-")[1]) == (
        second.split("-")[0],
        "0",
        "1",
    )


def test_an_id_that_is_not_the_greatest_is_refused(store: Any) -> None:
    store.xadd("orders", {"item": "tea"}, id="5-0")
    with pytest.raises(
        redis.ResponseError, match="equal or smaller than the target stream top item"
    ):
        store.xadd("orders", {"item": "tea"}, id="4-0")


def test_a_range_of_ids_is_a_range_of_time(store: Any, clock: ManualClock) -> None:
    monday = store.xadd("orders", {"item": "tea"})
    clock.advance(24 * 3600)
    tuesday = store.xadd("orders", {"item": "milk"})

    assert [entry for entry, _ in store.xrange("orders", min=tuesday)] == [tuesday]
    assert [entry for entry, _ in store.xrevrange("orders")] == [tuesday, monday]
    assert [entry for entry, _ in store.xrange("orders", min=f"({monday}", count=10)] == [tuesday]


def test_a_reader_continues_after_the_last_id_that_it_has_seen(store: Any) -> None:
    seen = "0"
    items: list[str] = []
    for item in ("tea", "milk"):
        store.xadd("orders", {"item": item})
        ((_stream, entries),) = store.xread({"orders": seen})
        seen = entries[-1][0]
        items += [fields["item"] for _, fields in entries]
    assert items == ["tea", "milk"]


def test_a_stream_is_trimmed_at_its_beginning(store: Any) -> None:
    for number in range(10):
        store.xadd("orders", {"number": number}, id=f"{number + 1}-0")

    store.xtrim("orders", minid="4-0", approximate=False)
    assert store.xrange("orders")[0][0] == "4-0"
    store.xtrim("orders", maxlen=2, approximate=False)
    assert [entry for entry, _ in store.xrange("orders")] == ["9-0", "10-0"]


def test_a_deleted_entry_leaves_a_gap_and_its_id_is_not_used_again(store: Any) -> None:
    last = store.xadd("orders", {"item": "tea"}, id="5-0")
    store.xdel("orders", last)

    assert store.xlen("orders") == 0
    assert store.xinfo_stream("orders")["last-generated-id"] == "5-0"
    with pytest.raises(redis.ResponseError, match="equal or smaller"):
        store.xadd("orders", {"item": "tea"}, id="5-0")


def test_an_entry_that_is_sent_twice_under_one_name_is_added_once(store: Any) -> None:
    # A producer that did not get the answer sends the entry again, under the same name.
    named = ("XADD", "orders", "IDMP", "till-1", "order-17", "*", "item", "tea")
    first, again = store.execute_command(*named), store.execute_command(*named)
    assert first == again
    assert store.xlen("orders") == 1
