"""Keys: replacing values, expiry, and signals to waiting and watching clients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater.common.model import flat_words
from headwater.engine.check import broken_invariants
from headwater.engine.keyspace.database import NO_EXPIRY, Database
from headwater.engine.keyspace.keyspace import Keyspace
from tests.unit.keyspaces import keyspace_of

WIRE = b"$1\r\na\r\n$1\r\nb\r\n"


@pytest.fixture
def keyspace() -> Iterator[Keyspace]:
    made = Keyspace()
    yield made
    assert broken_invariants(made) == []


@pytest.fixture
def db(keyspace: Keyspace) -> Database:
    return keyspace.databases[0]


def test_an_expired_key_is_invisible_before_it_is_deleted(db: Database) -> None:
    db.set_string(b"k", b"v")
    db.set_expiry(b"k", 1000)
    assert (db.lookup(b"k", 999), db.lookup(b"k", 1000)) == (b"v", None)
    assert (db.keys(999), db.keys(1000)) == ([b"k"], [])
    assert (db.count(999), db.count(1000)) == (1, 0)
    assert keyspace_of(db).first_expiry() == (1000, db, b"k")


def test_the_next_expiry_is_the_earliest_that_still_applies(db: Database) -> None:
    for key, at in ((b"a", 300), (b"b", 200), (b"c", 100)):
        db.set_string(key, b"v")
        db.set_expiry(key, at)
    db.set_expiry(b"c", NO_EXPIRY)
    db.delete(b"b")
    assert keyspace_of(db).next_expiry() == 300
    db.delete(b"a")
    assert keyspace_of(db).next_expiry() is None


def test_an_expiry_that_changes_often_leaves_few_stale_notes(db: Database) -> None:
    db.set_string(b"k", b"v")
    for at in range(1, 10_000):
        db.set_expiry(b"k", at)
    assert len(db.expiry_notes) <= 70
    assert keyspace_of(db).next_expiry() == 9999


def test_a_value_that_replaces_another_inherits_nothing(db: Database) -> None:
    # Given a stream with a group and an expiry
    stream = db.create_stream(b"k", 1)
    stream.create_group(b"g", 1, 0, 0, 0)
    db.set_expiry(b"k", 1000)

    # When a string replaces it, then all of it is gone
    db.set_string(b"k", b"v")
    assert db.expiries == {}
    assert db.keyspace.streams == {}
    assert db.keyspace.groups == {}

    # And fields replace a string, but are added to a hash
    db.set_fields(b"k", [(b"f", b"v")])
    assert db.values[b"k"] == {b"f": b"v"}
    db.set_fields(b"k", [(b"g", b"w")])
    assert db.values[b"k"] == {b"f": b"v", b"g": b"w"}


def test_a_hash_without_fields_is_deleted(db: Database) -> None:
    db.set_fields(b"h", [(b"f", b"v"), (b"g", b"w")])
    db.delete_fields(b"h", [b"f"])
    assert b"h" in db.values
    db.delete_fields(b"h", [b"g"])
    assert b"h" not in db.values


def test_flushing_one_database_does_not_change_the_others(keyspace: Keyspace) -> None:
    for number in (0, 1):
        keyspace.databases[number].create_stream(b"s", number + 1)
    keyspace.flush(0)
    assert list(keyspace.streams) == [2]
    keyspace.flush_all()
    assert keyspace.streams == {}


def test_the_number_of_a_stream_is_not_assigned_twice(db: Database) -> None:
    db.create_stream(b"a", db.keyspace.next_sid)
    db.delete(b"a")
    assert db.create_stream(b"a", db.keyspace.next_sid).sid == 2


def test_every_change_that_may_end_a_wait_signals_the_key(db: Database) -> None:
    # Given a client that waits for a key
    db.awaited[b"s"] = None
    signalled = db.keyspace.signalled

    def was_signalled() -> bool:
        found = (0, b"s") in signalled
        signalled.clear()
        return found

    # Then a change signals the key if it may end a wait, and otherwise does not
    stream = db.create_stream(b"s", 1)
    assert was_signalled()
    stream.append(1, 0, WIRE, 1, True)
    assert was_signalled()
    group = stream.create_group(b"g", 1, 0, 0, 0)
    assert not was_signalled()
    consumer = group.create_consumer(b"c", 1, 0)
    group.deliver(consumer, 5, (1, 0), (1, 0), 1, 1, noack=False)
    assert not was_signalled()
    group.release(flat_words([(1, 0, 1)]))
    assert was_signalled()
    group.delay(flat_words([(1, 0, 9, 1)]))
    assert not was_signalled()
    group.end_delay(flat_words([(1, 0)]))
    assert was_signalled()
    stream.destroy_group(b"g")
    assert was_signalled()
    db.set_string(b"s", b"v")
    assert was_signalled()
    db.delete(b"s")
    assert was_signalled()
    db.create_stream(b"s", 2)
    was_signalled()
    keyspace_of(db).flush(db.index)
    assert was_signalled()

    # And a change of another key does not
    db.create_stream(b"other", 3)
    assert not signalled
    del db.awaited[b"s"]


def test_a_change_of_a_watched_key_is_noted(db: Database) -> None:
    db.watched[b"k"] = None
    db.set_string(b"l", b"v")
    assert not db.keyspace.touched
    db.touch(b"k")
    db.set_string(b"k", b"v")
    assert list(db.keyspace.touched) == [(0, b"k")]
    del db.watched[b"k"]
