"""Planning gives the same numbers as counting the entries, on every server."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from headwater.common.model import MAX_ID, MIN_ID, StreamID
from headwater.errors import DeclarationError, Disconnected, HeadwaterError
from headwater.spark.core import counters
from headwater.spark.core.options import parse_options
from headwater.spark.core.planning.lua_planning import LuaPlanner
from headwater.spark.core.planning.planning import Planner
from headwater.spark.core.planning.split_planning import SplitPlanner
from headwater.spark.core.positions import Position, ReadSpan, after, before
from headwater.spark.core.store import SourceStore
from tests.spark.stores import Shop

pytestmark = pytest.mark.peer


def ids_in(shop: Shop, start: StreamID, end: StreamID) -> list[StreamID]:
    """Return the live entries of a range (start excluded) with XRANGE."""
    if start >= end:
        return []
    found: Any = shop.client.xrange("s", str(after(start)), str(end))
    return [StreamID.parse(id_) for id_, _fields in found]


def test_headwater_is_planned_with_xsplit_and_other_servers_with_lua(
    shop: Shop, plans: Planner
) -> None:
    assert isinstance(plans, SplitPlanner if shop.name == "headwater" else LuaPlanner)


def test_a_look_counts_the_live_entries_after_a_position(shop: Shop, plans: Planner) -> None:
    shop.add("s", range(1, 101))
    shop.delete("s", 40, 41, 99)
    shop.client.xtrim("s", maxlen=90, approximate=False)

    for place in (0, 7, 40, 98, 100):
        at = StreamID(place, 1) if place else MIN_ID
        look = plans.look("s", Position(at, 0), None)
        assert look is not None
        assert look.to == StreamID(100, 1)
        assert look.total == look.taken == len(ids_in(shop, at, MAX_ID))
        assert look.state.length == 90
        assert look.state.entries_added == 100
        assert look.state.max_deleted_id == StreamID(99, 1)


def test_a_look_with_an_end_counts_only_entries_up_to_it(shop: Shop, plans: Planner) -> None:
    shop.add("s", range(1, 11))
    then = Position(StreamID(10, 1), 10)
    shop.add("s", range(11, 31))

    for _again in range(2):
        look = plans.look("s", Position(StreamID(4, 1), 4), then)
        assert look is not None
        assert (look.to, look.total, look.taken) == (StreamID(10, 1), 26, 6)


def test_a_look_at_a_missing_stream_is_none(plans: Planner) -> None:
    assert plans.look("s", Position(MIN_ID, 0), None) is None
    assert (
        plans.cut("s", ReadSpan(Position(MIN_ID, 0), Position(StreamID(9, 0), 9)), 3).state is None
    )


@pytest.mark.parametrize("count", [1, 2, 255, 256, 257, 1499, 2999])
def test_a_limit_ends_after_exactly_that_many_entries(
    shop: Shop, plans: Planner, count: int
) -> None:
    shop.add("s", range(1, 3101))
    shop.delete("s", *range(50, 3000, 61))
    start = Position(StreamID(20, 1), 20)
    look = plans.look("s", start, None)
    assert look is not None

    limited = plans.limit("s", start, look, count)

    assert limited is not None
    assert limited.taken == count
    assert len(ids_in(shop, start.id, limited.to)) == count


@pytest.mark.slow
def test_parts_cover_the_range_once_with_correct_counts(shop: Shop, plans: Planner) -> None:
    chance = random.Random(8)
    shop.add("s", sorted(chance.sample(range(1, 100_000), 2000)))
    entries = ids_in(shop, MIN_ID, MAX_ID)
    for _case in range(20):
        first, last = sorted(chance.sample(range(len(entries)), 2))
        start, end = entries[first], entries[last]
        parts = chance.choice([1, 2, 3, 7, 1000, 5000])

        cut = plans.cut("s", ReadSpan(Position(start, first + 1), Position(end, last + 1)), parts)

        assert cut.entries == last - first
        assert len(cut.parts) == min(parts, last - first)
        assert cut.parts[0][0].start == after(start)
        assert cut.parts[-1][0].end == end
        for (left, _), (right, _) in itertools.pairwise(cut.parts):
            assert right.start == after(left.end)
        sizes = [size for _ids, size in cut.parts]
        assert max(sizes) - min(sizes) <= 1
        for ids, size in cut.parts:
            assert len(ids_in(shop, before(ids.start), ids.end)) == size


def test_entries_removed_after_they_were_counted_are_missing_in_the_cut(
    shop: Shop, plans: Planner
) -> None:
    shop.add("s", range(1, 101))
    span = ReadSpan(Position(StreamID(10, 1), 10), Position(StreamID(90, 1), 90))
    shop.delete("s", 11, 50, 51, 90)

    cut = plans.cut("s", span, 8)

    assert cut.entries == 76
    for ids, size in cut.parts:
        assert len(ids_in(shop, before(ids.start), ids.end)) == size


def test_the_greatest_id_is_planned(shop: Shop, plans: Planner) -> None:
    shop.client.xadd("s", {"n": 1}, id="5-1")
    shop.client.xadd("s", {"n": 2}, id=str(MAX_ID))

    look = plans.look("s", Position(StreamID(5, 1), 1), None)
    assert look is not None
    assert (look.to, look.taken) == (MAX_ID, 1)
    beyond = plans.look("s", Position(MAX_ID, 2), None)
    assert beyond is not None
    assert beyond.total == 0
    cut = plans.cut("s", ReadSpan(Position(StreamID(5, 1), 1), Position(MAX_ID, 2)), 4)
    assert cut.entries == 1


@pytest.mark.parametrize("shop", ["redis-8.2", "valkey-9.1"], indirect=True)
def test_lua_walks_only_if_entries_may_have_been_removed(
    shop: Shop, store: SourceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = LuaPlanner(store)
    walks: list[int] = []
    run = store.run_all

    def counted(script: Any, calls: Any) -> Any:
        replies = run(script, calls)
        if script is not counters.SCRIPT:
            walks.extend(int(reply[0]) for reply in replies)
        return replies

    monkeypatch.setattr(store, "run_all", counted)

    def total_after(number: int) -> int:
        walks.clear()
        look = plans.look("s", Position(StreamID(number, 1), number), None)
        assert look is not None
        return look.total

    shop.add("s", range(1, 51))
    assert (total_after(10), walks) == (40, [40])
    assert (total_after(10), walks) == (40, [])  # nothing was added or removed
    shop.add("s", range(51, 61))
    assert (total_after(30), walks) == (
        30,
        [10],
    )  # nothing was removed; only new entries are counted
    shop.delete("s", 5)
    assert (total_after(30), walks) == (30, [30])  # the deleted entry might be after the position
    shop.client.xtrim("s", maxlen=15, approximate=False)
    assert (total_after(30), walks) == (15, [])  # the first entry is after the position
    assert (total_after(50), walks) == (10, [10])


@pytest.mark.parametrize("shop", ["redis-8.2", "valkey-9.1"], indirect=True)
def test_large_entries_are_copied_into_lua_a_few_at_a_time(shop: Shop, plans: Planner) -> None:
    # Given 60 MB in entries of 100 KB, after small ones
    shop.add("s", range(1, 501))
    shop.add("s", range(501, 1101), body=b"x" * 100_000)
    shop.client.config_resetstat()

    # When they are counted and cut
    counted = plans.count("s", StreamID(5, 1), MAX_ID)
    cut = plans.cut(
        "s", ReadSpan(Position(StreamID(5, 1), 5), Position(StreamID(1100, 1), 1100)), 4
    )

    # Then no call copied all of them, and all were counted
    assert counted == cut.entries == 1095
    assert [size for _ids, size in cut.parts] == [274, 274, 274, 273]
    stats: Any = shop.client.info("commandstats")
    assert stats["cmdstat_xrange"]["calls"] >= 2 * 40
    assert stats["cmdstat_evalsha"]["calls"] >= 2 * 3


@pytest.mark.parametrize("shop", ["redis-8.2", "valkey-9.1"], indirect=True)
def test_a_recreated_stream_with_the_same_first_entry_is_counted_again(
    shop: Shop, plans: Planner
) -> None:
    shop.add("s", range(1, 6))
    at = Position(StreamID(5, 1), 5)
    plans.look("s", at, None)
    shop.client.delete("s")
    shop.add("s", [1, *range(6, 13)])

    look = plans.look("s", at, None)

    assert look is not None
    assert look.state.entries_added - at.added == 3
    assert look.total == 7


def test_a_running_query_looks_for_new_streams_from_time_to_time(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a pattern whose streams were looked up
    monkeypatch.setattr("headwater.spark.core.store._SEARCH_SECONDS", 1000.0)
    shop.add("orders", [1])
    store = SourceStore(parse_options({"url": shop.url, "stream": "orders*"}))
    assert store.recent_streams() == ["orders"]

    # When another one is created, then it is not looked for at once, but when the time has passed
    shop.add("orders.eu", [1])
    assert store.recent_streams() == ["orders"]
    monkeypatch.setattr(store, "_search_again", 0.0)
    assert store.recent_streams() == ["orders", "orders.eu"]
    store.close()


def test_a_pattern_excludes_headwaters_own_keys(shop: Shop) -> None:
    for key in ("orders", "orders.eu", "{orders}:hw:stage:1", "payments"):
        shop.client.xadd(key, {"n": 1})
    shop.client.set("orders.text", "no stream")

    store = SourceStore(parse_options({"url": shop.url, "stream": "*orders*"}))

    assert store.streams() == ["orders", "orders.eu"]
    store.close()


def test_a_stream_whose_name_is_not_utf8_does_not_stop_the_others(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    # Given a pattern that matches a stream whose name is not text
    shop.client.xadd(b"orders\xff", {"n": 1})
    shop.add("orders", [1])
    store = SourceStore(parse_options({"url": shop.url, "stream": "orders*"}))

    # When the streams are looked up, again and again
    found = [store.streams() for _ in range(3)]
    store.close()

    # Then the others are found, and the log says once that this one is not read
    assert found == [["orders"]] * 3
    assert caplog.text.count("is not UTF-8") == 1


def test_a_key_of_another_type_is_reported(shop: Shop, plans: Planner) -> None:
    shop.client.set("s", "text")

    with pytest.raises(DeclarationError, match="the key 's' holds a string, not a stream"):
        plans.look("s", Position(MIN_ID, 0), None)


def test_an_unreachable_server_is_reported_without_its_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headwater.spark.core.connection.PATIENCE_SECONDS", 0.0)
    store = SourceStore(parse_options({"url": "redis://:hunter2@127.0.0.1:1", "stream": "s"}))

    with pytest.raises(
        Disconnected, match=r"redis://\*\*\*@127.0.0.1:1: .*headwater serve"
    ) as gone:
        store.state("s")

    assert "hunter2" not in str(gone.value)


@pytest.mark.parametrize("shop", ["redis-8.2", "valkey-9.1"], indirect=True)
def test_a_wrong_password_is_reported_without_showing_it(shop: Shop) -> None:
    shop.client.config_set("requirepass", "right")
    try:
        url = shop.url.replace("://", "://:hunter2@")
        store = SourceStore(parse_options({"url": url, "stream": "s"}))
        with pytest.raises(HeadwaterError, match="refused the password") as refused:
            store.state("s")
        assert "hunter2" not in str(refused.value)
    finally:
        shop.client.execute_command("CONFIG SET", "requirepass", "")
