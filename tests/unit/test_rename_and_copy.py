"""Renaming, copying, swapping and flushing keys: what moves with them, the signals, and the garbage."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import partial
from operator import mod

import pytest

from headwater.common.limits import SMALL_GARBAGE
from headwater.common.model import flat_words
from headwater.engine.check import broken_invariants
from headwater.engine.keyspace import events
from headwater.engine.keyspace.database import Database
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.engine.replay.replay import Replay
from headwater.engine.streams.stream import StoredStream
from tests.property.state import picture
from tests.unit.keyspaces import keyspace_of

WIRE = b"$1\r\na\r\n$1\r\nb\r\n"


@pytest.fixture
def keyspace() -> Iterator[Keyspace]:
    made = Keyspace()
    yield made
    assert broken_invariants(made) == []
    again = Keyspace()
    Replay(again).apply(memoryview(bytes(made.facts.data)), 5)
    assert picture(again) == picture(made)


@pytest.fixture
def db(keyspace: Keyspace) -> Database:
    return keyspace.databases[0]


@pytest.fixture
def other(keyspace: Keyspace) -> Database:
    return keyspace.databases[1]


def made(db: Database, key: bytes = b"s") -> StoredStream:
    """Create a stream of four entries: one acknowledged, one released, one delayed, one owned."""
    keyspace = keyspace_of(db)
    stream = db.create_stream(key, keyspace.next_sid)
    for seq in range(4):
        stream.append(1, seq, WIRE, 1, seq == 0)
    group = stream.create_group(b"g", keyspace.next_gid, 0, 0, 0)
    consumer = group.create_consumer(b"c", 1, 1000)
    group.deliver(consumer, 1000, (1, 0), (1, 3), 4, 4, noack=False)
    group.acknowledge(flat_words([(1, 0)]))
    group.release(flat_words([(1, 1, 1)]))
    group.delay(flat_words([(1, 2, 5000, 1)]))
    stream.idempotency.record(b"p", b"i", (1, 3), now_ms=5)
    return stream


def test_a_renamed_stream_is_the_same_stream(db: Database, other: Database) -> None:
    stream = made(db)
    db.set_expiry(b"s", 9000)
    db.rename(b"s", other, b"t")
    assert other.values == {b"t": stream}
    assert (stream.db.index, stream.key) == (other.index, b"t")
    assert other.expiries == {b"t": 9000}
    assert (db.values, db.expiries) == ({}, {})
    assert keyspace_of(db).next_due() == 5000
    assert keyspace_of(db).first_expiry() == (9000, other, b"t")


def test_a_copied_stream_is_independent(db: Database, other: Database) -> None:
    # Given a stream and its copy
    stream = made(db)
    keyspace = keyspace_of(db)
    db.copy(b"s", other, b"t", keyspace.next_sid, [(1, keyspace.next_gid)])
    copy = other.values[b"t"]
    assert isinstance(copy, StoredStream)
    before = picture(keyspace)["databases"][0]
    # When all parts of the copy change
    group = copy.groups[b"g"]
    assert group.gid != stream.groups[b"g"].gid
    copy.append(2, 0, WIRE, 1, True)
    copy.delete([(1, 1), (1, 2)], marks=True)
    group.own(group.by_cid[1], flat_words([(1, 1, 2000, 7), (1, 2, 2000, 7)]), 2000, 2000)
    group.acknowledge(flat_words([(1, 3)]))
    copy.idempotency.expire(b"p", 1)
    copy.trim_through(1, 3)
    # Then the original is unchanged
    assert picture(keyspace)["databases"][0] == before
    assert keyspace.next_due() == 5000


def test_a_copy_has_the_delays_of_its_source(db: Database) -> None:
    made(db)
    db.copy(b"s", db, b"t", 2, [(1, 2)])
    db.delete(b"s")
    assert keyspace_of(db).next_due() == 5000
    assert list(db.keyspace.delaying) == [2]


def test_a_copy_has_unwritten_seen_times_too(db: Database) -> None:
    group = made(db).groups[b"g"]
    group.see(group.by_cid[1], 7777)
    db.copy(b"s", db, b"t", 2, [(1, 2)])
    keyspace = keyspace_of(db)
    assert keyspace.unseen == {1: {1: None}, 2: {1: None}}
    for gid in (1, 2):
        found = keyspace.groups[gid]
        found.record_seen(found.by_cid[1], 7777, 1000)
    keyspace.unseen.clear()


def test_copies_of_the_other_types_are_independent(db: Database) -> None:
    db.push(b"l", [b"a"], left=False)
    db.add_members(b"m", [b"a"])
    db.set_fields(b"h", [(b"f", b"v")])
    for key in (b"l", b"m", b"h"):
        db.copy(key, db, key + b"2", 0, [])
    db.push(b"l2", [b"b"], left=False)
    db.add_members(b"m2", [b"b"])
    db.set_fields(b"h2", [(b"g", b"w")])
    assert [db.values[key] for key in (b"l", b"m", b"h")] == [deque([b"a"]), {b"a"}, {b"f": b"v"}]


def test_a_value_is_deleted_with_its_last_member(db: Database) -> None:
    db.push(b"l", [b"a", b"b"], left=True)
    assert db.values[b"l"] == deque([b"b", b"a"])
    db.pop(b"l", 2, left=False)
    db.add_members(b"m", [b"a"])
    db.remove_members(b"m", [b"a"])
    assert db.values == {}


def test_swapping_databases_signals_waiting_and_watching_clients(
    db: Database, other: Database
) -> None:
    # Given keys in two databases, and clients that wait for and watch each
    made(db)
    other.set_string(b"s", b"v")
    other.set_expiry(b"s", 5000)
    db.set_string(b"here", b"v")
    for database in (db, other):
        for key in (b"s", b"here", b"none"):
            database.awaited[key] = database.watched[key] = None
    # When the databases are swapped
    keyspace_of(db).swap(0, 1)
    # Then values, expiries and streams are swapped
    assert db.values == {b"s": b"v"}
    assert keyspace_of(db).first_expiry() == (5000, db, b"s")
    assert list(other.values) == [b"s", b"here"]
    # And clients that wait for or watch an existing key of either database are signalled, and no others
    concerned = {(0, b"s"), (1, b"s"), (0, b"here"), (1, b"here")}
    assert set(db.keyspace.touched) == concerned
    assert set(db.keyspace.signalled) == concerned


@pytest.mark.parametrize("others", [0, 9])
def test_flushing_a_database_removes_only_its_streams(
    others: int, db: Database, other: Database
) -> None:
    """It removes the flushed ones if they are fewer, and otherwise rebuilds from the rest."""
    made(db)
    group = made(db, b"t").groups[b"g"]
    group.see(group.by_cid[1], 7777)
    kept = made(other)
    for number in range(others):
        other.set_string(b"%d" % number, b"v")
    keyspace_of(db).flush(db.index)
    keyspace = keyspace_of(db)
    assert keyspace.streams == {kept.sid: kept}
    assert list(keyspace.groups) == list(keyspace.delaying) == [kept.groups[b"g"].gid]
    assert keyspace.unseen == {}


def test_flushing_signals_waiting_and_watching_clients(db: Database) -> None:
    db.set_string(b"k", b"v")
    db.awaited.update({b"k": None, b"none": None})
    db.watched.update({b"k": None, b"none": None})
    keyspace_of(db).flush_all()
    assert list(db.keyspace.touched) == list(db.keyspace.signalled) == [(0, b"k")]


def test_large_deleted_values_become_garbage(db: Database) -> None:
    large = SMALL_GARBAGE + 1
    db.push(b"l", [b"x"] * large, left=True)
    db.add_members(b"m", [b"%d" % at for at in range(large)])
    db.set_fields(b"h", [(b"%d" % at, b"v") for at in range(large)])
    stream = db.create_stream(b"s", 1)
    for seq in range(large):
        stream.append(1, seq, WIRE, 1, seq == 0)
    db.set_string(b"k", b"x" * large)
    gone = [db.values[key] for key in (b"l", b"m", b"h", b"s")]
    for key in (b"l", b"m", b"h", b"s", b"k"):
        db.delete(key)
    assert all(a is b for a, b in zip(db.keyspace.garbage, gone, strict=True))
    # Small values do not, but a whole database does
    made(db)
    db.delete(b"s")
    assert len(db.keyspace.garbage) == len(gone)
    db.set_string(b"k", b"v")
    keyspace_of(db).flush(db.index)
    assert db.keyspace.garbage[len(gone) :] == [{b"k": b"v"}]


def test_a_recovery_leaves_no_garbage(db: Database) -> None:
    db.push(b"l", [b"x"] * 1000, left=True)
    db.delete(b"l")
    again = Keyspace()
    Replay(again).apply(memoryview(bytes(db.keyspace.facts.data)), 5)
    assert again.garbage == []


def test_every_new_key_is_notified_once(db: Database, other: Database) -> None:
    keyspace = keyspace_of(db)
    keyspace.notified = events.NEW
    db.set_string(b"a", b"v")
    db.set_string(b"a", b"w")
    db.push(b"l", [b"x"], left=True)
    db.push(b"l", [b"x"], left=True)
    db.create_stream(b"s", 1)
    db.rename(b"s", other, b"s")
    db.copy(b"a", db, b"l", 0, [])
    db.delete(b"a")
    db.set_string(b"a", b"v")
    found = [(number, key) for number, event, key in keyspace.events if event == b"new"]
    assert found == [(0, b"a"), (0, b"l"), (0, b"s"), (1, b"s"), (0, b"l"), (0, b"a")]
    assert len(found) == len(keyspace.events)


def test_a_random_key_may_be_any_existing_key(db: Database) -> None:
    assert db.random_key(lambda _below: 0, 0) is None
    for number in range(20):
        db.set_string(b"%d" % number, b"v")
    for number in range(15):
        db.delete(b"%d" % number)
    db.set_expiry(b"19", 1000)
    drawn = {db.random_key(partial(mod, n), 1000) for n in range(100)}
    assert drawn == {b"15", b"16", b"17", b"18"}
    # If random attempts fail, an existing key is found nevertheless
    for number in range(16, 20):
        db.delete(b"%d" % number)
    assert db.random_key(lambda _below: 0, 1000) == b"15"
    db.set_expiry(b"15", 1000)
    assert db.random_key(lambda _below: 0, 1000) is None


def test_the_time_of_use_moves_with_the_value(db: Database, other: Database) -> None:
    db.set_string(b"a", b"v")
    made(db)
    for key in (b"a", b"s"):
        db.use(key, db.values[key], 500)
        db.rename(key, other, key)
    assert [other.used_ms(key) for key in (b"a", b"s", b"none")] == [500, 500, 0]
    assert db.used == {}
    other.delete(b"a")
    assert other.used == {}
