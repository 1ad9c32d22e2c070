"""Keys whose time comes: deleted before the next command, told of, a few at a time."""

from __future__ import annotations

import pytest

from headwater.commands.values import strings
from headwater.limits import MAX_KEYS_EXPIRED_AT_ONCE
from headwater.testing.node import LocalStore
from headwater.testing.replies import Failure, Nil


def test_a_key_is_gone_and_told_of_before_the_next_command_runs() -> None:
    # Given a key with a time, a client that watches it, and one that listens
    store = LocalStore()
    client, other, listener = store.client(), store.client(), store.client()
    client("CONFIG", "SET", "notify-keyspace-events", "Exmn")
    client("SET", "k", "v", "PX", 1000)
    other("WATCH", "k")
    listener("PSUBSCRIBE", "__keyevent@0__:*")
    # When the time has come and somebody uses the key, without a tick in between
    store.clock.advance(1)
    assert client("GET", "k") == Nil.BULK
    client("SET", "k", "w")
    # Then it was told of, in order, and the watch is broken
    told = [listener.reply() for _ in range(3)]
    assert [message[2] for message in told if isinstance(message, list)] == [
        b"__keyevent@0__:expired",
        b"__keyevent@0__:keymiss",
        b"__keyevent@0__:new",
    ]
    other("MULTI")
    other("PING")
    assert other("EXEC") == Nil.ARRAY


def test_many_keys_that_end_at_once_go_a_few_at_a_time() -> None:
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
    # The node goes on with the rest at once
    deadline = store.node.next_deadline()
    assert deadline == store.clock.monotonic()
    store.node.tick()
    assert len(store.node.keyspace.databases[0].values) == 1


def test_keys_without_room_for_their_end_stay_invisible() -> None:
    store = LocalStore()
    client = store.client()
    client("SET", "k", "v", "PX", 1000)
    client("RPUSH", "l", "a")
    client("PEXPIRE", "l", 1000)
    admission, store.node.records.admission = store.node.records.admission, lambda _size: "full"
    store.advance(1)
    assert client("EXISTS", "k", "l") == 0
    assert client("RANDOMKEY") == Nil.BULK
    # What is put there has nothing of what was
    assert client("RPUSH", "l", "b") == 1
    assert client("LRANGE", "l", 0, -1) == [b"b"]
    assert client("TTL", "l") == -1
    assert client("SET", "k", "v", "XX") == Nil.BULK
    store.node.records.admission = admission
    store.advance(1)
    assert sorted(store.node.keyspace.databases[0].values) == [b"l"]


def test_idle_times_begin_anew_with_each_use() -> None:
    store = LocalStore()
    client = store.client()
    client("SET", "k", "v")
    client("XADD", "s", "1-1", "a", "b")
    client("RPUSH", "l", "a")

    def idle() -> list[object]:
        return [client("OBJECT", "IDLETIME", key) for key in ("k", "s", "l")]

    store.advance(10)
    for look in ("TTL", "EXISTS", "TYPE"):
        client(look, "k")  # looks at the key, and does not use it
    assert idle() == [10, 10, 10]
    client("GET", "k")
    client("XLEN", "s")
    assert idle() == [0, 0, 10]
    store.advance(5)
    client("TOUCH", "l")
    client("RENAME", "k", "k2")
    client("RENAME", "k2", "k")
    assert idle() == [0, 5, 0]
    # A client may ask to leave no trace; TOUCH does what it says nevertheless
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
    # Who was not used since the store was opened is idle since then
    store.crash()
    store.advance(3)
    client = store.client()
    assert idle() == [3, 3, 3]


def test_a_string_grows_to_the_length_of_an_argument_at_most(
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
