"""Many streams are planned as one by one, in few requests."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from headwater.common.model import MAX_ID, MIN_ID, StreamID
from headwater.errors import DeclarationError
from headwater.spark.core.planning.planners import planner
from headwater.spark.core.planning.planning import Planner
from headwater.spark.core.positions import Position, ReadSpan
from headwater.spark.core.store import SourceStore
from tests.spark.stores import Shop, count_requests

pytestmark = pytest.mark.peer


@pytest.fixture
def requests(store: SourceStore, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A 1 for each request of the store."""
    return count_requests(store, monkeypatch)


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


def test_many_streams_are_limited_in_few_requests(
    shop: Shop, store: SourceStore, plans: Planner, requests: list[int]
) -> None:
    # Given streams of different lengths, some of which lost entries
    names = [f"m{number}" for number in range(100)]
    for number, name in enumerate(names):
        shop.add(name, range(1, 4 + number % 9))
    shop.delete("m3", 2)
    shop.delete("m4", 1, 2)
    start = Position(MIN_ID, 0)
    looks = plans.look_at_all(dict.fromkeys(names, (start, None)))
    wanted = {
        name: (start, look, 1 + number % 2)
        for number, (name, look) in enumerate(looks.items())
        if look is not None and look.taken > 1 + number % 2
    }
    assert len(wanted) > 90
    requests.clear()

    # When a batch may take one or two entries of each
    limited = plans.limit_all(wanted)
    sizes = store.entry_sizes(dict.fromkeys(names, 3))

    # Then the batch ends after those, and a request is not for one stream only
    assert {name: look and look.taken for name, look in limited.items()} == {
        name: count for name, (_at, _look, count) in wanted.items()
    }
    assert len(requests) <= 5
    assert min(sizes.values()) > 1
    # And each is limited as alone
    for name in ("m3", "m4", "m5", "m99"):
        alone = plans.limit(name, *wanted[name])
        assert alone is not None
        held: Any = shop.client.xrange(name, "-", str(alone.to))
        assert len(held) == alone.taken
        assert limited[name] == alone


@pytest.mark.parametrize("shop", ["redis-8.2", "valkey-9.1"], indirect=True)
def test_long_streams_are_walked_together_with_short_ones(
    shop: Shop, plans: Planner, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given streams that need up to a hundred calls, and more of them than one request has calls
    monkeypatch.setattr("headwater.spark.core.planning.lua_planning._BUDGET", 12)
    monkeypatch.setattr("headwater.spark.core.planning.lua_planning._TOGETHER", 4)
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
