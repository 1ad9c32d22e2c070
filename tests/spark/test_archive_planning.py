"""Many archived streams are planned as one by one, in few requests, also while some of the archives grow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.common.model import MAX_ID, MIN_ID, StreamID
from headwater.errors import DataLoss
from headwater.spark.archive.planning import ArchivePlanner
from headwater.spark.archive.store import ArchiveStore
from headwater.spark.core.options import parse_options
from headwater.spark.core.planning.planning import CutRange, Look
from headwater.spark.core.positions import Position, ReadSpan
from tests.spark.archives import archive
from tests.spark.stores import Shop, count_requests

pytestmark = pytest.mark.peer

NAMES = [f"m{number}" for number in range(12)]
START = Position(MIN_ID, 0)


@pytest.fixture
def archived(shop: Shop, tmp_path: Path) -> Iterator[ArchiveStore]:
    """Streams whose first entries are archived. Some have later ones, one has no archive, and the key of one is
    gone."""
    for number, name in enumerate(NAMES[1:], start=1):
        shop.add(name, range(1, 4 + number))
    archive(shop, tmp_path, stream="m*")
    shop.add(NAMES[0], range(1, 8))
    for name in NAMES[4:]:
        shop.add(name, range(30, 36))
    shop.delete(NAMES[5], 31)
    shop.client.delete(NAMES[1])
    store = ArchiveStore(parse_options({"url": shop.url, "stream": "m*", "archive": str(tmp_path)}))
    yield store
    store.close()


def spans_of(
    looks: dict[str, Look | None], start: Position = START
) -> dict[str, tuple[ReadSpan, int]]:
    return {
        name: (ReadSpan(start, Position(look.to, start.added + look.taken)), 3)
        for name, look in looks.items()
        if look is not None
    }


@pytest.mark.parametrize("read", [0, 3])
def test_archived_streams_are_planned_as_one_by_one(archived: ArchiveStore, read: int) -> None:
    # Given each stream planned alone, from its beginning or from within its archive
    start = Position(StreamID(read, 1), read) if read else START
    alone = ArchivePlanner(archived)
    wanted = dict.fromkeys(NAMES, (start, None))
    looks = {name: alone.look(name, start, None) for name in NAMES}
    limits = {
        name: (start, look, 1 + number % 6)
        for number, (name, look) in enumerate(looks.items())
        if look is not None and look.taken > 1 + number % 6
    }
    assert len(limits) > 6
    assert sum(look.total for look in looks.values() if look is not None) > 100

    # When all are planned together, then the answers are the same
    together = ArchivePlanner(archived)
    assert together.look_at_all(wanted) == looks
    assert together.limit_all(limits) == {
        name: alone.limit(name, *limit) for name, limit in limits.items()
    }
    assert together.cut_all(spans_of(looks, start)) == {
        name: alone.cut(name, *span) for name, span in spans_of(looks, start).items()
    }


def test_entries_of_archives_and_streams_are_counted_once(archived: ArchiveStore) -> None:
    # Given streams of which the first entries are archived, some are trimmed, and some came later
    live = {0: 7, 4: 6, 5: 5, **dict.fromkeys(range(6, 12), 6)}
    totals = {
        name: (3 + number if number else 0) + live.get(number, 0)
        for number, name in enumerate(NAMES)
    }
    plans = ArchivePlanner(archived)

    # When they are looked at from their beginnings, then no entry is missing and none counts twice
    looks = plans.look_at_all(dict.fromkeys(NAMES, (START, None)))
    assert {name: look and look.total for name, look in looks.items()} == totals
    cuts = plans.cut_all(spans_of(looks))
    assert {name: cut.entries for name, cut in cuts.items()} == totals
    assert {name: plans.count(name, MIN_ID, MAX_ID) for name in NAMES} == totals


@pytest.mark.parametrize(("upto", "taken"), [(2, 2), (30, 11 + 1), (99, 11 + 6)])
def test_a_look_ends_within_the_archive_or_after_it(
    archived: ArchiveStore, upto: int, taken: int
) -> None:
    # Given a stream with 11 archived entries and six later ones, from 30-1 on
    until = Position(StreamID(upto, 1), taken)
    look = ArchivePlanner(archived).look_at_all({NAMES[8]: (START, until)})[NAMES[8]]
    assert look is not None
    assert (look.total, look.taken) == (17, taken)


@pytest.mark.parametrize(("count", "last"), [(4, 4), (13, 31)])
def test_a_limited_look_ends_within_the_archive_or_after_it(
    archived: ArchiveStore, count: int, last: int
) -> None:
    # Given a look at 11 archived entries and six later ones
    plans = ArchivePlanner(archived)
    look = plans.look(NAMES[8], START, None)
    assert look is not None

    # When a batch may take some of them, then it ends before the entry that follows
    limited = plans.limit_all({NAMES[8]: (START, look, count)})[NAMES[8]]
    assert limited is not None
    assert limited.taken == count
    assert StreamID(last, 1) <= limited.to < StreamID(last + 1, 1)


def test_many_archived_streams_are_planned_in_few_requests(
    shop: Shop, archived: ArchiveStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a planner that knows the server
    plans = ArchivePlanner(archived)
    wanted = dict.fromkeys(NAMES, (START, None))
    plans.look_at_all(wanted)
    requests = count_requests(archived, monkeypatch)

    # When a batch of all streams is planned
    looks = plans.look_at_all(wanted)
    cuts = plans.cut_all(spans_of(looks))

    # Then no stream has a request of its own, except elsewhere the one that lost an entry
    assert [cut.entries for cut in cuts.values()] == [
        look.total for look in looks.values() if look is not None
    ]
    assert len(requests) <= (3 if shop.name == "headwater" else 5)


def test_only_streams_whose_archives_have_grown_are_planned_again(
    shop: Shop, archived: ArchiveStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a stream that is archived and trimmed while all are looked at
    plans = ArchivePlanner(archived)
    inner: Any = plans._stream
    look_at_all, asked = inner.look_at_all, []

    def archive_one(wanted: Any) -> Any:
        asked.append(list(wanted))
        if len(asked) == 1:
            archive(shop, tmp_path, stream=NAMES[6])
            assert shop.client.xlen(NAMES[6]) == 0
        return look_at_all(wanted)

    monkeypatch.setattr(inner, "look_at_all", archive_one)

    # When they are looked at
    looks = plans.look_at_all(dict.fromkeys(NAMES, (START, None)))

    # Then that one is looked at again, and its entries are counted once
    assert asked == [NAMES, [NAMES[6]]]
    look = looks[NAMES[6]]
    assert look is not None
    assert look.total == 3 + 6 + 6


def test_streams_whose_archives_grow_whenever_all_are_planned_are_planned_one_by_one(
    shop: Shop, archived: ArchiveStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given two streams that are archived each time several streams are looked at
    plans = ArchivePlanner(archived)
    inner: Any = plans._stream
    look_at_all, growing = inner.look_at_all, NAMES[6:8]

    def archive_two(wanted: Any) -> Any:
        looks = look_at_all(wanted)
        if len(wanted) > 1:
            for name in growing:
                shop.client.xadd(name, {"n": 1})
                archive(shop, tmp_path, stream=name)
        return looks

    monkeypatch.setattr(inner, "look_at_all", archive_two)

    # When all are looked at, then each entry is counted once
    looks = plans.look_at_all(dict.fromkeys(NAMES, (START, None)))
    assert [look and look.total for look in map(looks.get, growing)] == [15 + 3, 16 + 3]


def test_a_stream_behind_its_archive_is_named_among_many(
    shop: Shop, archived: ArchiveStore
) -> None:
    shop.client.delete(NAMES[7])
    shop.add(NAMES[7], [1])
    with pytest.raises(DataLoss, match=NAMES[7]):
        ArchivePlanner(archived).look_at_all(dict.fromkeys(NAMES, (START, None)))


def test_a_stream_with_neither_key_nor_archive_is_none(archived: ArchiveStore) -> None:
    plans = ArchivePlanner(archived)
    assert plans.look_at_all({"gone": (START, None)}) == {"gone": None}
    empty: dict[str, CutRange] = plans.cut_all({})
    assert empty == {}
