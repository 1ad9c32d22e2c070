"""Idempotent producers: which iids a stream remembers, for how long, and at what cost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater.commands.idempotency import content_hash
from headwater.engine.check import broken_invariants
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.engine.streams.idempotency import Idempotency

LATE = 2**40
"""A time after all ids in these tests. The window of an iid begins at the time of its entry's id."""


@pytest.fixture
def keyspace() -> Iterator[Keyspace]:
    made = Keyspace()
    yield made
    assert broken_invariants(made) == []


@pytest.fixture
def known(keyspace: Keyspace) -> Idempotency:
    return keyspace.databases[0].create_stream(b"s", 1).idempotency


# --- remembered iids --------------------------------------------------------------------------------


def test_a_full_producer_forgets_its_oldest_iid(known: Idempotency) -> None:
    known.configure(100, 2)
    known.record(b"q", b"1", (1, 0), now_ms=LATE)
    for number in (1, 2, 3):
        known.record(b"p", b"%d" % number, (number, 1), now_ms=LATE)
    assert known.contents() == [
        (b"q", [(b"1", (1, 0))]),
        (b"p", [(b"2", (2, 1)), (b"3", (3, 1))]),
    ]
    assert (known.tracked, known.added) == (3, 4)


def test_a_producer_without_iids_is_removed(known: Idempotency) -> None:
    known.record(b"p", b"1", (1, 0), now_ms=LATE)
    known.record(b"p", b"2", (2, 0), now_ms=LATE)
    known.expire(b"p", 1)
    assert (known.find(b"p", b"1"), known.find(b"p", b"2")) == (None, (2, 0))
    known.expire(b"p", 1)
    assert known.producers == {}
    assert (known.tracked, known.added) == (0, 2)


def test_a_copy_and_a_restored_one_are_independent(keyspace: Keyspace, known: Idempotency) -> None:
    known.configure(7, 3)
    known.record(b"p", b"1", (1, 0), now_ms=LATE)
    known.count_duplicate(4)
    copy = keyspace.databases[0].create_stream(b"copy", 2).idempotency
    copy.copy_from(known)
    third = keyspace.databases[0].create_stream(b"third", 3).idempotency
    third.restore(7, 3, 1, 4, known.contents(), now_ms=LATE)
    known.expire(b"p", 1)
    for one in (copy, third):
        assert one.contents() == [(b"p", [(b"1", (1, 0))])]
        assert (one.duration_s, one.maxsize, one.added, one.duplicates) == (7, 3, 1, 4)


# --- expiry -----------------------------------------------------------------------------------------


def test_deadlines_are_found_in_order_across_the_store(
    keyspace: Keyspace, known: Idempotency
) -> None:
    other = keyspace.databases[3].create_stream(b"s", 2).idempotency
    other.configure(1, 10)
    known.record(b"p", b"1", (50_000, 0), now_ms=LATE)
    other.record(b"q", b"1", (140_000, 0), now_ms=LATE)
    other.record(b"r", b"1", (160_000, 0), now_ms=LATE)
    found = []
    while (first := keyspace.iid_deadlines.first()) is not None:
        found.append((first[0], first[2]))
        first[1].expire(first[2], 1)
    assert found == [(141_000, b"q"), (150_000, b"p"), (161_000, b"r")]


def test_a_sweep_is_at_a_whole_second(keyspace: Keyspace, known: Idempotency) -> None:
    assert keyspace.iid_deadlines.next_sweep_ms() is None
    known.record(b"p", b"1", (1, 0), now_ms=LATE)
    assert keyspace.iid_deadlines.next_sweep_ms() == 101_000
    known.configure(1, 100)
    assert keyspace.iid_deadlines.next_sweep_ms() is None
    known.record(b"p", b"1", (2000, 0), now_ms=LATE)
    assert keyspace.iid_deadlines.next_sweep_ms() == 3000


def test_removing_the_oldest_iid_moves_the_deadline(keyspace: Keyspace, known: Idempotency) -> None:
    """It usually moves later, but earlier if XIDMPRECORD recorded an older entry afterwards."""
    known.configure(1, 2)
    for iid, ms in ((b"1", 5000), (b"2", 9000), (b"3", 3000), (b"4", 8000)):
        known.record(b"p", iid, (ms, 0), now_ms=LATE)
        assert broken_invariants(keyspace) == []
    first = keyspace.iid_deadlines.first()
    assert first is not None
    assert first[0] == 4000
    known.record(b"p", b"5", (8500, 0), now_ms=LATE)
    first = keyspace.iid_deadlines.first()
    assert first is not None
    assert first[0] == 9000


def test_removed_producers_leave_few_notes(keyspace: Keyspace) -> None:
    db = keyspace.databases[0]
    for number in range(1, 3000):
        stream = db.create_stream(b"s", number)
        stream.idempotency.record(b"p%d" % number, b"1", (number, 0), now_ms=LATE)
    assert len(keyspace.iid_deadlines.notes) < 150


# --- IDMPAUTO ---------------------------------------------------------------------------------------


def test_the_hash_of_contents_never_changes() -> None:
    """Journals contain it: with a different hash, a retry after an upgrade would count as new."""
    assert content_hash([b"item", b"tea", b"price", b"3"]).hex() == GOLDEN_HASH


GOLDEN_HASH = "be1de2c40175d895c418cf6d0d0a783d"


@pytest.mark.parametrize(
    "other",
    [
        [b"b", b"2", b"a", b"2"],
        [b"a", b"2", b"b", b"1"],
        [b"a", b"1", b"b", b"2", b"b", b"2"],
        [b"a", b"1", b"b", b"2", b"c", b"3", b"c", b"3"],
        [b"a", b"1"],
        [b"a1", b"", b"b", b"2"],
        [b"", b"a1", b"b", b"2"],
        [b"a", b"1b", b"", b"2"],
        [b"A", b"1", b"b", b"2"],
        [b"a\0", b"1", b"b", b"2"],
    ],
)
def test_different_contents_have_different_hashes(other: list[bytes]) -> None:
    contents = [b"a", b"1", b"b", b"2"]
    assert content_hash(contents) == content_hash(contents[2:] + contents[:2])
    assert content_hash(other) != content_hash(contents)


def test_pairs_given_twice_do_not_cancel_out() -> None:
    hashes = {content_hash([b"a", b"1"] * times + [b"b", b"2"] * more) for times, more in COUNTS}
    assert len(hashes) == len(COUNTS)


COUNTS = [(times, more) for times in range(5) for more in range(5)]
