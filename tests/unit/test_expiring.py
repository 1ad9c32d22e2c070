"""Expired keys are deleted before the next command, with notifications, a few at a time."""

from __future__ import annotations

import pytest

from headwater.commands.values import strings
from headwater.common.limits import MAX_KEYS_EXPIRED_AT_ONCE
from headwater.config.config import Config
from headwater.testing.node import LocalStore
from headwater.testing.replies import Failure, Nil, Simple


def test_an_expired_key_is_deleted_and_notified_before_the_next_command() -> None:
    # Given a key with an expiry, a client that watches it, and a client that listens for events
    store = LocalStore()
    client, other, listener = store.client(), store.client(), store.client()
    client("CONFIG", "SET", "notify-keyspace-events", "Exmn")
    client("SET", "k", "v", "PX", 1000)
    other("WATCH", "k")
    listener("PSUBSCRIBE", "__keyevent@0__:*")
    # When it has expired and a client uses the key, without a tick in between
    store.clock.advance(1)
    assert client("GET", "k") == Nil.BULK
    client("SET", "k", "w")
    # Then the events were sent in order, and the watching transaction fails
    messages = [listener.reply() for _ in range(3)]
    assert [message[2] for message in messages if isinstance(message, list)] == [
        b"__keyevent@0__:expired",
        b"__keyevent@0__:keymiss",
        b"__keyevent@0__:new",
    ]
    other("MULTI")
    other("PING")
    assert other("EXEC") == Nil.ARRAY


def test_many_keys_that_expire_at_once_are_deleted_a_few_at_a_time() -> None:
    store = LocalStore()
    client = store.client()
    count = 3 * MAX_KEYS_EXPIRED_AT_ONCE
    for number in range(count):
        client("SET", number, "v", "PX", 1000)
    client("SET", "stays", "v")
    store.clock.advance(1)
    # A command runs after the first few, and sees none of them
    assert client("DBSIZE") == 1
    assert client("KEYS", "*") == [b"stays"]
    assert len(store.node.keyspace.databases[0].values) == 1 + count - 2 * MAX_KEYS_EXPIRED_AT_ONCE
    # The node continues with the rest at once
    deadline = store.node.next_deadline()
    assert deadline == store.clock.monotonic()
    store.node.tick()
    assert len(store.node.keyspace.databases[0].values) == 1


def test_expired_keys_stay_invisible_while_the_journal_has_no_room() -> None:
    store = LocalStore()
    client = store.client()
    client("SET", "k", "v", "PX", 1000)
    client("RPUSH", "l", "a")
    client("PEXPIRE", "l", 1000)
    admission, store.node.records.admission = store.node.records.admission, lambda _size: "full"
    store.advance(1)
    assert client("EXISTS", "k", "l") == 0
    assert client("RANDOMKEY") == Nil.BULK
    # A new value does not inherit anything from the expired one
    assert client("RPUSH", "l", "b") == 1
    assert client("LRANGE", "l", 0, -1) == [b"b"]
    assert client("TTL", "l") == -1
    assert client("SET", "k", "v", "XX") == Nil.BULK
    store.node.records.admission = admission
    store.advance(1)
    assert sorted(store.node.keyspace.databases[0].values) == [b"l"]


@pytest.mark.slow
def test_each_use_resets_the_idle_time() -> None:
    store = LocalStore()
    client = store.client()
    client("SET", "k", "v")
    client("XADD", "s", "1-1", "a", "b")
    client("RPUSH", "l", "a")

    def idle() -> list[object]:
        return [client("OBJECT", "IDLETIME", key) for key in ("k", "s", "l")]

    store.advance(10)
    for look in ("TTL", "EXISTS", "TYPE"):
        client(look, "k")  # does not count as a use
    assert idle() == [10, 10, 10]
    client("GET", "k")
    client("XLEN", "s")
    assert idle() == [0, 0, 10]
    store.advance(5)
    client("TOUCH", "l")
    client("RENAME", "k", "k2")
    client("RENAME", "k2", "k")
    assert idle() == [0, 5, 0]
    # With CLIENT NO-TOUCH only TOUCH resets the idle time
    store.advance(5)
    client("CLIENT", "NO-TOUCH", "ON")
    client("GET", "k")
    client("XLEN", "s")
    assert idle() == [5, 10, 5]
    client("TOUCH", "k", "s")
    assert idle() == [0, 0, 5]
    client("RESET")
    client("LLEN", "l")
    assert idle() == [0, 0, 0]
    # Keys that were not used since the store was opened are idle since then
    store.crash()
    store.advance(3)
    client = store.client()
    assert idle() == [3, 3, 3]


def test_a_string_is_at_most_as_long_as_an_argument(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(strings, "MAX_BULK_BYTES", 5)
    client = LocalStore().client()
    assert client("APPEND", "k", "abc") == 3
    assert client("APPEND", "k", "de") == 5
    assert client("APPEND", "k", "f") == Failure(
        b"ERR string exceeds maximum allowed size (proto-max-bulk-len)"
    )
    assert client("GET", "k") == b"abcde"


@pytest.mark.parametrize(
    ("watched", "other", "breaks"),
    [
        # When the watched key (in database 1) and the key of this name in database 0 expire, in seconds: 0 before
        # the watch, 2 between it and SWAPDB, 9 later. None stands for a key that does not exist.
        (None, None, False),
        (None, 0, False),
        (None, 2, False),
        (None, 9, True),
        (0, None, False),
        (0, 0, False),
        (0, 2, False),
        (0, 9, True),
        (2, None, True),
        (2, 0, True),
        (2, 9, True),
        (9, None, True),
        (9, 0, True),
        (9, 9, True),
    ],
)
def test_swapdb_breaks_a_watch_unless_the_key_had_expired_before_and_after(
    watched: int | None, other: int | None, breaks: bool
) -> None:
    # Given keys that are not deleted when they expire, and a client that watches one in database 1
    store = LocalStore(config=Config(port=0, enable_debug_command="yes"))
    client, watching = store.client(), store.client()
    client("DEBUG", "SET-ACTIVE-EXPIRE", 0)
    for database, expiry in ((0, other), (1, watched)):
        client("SELECT", database)
        if expiry is not None:
            client("SET", "k", "v", "PX", 1 + 1000 * expiry)
    store.clock.advance(1)
    watching("SELECT", 1)
    watching("WATCH", "k")

    # When the databases are swapped and it runs a transaction
    store.clock.advance(2)
    client("SWAPDB", 1, 0)
    watching("MULTI")
    watching("PING")

    # Then this fails only if the key could be seen before or can be seen now
    assert watching("EXEC") == (Nil.ARRAY if breaks else [Simple(b"PONG")])
