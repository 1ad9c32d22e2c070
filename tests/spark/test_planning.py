"""Planning gives the same numbers as counting the entries, on every server."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import pytest

from headwater.errors import DeclarationError, Disconnected, HeadwaterError
from headwater.model import MAX_ID, MIN_ID, StreamID
from headwater.spark.core import counters
from headwater.spark.core.ids import after, before
from headwater.spark.core.lua_planning import LuaPlanner
from headwater.spark.core.options import parse_options
from headwater.spark.core.planners import planner
from headwater.spark.core.planning import Planner
from headwater.spark.core.positions import Position, ReadSpan
from headwater.spark.core.split_planning import SplitPlanner
from headwater.spark.core.store import SourceStore
from tests.spark.stores import Shop

pytestmark = pytest.mark.peer


@pytest.fixture
def store(shop: Shop) -> Iterator[SourceStore]:
    opened = SourceStore(parse_options({"url": shop.url, "stream": "s"}))
    yield opened
    opened.close()


@pytest.fixture
def plans(store: SourceStore) -> Planner:
    return planner(store)


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


@pytest.fixture
def requests(store: SourceStore, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A 1 for each request of the store: each is a round trip."""
    made: list[int] = []
    patiently = store._patiently

    def counted(ask: Any) -> Any:
        made.append(1)
        return patiently(ask)

    assert store.splits in {True, False}  # asked once
    monkeypatch.setattr(store, "_patiently", counted)
    return made


def test_many_streams_are_looked_at_as_one_by_one(
    shop: Shop, store: SourceStore, plans: Planner
) -> None:
    # Given streams that are read up to their ends, behind, trimmed, empty and gone
    wanted: dict[str, tuple[Position, Position | None]] = {}
    for number in range(40):
        shop.add(f"m{number}", range(1, 11))
        read = number % 12
        wanted[f"m{number}"] = Position(StreamID(read, 1) if read else MIN_ID, read), None
    shop.client.xtrim("m3", maxlen=2, approximate=False)
    shop.delete("m4", 9)
    shop.delete("m5", *range(1, 11))
    shop.client.delete("m6")
    wanted["m7"] = Position(StreamID(2, 1), 2), Position(StreamID(6, 1), 6)
    wanted["m8"] = Position(MAX_ID, 10), None
    one_by_one = {stream: plans.look(stream, *places) for stream, places in wanted.items()}

    # When all are looked at together, then the numbers are the same
    assert planner(store).look_at_all(wanted) == one_by_one


def test_streams_with_nothing_new_take_few_requests_together(
    shop: Shop, plans: Planner, requests: list[int]
) -> None:
    # Given many streams that are read up to their ends, and whose entries are large
    names = [f"m{number}" for number in range(100)]
    for name in names:
        shop.add(name, range(1, 4), body=b"x" * 100_000)
    wanted: dict[str, tuple[Position, Position | None]] = {
        name: (Position(StreamID(3, 1), 3), None) for name in names
    }
    plans.look_at_all(wanted)
    requests.clear()
    sent = int(shop.client.info("stats")["total_net_output_bytes"])

    # When they are looked at again
    looks = plans.look_at_all(wanted)

    # Then that takes one request, or elsewhere one for each 4 MB that XINFO copies; no entries are transferred
    assert [look and look.total for look in looks.values()] == [0] * len(names)
    assert len(requests) <= (1 if shop.name == "headwater" else 6)
    assert int(shop.client.info("stats")["total_net_output_bytes"]) - sent < 100_000


def test_many_streams_with_new_entries_are_planned_in_few_requests(
    shop: Shop, plans: Planner, requests: list[int]
) -> None:
    # Given streams of different lengths, some of which lost entries, that were looked at before
    names = [f"m{number}" for number in range(200)]
    for number, name in enumerate(names):
        shop.add(name, range(1, 3 + number % 7))
    at = {name: (Position(MIN_ID, 0), None) for name in names}
    plans.look_at_all(at)
    for number, name in enumerate(names):
        shop.add(name, range(20, 22 + number % 5))
    for name in names[::10]:
        shop.delete(name, 20)
    requests.clear()

    # When a batch of all of them is planned
    looks = plans.look_at_all(at)
    spans = {
        name: (ReadSpan(*at[name][:1], Position(look.to, look.taken)), 2)
        for name, look in looks.items()
        if look is not None
    }
    cuts = plans.cut_all(spans)

    # Then every entry is counted once, and a request is not for one stream only. Those that lost entries are looked at
    # for the reason, elsewhere one by one.
    held = [shop.client.xlen(name) for name in names]
    assert [look and look.total for look in looks.values()] == held
    assert [cut.entries for cut in cuts.values()] == held
    assert all(len(cut.parts) == 2 for cut in cuts.values())
    assert len(requests) <= (3 if shop.name == "headwater" else 25 + 20)


@pytest.mark.parametrize("shop", ["redis-8.2", "valkey-9.1"], indirect=True)
def test_long_streams_are_walked_together_with_short_ones(
    shop: Shop, plans: Planner, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given streams that need up to a hundred calls, and more of them than one request has calls
    monkeypatch.setattr("headwater.spark.core.lua_planning._BUDGET", 12)
    monkeypatch.setattr("headwater.spark.core.lua_planning._TOGETHER", 4)
    lengths = {f"m{number}": length for number, length in enumerate((1, 100, 3, 0, 40, 7, 99, 12))}
    for name, length in lengths.items():
        shop.add(name, range(1, length + 1) or [1])
        if not length:
            shop.delete(name, 1)

    # When all are cut together
    cuts = plans.cut_all(
        {
            name: (ReadSpan(Position(MIN_ID, 0), Position(MAX_ID, length or 1)), 5)
            for name, length in lengths.items()
        }
    )

    # Then each is cut as alone
    assert {name: cut.entries for name, cut in cuts.items()} == lengths
    for name, length in lengths.items():
        alone = plans.cut(name, ReadSpan(Position(MIN_ID, 0), Position(MAX_ID, length or 1)), 5)
        assert alone == cuts[name]
        ends = [*itertools.accumulate(size for _ids, size in alone.parts)]
        assert [ids.start for ids, _size in alone.parts[1:]] == [
            StreamID(end + 1, 1) for end in ends[:-1]
        ]


def test_a_key_of_another_type_among_many_streams_is_named(shop: Shop, plans: Planner) -> None:
    shop.add("a", [1])
    shop.client.set("b", "text")
    at = Position(MIN_ID, 0)

    with pytest.raises(DeclarationError, match="the key 'b' holds a string, not a stream"):
        plans.look_at_all({"a": (at, None), "b": (at, None)})


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
