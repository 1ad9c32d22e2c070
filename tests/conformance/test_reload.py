"""DEBUG RELOAD: replaying the journal at any time leads to the same state."""

from __future__ import annotations

import random

import pytest

from headwater.config.config import Config
from headwater.engine.check import broken_invariants
from headwater.testing.node import LocalClient, LocalStore, request
from headwater.testing.replies import Failure, Nil, Simple
from tests.property.state import picture

OK = Simple(b"OK")


@pytest.fixture
def store() -> LocalStore:
    return LocalStore(config=Config(port=0, enable_debug_command="yes"))


def fill(store: LocalStore, client: LocalClient) -> None:
    """Create streams, groups, pending, released and delayed entries, values, expiries."""
    dice = random.Random(5)
    for number in range(1, 60):
        client("XADD", dice.choice("st"), f"{number}-1", "n", number)
    client("XDEL", "s", "3-1", "17-1")
    client("XTRIM", "t", "MAXLEN", 12)
    for group in ("g", "h"):
        client("XGROUP", "CREATE", "s", group, "0")
        for consumer in ("ann", "bob"):
            client("XREADGROUP", "GROUP", group, consumer, "COUNT", 7, "STREAMS", "s", ">")
            store.advance(0.25)
    held = client("XPENDING", "s", "g", "-", "+", 4, "ann")
    assert isinstance(held, list)
    ids = [row[0] for row in held if isinstance(row, list) and isinstance(row[0], bytes)]
    client("XACK", "s", "g", ids[0])
    client("XNACK", "s", "g", "FAIL", "IDS", 1, ids[1])
    client("XSETTLE", "s", "g", "ann", "FAIL", "DELAY", 60_000, "IDS", 1, ids[2])
    client("XADD", "s", "IDMP", "p", "i", "99-1", "a", "b")
    client("SET", "mortal", "x", "PX", 90_000)
    client("HSET", "h", "f", "v", "g", "w")
    client("RPUSH", "l", "a", "b")
    client("SADD", "set", "a", "b")
    client("SELECT", 5)
    client("XADD", "s", "1-1", "other", "database")


@pytest.mark.parametrize("command", ["RELOAD", "LOADAOF"])
def test_the_state_is_the_same_after_a_reload(
    store: LocalStore, client: LocalClient, command: str
) -> None:
    # Given a store with data of every kind
    fill(store, client)
    store.advance(1)
    before = picture(store.node.keyspace)
    seen = client("XINFO", "STREAM", "s", "FULL")
    keyspace = store.node.keyspace

    # When it is reloaded
    assert client("DEBUG", command) == OK

    # Then a new keyspace has the same data, clients have the same state, and commands run
    assert store.node.keyspace is not keyspace
    assert picture(store.node.keyspace) == before
    assert broken_invariants(store.node.keyspace) == []
    assert client("XINFO", "STREAM", "s", "FULL") == seen
    assert client("XLEN", "s") == 1, "still in database 5"
    client("SELECT", 0)
    assert client("XADD", "s", "100-1", "a", "b") == b"100-1"
    store.crash()
    assert store.client()("XRANGE", "s", "100-1", "+") == [[b"100-1", [b"a", b"b"]]]


def test_writes_of_the_same_turn_are_reloaded_too(store: LocalStore, client: LocalClient) -> None:
    words = (("SET", "k", "1"), ("DEBUG", "RELOAD"), ("APPEND", "k", "2"), ("GET", "k"))
    client.session.feed(b"".join(map(request, words)))
    store.node.turn([client.session])
    assert [client.reply() for _ in words] == [OK, OK, 2, b"12"]
    assert store.client()("GET", "k") == b"12"


