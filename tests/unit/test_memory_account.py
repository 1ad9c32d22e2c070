"""The account of a store's memory follows every change, and is empty when nothing is left."""

from __future__ import annotations

import gc
import random
from collections import deque

import pytest

from headwater.engine.garbage import free
from headwater.engine.keyspace import Keyspace
from headwater.engine.memory_account import container_bytes, text_bytes
from headwater.engine.memory_totals import account_faults, book_all, state_bytes
from headwater.testing.node import LocalClient, LocalStore, Word

SCENE = """
SET k v
SET k another
APPEND k more
SET k short
HSET h f v g w f longer-than-before
HSET h f v
HDEL h g nosuch
RPUSH l a b c
LPUSH l d
LPOP l
RPOP l 2
SADD m a b b c
SREM m b nosuch
XADD s 1-1 f v
XADD s 2-1 f v g w
XADD s 3-1 f v
XADD s IDMP p i1 * f v
XADD s IDMP p i2 * f v
XGROUP CREATE s g 0
XGROUP CREATECONSUMER s g idle
XREADGROUP GROUP g c COUNT 2 STREAMS s >
XREADGROUP GROUP g d STREAMS s >
XNACK s g FAIL IDS 1 1-1
XSETTLE s g d FAIL DELAY 5000 IDS 1 3-1
XCLAIM s g d 0 2-1
COPY s t
COPY h h2
RENAME l l2
MOVE k 3
SWAPDB 0 3
SELECT 3
XACK s g 2-1
XDEL s 2-1
XTRIM s MAXLEN 2
RENAME t s
XGROUP DELCONSUMER s g d
XCFGSET s IDMP-MAXSIZE 7
"""


def check(keyspace: Keyspace) -> None:
    """Check the account against a count of everything."""
    assert account_faults(keyspace) == []
    memory = keyspace.memory
    before = (memory.nodes, memory.pending, memory.groups, memory.idempotency)
    book_all(keyspace)
    assert (memory.nodes, memory.pending, memory.groups, memory.idempotency) == before
    expected = 0
    for database in keyspace.databases:
        for key, value in database.values.items():
            expected += text_bytes(key)
            if isinstance(value, bytes):
                expected += text_bytes(value)
            elif isinstance(value, (dict, set, deque)):
                expected += container_bytes(value)
    assert memory.values == expected


def run(client: LocalClient, keyspace: Keyspace) -> None:
    for line in SCENE.strip().splitlines():
        client(*line.split())
        check(keyspace)


@pytest.mark.parametrize("end", ["FLUSHALL", "FLUSHDB", "UNLINK", "DUMP"])
def test_every_change_is_accounted_and_nothing_remains(end: str) -> None:
    # Given a store in which each kind of change was made and accounted
    store = LocalStore()
    client, keyspace = store.client(), store.node.keyspace
    run(client, keyspace)
    assert min(
        keyspace.memory.nodes, keyspace.memory.pending, keyspace.memory.groups, keyspace.memory.values
    ) > 0  # fmt: skip
    # When everything is deleted
    if end == "DUMP":
        payload = client("DUMP", "s")
        assert isinstance(payload, bytes)
        client("RESTORE", "restored", 0, payload)
        check(keyspace)
    for index in (0, 3):
        client("SELECT", index)
        names: list[Word] = [name for name in client("KEYS", "*") if isinstance(name, bytes)]  # type: ignore[union-attr]
        if end in {"UNLINK", "DUMP"} and names:
            client("UNLINK", *names)
        else:
            client(end.removeprefix("UNLINK") or "FLUSHALL")
        check(keyspace)
    free(keyspace.garbage, 100_000)
    gc.collect()  # streams and groups refer to each other
    # Then the account is empty
    assert keyspace.memory.total() == 0


def test_a_replayed_store_has_the_same_account() -> None:
    # Given a store with content
    store = LocalStore()
    run(store.client(), store.node.keyspace)
    before = state_bytes(store.node.keyspace)
    # When it is opened again
    store.crash()
    # Then its account is the same, but for the reserve of arrays and the times of last use
    check(store.node.keyspace)
    assert state_bytes(store.node.keyspace) == pytest.approx(before, rel=0.1)


def test_random_changes_of_containers_are_accounted() -> None:
    store, rng = LocalStore(journaled=False), random.Random(5)
    client, keyspace = store.client(), store.node.keyspace
    for _ in range(1500):
        key = rng.choice("abcd")
        words = [bytes(rng.randrange(60)) + b"%d" % rng.randrange(30) for _ in range(6)]
        name = rng.choice(["HSET", "HDEL", "RPUSH", "LPUSH", "RPOP", "SADD", "SREM", "SET", "DEL"])
        if name == "SET":
            words = words[:1]
        elif name == "DEL":
            words = []
        elif name == "RPOP":
            words = [b"2"]
        client(name, key, *words)
    check(keyspace)


def test_a_large_container_is_estimated_from_its_first_members() -> None:
    members = {b"member:%d" % number for number in range(50_000)}
    exact = container_bytes(set()) + 0
    assert exact < container_bytes(members)
    estimated = container_bytes(members) / (sum(map(text_bytes, members)) + 2**21)
    assert estimated == pytest.approx(1.0, rel=0.05)


def test_a_restored_value_is_accounted_where_it_is_restored() -> None:
    # Given the payloads of one store
    store = LocalStore()
    run(store.client(), store.node.keyspace)
    client = store.client()
    client("SELECT", 3)
    names = [name for name in client("KEYS", "*") if isinstance(name, bytes)]  # type: ignore[union-attr]
    payloads = {name: client("DUMP", name) for name in names}
    # When another store restores them, each twice
    other = LocalStore()
    receiver = other.client()
    for name, payload in payloads.items():
        assert isinstance(payload, bytes)
        receiver("RESTORE", name, 0, payload)
        receiver("RESTORE", name, 0, payload, "REPLACE")
        check(other.node.keyspace)
    # Then all of them are in its account
    assert other.node.keyspace.memory.values > 0
    assert other.node.keyspace.memory.pending > 0
