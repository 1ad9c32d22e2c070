"""Keys: what stands over what, what ends when, who hears of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater.engine.check import broken_invariants
from headwater.engine.database import NO_EXPIRY, Database
from headwater.engine.keyspace import Keyspace
from headwater.model import flat_words
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


def test_a_key_is_gone_when_its_time_has_come_deleted_or_not(db: Database) -> None:
    db.set_string(b"k", b"v")
    db.set_expiry(b"k", 1000)
    assert (db.lookup(b"k", 999), db.lookup(b"k", 1000)) == (b"v", None)
    assert (db.keys(999), db.keys(1000)) == ([b"k"], [])
    assert (db.count(999), db.count(1000)) == (1, 0)
    assert keyspace_of(db).first_expiry() == (1000, db, b"k")


def test_the_next_expiry_is_the_earliest_that_still_holds(db: Database) -> None:
    for key, at in ((b"a", 300), (b"b", 200), (b"c", 100)):
        db.set_string(key, b"v")
        db.set_expiry(key, at)
    db.set_expiry(b"c", NO_EXPIRY)
    db.delete(b"b")
    assert keyspace_of(db).next_expiry() == 300
    db.delete(b"a")
    assert keyspace_of(db).next_expiry() is None


def test_an_expiry_that_is_moved_often_leaves_few_notes(db: Database) -> None:
    db.set_string(b"k", b"v")
    for at in range(1, 10_000):
        db.set_expiry(b"k", at)
    assert len(db.expiry_notes) <= 70
    assert keyspace_of(db).next_expiry() == 9999


def test_what_is_put_over_a_key_takes_nothing_from_it(db: Database) -> None:
    stream = db.create_stream(b"k", 1)
    stream.create_group(b"g", 1, 0, 0, 0)
    db.set_expiry(b"k", 1000)
    db.set_string(b"k", b"v")
    assert db.expiries == {}
    assert db.keyspace.streams == {}
    assert db.keyspace.groups == {}
    db.set_fields(b"k", [(b"f", b"v")])
    assert db.values[b"k"] == {b"f": b"v"}
    db.set_fields(b"k", [(b"g", b"w")])
    assert db.values[b"k"] == {b"f": b"v", b"g": b"w"}


def test_a_hash_without_fields_goes(db: Database) -> None:
    db.set_fields(b"h", [(b"f", b"v"), (b"g", b"w")])
    db.delete_fields(b"h", [b"f"])
    assert b"h" in db.values
    db.delete_fields(b"h", [b"g"])
    assert b"h" not in db.values


def test_flushing_one_database_leaves_the_others(keyspace: Keyspace) -> None:
    for number in (0, 1):
        keyspace.databases[number].create_stream(b"s", number + 1)
    keyspace.flush(0)
    assert list(keyspace.streams) == [2]
    keyspace.flush_all()
    assert keyspace.streams == {}


def test_a_number_of_a_stream_is_not_given_twice(db: Database) -> None:
    db.create_stream(b"a", db.keyspace.next_sid)
    db.delete(b"a")
    assert db.create_stream(b"a", db.keyspace.next_sid).sid == 2


def test_whoever_waits_hears_of_all_that_may_end_the_wait(db: Database) -> None:
    # Given somebody who waits for a key
    db.awaited[b"s"] = None
    signalled = db.keyspace.signalled

    def heard() -> bool:
        found = (0, b"s") in signalled
        signalled.clear()
        return found

    # Then each of these is heard
    stream = db.create_stream(b"s", 1)
    assert heard()
    stream.append(1, 0, WIRE, 1, True)
    assert heard()
    group = stream.create_group(b"g", 1, 0, 0, 0)
    assert not heard()
    consumer = group.create_consumer(b"c", 1, 0)
    group.deliver(consumer, 5, (1, 0), (1, 0), 1, 1, noack=False)
    assert not heard()
    group.release(flat_words([(1, 0, 1)]))
    assert heard()
    group.delay(flat_words([(1, 0, 9, 1)]))
    assert not heard()
    group.end_delay(flat_words([(1, 0)]))
    assert heard()
    stream.destroy_group(b"g")
    assert heard()
    db.set_string(b"s", b"v")
    assert heard()
    db.delete(b"s")
    assert heard()
    db.create_stream(b"s", 2)
    heard()
    keyspace_of(db).flush(db.index)
    assert heard()
    # And nothing of another key
    db.create_stream(b"other", 3)
    assert not signalled
    del db.awaited[b"s"]


def test_a_watched_key_that_is_modified_is_noted(db: Database) -> None:
    db.watched[b"k"] = None
    db.set_string(b"l", b"v")
    assert not db.keyspace.touched
    db.touch(b"k")
    db.set_string(b"k", b"v")
    assert list(db.keyspace.touched) == [(0, b"k")]
    del db.watched[b"k"]