def test_blocked_clients_wait_on_and_are_served(store: LocalStore, client: LocalClient) -> None:
    reader, group = store.client(), store.client()
    client("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    reader.send("XREAD", "BLOCK", 5000, "STREAMS", "s", "$")
    group.send("XREADGROUP", "GROUP", "g", "c", "BLOCK", 5000, "STREAMS", "s", ">")
    client("DEBUG", "RELOAD")
    assert (reader.reply(), group.reply()) == (None, None)
    client("XADD", "s", "7-1", "a", "b")
    expected = [[b"s", [[b"7-1", [b"a", b"b"]]]]]
    assert (reader.reply(), group.reply()) == (expected, expected)

    # And the timeout of a wait is unchanged
    reader.send("XREAD", "BLOCK", 300, "STREAMS", "s", "$")
    client("DEBUG", "RELOAD")
    store.advance(0.3)
    assert reader.reply() is Nil.ARRAY


def test_a_watched_key_counts_as_modified(store: LocalStore, client: LocalClient) -> None:
    client("SET", "k", "1")
    other = store.client()
    client("WATCH", "k")
    other("DEBUG", "RELOAD")
    client("MULTI")
    client("GET", "k")
    assert client("EXEC") is Nil.ARRAY
    client("WATCH", "k")
    client("MULTI")
    client("GET", "k")
    assert client("EXEC") == [b"1"]


def test_a_reload_that_is_not_possible_is_an_error(store: LocalStore, client: LocalClient) -> None:
    assert isinstance(client("DEBUG", "RELOAD", "MERGE"), Failure)
    client("MULTI")
    client("DEBUG", "RELOAD")
    replies = client("EXEC")
    assert isinstance(replies, list)
    assert isinstance(replies[0], Failure)
    config = Config(port=0, appendonly=False, save=(), enable_debug_command="yes")
    kept_nowhere = LocalStore(config=config, journaled=False).client()
    assert isinstance(kept_nowhere("DEBUG", "RELOAD"), Failure)


def test_without_active_expiry_keys_expire_on_access(
    store: LocalStore, client: LocalClient
) -> None:
    client("SET", "mortal", "x", "PX", 100)
    assert client("DEBUG", "SET-ACTIVE-EXPIRE", 0) == OK
    store.advance(1)
    assert b"mortal" in store.node.keyspace.databases[0].values
    assert client("GET", "mortal") is Nil.BULK
    assert client("DEBUG", "SET-ACTIVE-EXPIRE", 1) == OK
    store.advance(0)
    assert b"mortal" not in store.node.keyspace.databases[0].values


def test_a_reload_replays_the_image_and_the_journal_after_it(
    store: LocalStore, client: LocalClient
) -> None:
    # Given an image without a record after it
    client("SET", "before", "1")
    client("BGREWRITEAOF")
    # When the store is loaded again, and once more when there is one
    assert client("DEBUG", "RELOAD") == OK
    client("SET", "after", "2")
    assert client("DEBUG", "RELOAD") == OK
    # Then it has both, writes go on, and a crash loses nothing
    client("SET", "later", "3")
    assert client("MGET", "before", "after", "later") == [b"1", b"2", b"3"]
    store.crash()
    assert store.client()("MGET", "before", "after", "later") == [b"1", b"2", b"3"]


def test_debug_object_shows_when_a_key_was_used_and_expired_keys(
    store: LocalStore, client: LocalClient
) -> None:
    def shown() -> dict[bytes, int]:
        line = client("DEBUG", "OBJECT", "k")
        assert isinstance(line, Simple)
        words = [word.partition(b":") for word in line.text.split()]
        return {name: int(value) for name, _, value in words if name.startswith(b"lru")}

    # Given a key that was used five seconds ago
    client("DEBUG", "SET-ACTIVE-EXPIRE", 0)
    client("SET", "k", "v", "PX", 8000)
    first = shown()
    store.advance(5)
    assert shown() == {b"lru": first[b"lru"], b"lru_seconds_idle": 5}

    # When it is used, then it was used now; when it expires, then it can still be examined
    client("GET", "k")
    assert shown() == {b"lru": first[b"lru"] + 5, b"lru_seconds_idle": 0}
    store.advance(4)
    assert client("GET", "k") is Nil.BULK
    assert shown()[b"lru_seconds_idle"] == 4
