"""The registry of WATCH: what breaks a client's watch, and how it ends."""

from __future__ import annotations

import pytest

from headwater.engine.keyspace.keyspace import Keyspace
from headwater.server.services.watching import Watches
from headwater.server.session.output import ClientMemory
from headwater.server.session.watch import Watch


@pytest.fixture
def keyspace() -> Keyspace:
    return Keyspace()


@pytest.fixture
def watches(keyspace: Keyspace) -> Watches:
    return Watches(keyspace, ClientMemory())


def test_a_watch_breaks_when_one_of_its_keys_is_modified(
    keyspace: Keyspace, watches: Watches
) -> None:
    # Given two clients that watch a key each, one of them twice
    first, second = Watch(), Watch()
    watches.add(first, (0, b"k"))
    watches.add(first, (0, b"k"))
    watches.add(second, (0, b"l"))

    # When one key is modified, then only its watch is broken
    keyspace.databases[0].touch(b"k")
    assert (watches.broken(first), watches.broken(second)) == (True, False)
    assert watches.count_keys() == 2


def test_an_earlier_modification_does_not_break_a_watch(
    keyspace: Keyspace, watches: Watches
) -> None:
    first, late = Watch(), Watch()
    watches.add(first, (0, b"k"))
    keyspace.databases[0].touch(b"k")
    watches.add(late, (0, b"k"))
    assert (watches.broken(first), watches.broken(late)) == (True, False)


def test_an_ended_watch_leaves_nothing_and_can_begin_again(
    keyspace: Keyspace, watches: Watches
) -> None:
    # Given a broken watch that has ended
    watch, other = Watch(), Watch()
    watches.add(watch, (0, b"k"))
    watches.add(other, (0, b"l"))
    keyspace.databases[0].touch(b"k")
    assert watches.broken(watch)
    watches.end(watch)

    # Then it watches nothing, and the engine notes only keys that others watch
    assert not watches.broken(watch)
    assert list(keyspace.databases[0].watched) == [b"l"]
    watches.end(other)
    assert not keyspace.databases[0].watched
    assert watches.count_keys() == 0

    # And it can begin again
    watches.add(watch, (0, b"k"))
    assert not watches.broken(watch)


def test_a_new_keyspace_breaks_every_watch(watches: Watches) -> None:
    watch, idle = Watch(), Watch()
    watches.add(watch, (3, b"k"))
    again = Keyspace()
    watches.move(again)
    assert (watches.broken(watch), watches.broken(idle)) == (True, False)
    watches.end(watch)
    watches.add(watch, (3, b"k"))
    again.databases[3].touch(b"k")
    assert watches.broken(watch)
