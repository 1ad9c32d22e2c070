"""The account of a store's memory follows every change, and is empty when nothing is left."""

from __future__ import annotations

import gc
import random
from collections import deque
from collections.abc import Sequence

import pytest

from headwater.config.config import Config
from headwater.engine.accounts.memory_account import container_bytes, text_bytes
from headwater.engine.keyspace.garbage import free
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.engine.keyspace.memory_totals import account_faults, book_all, state_bytes
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


@pytest.mark.slow
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


def used(store: LocalStore) -> int:
    return store.node.services.memory.used()


MANY = range(300)
Commands = Sequence[Sequence[Word]]
HELD: dict[str, tuple[Commands, Commands]] = {
    "names of groups": (
        [["XGROUP", "CREATE", "s", "g" * 200 + str(n), "0", "MKSTREAM"] for n in MANY],
        [["DEL", "s"]],
    ),
    "names of consumers": (
        [["XGROUP", "CREATE", "s", "g", "0", "MKSTREAM"]]
        + [["XGROUP", "CREATECONSUMER", "s", "g", "c" * 200 + str(n)] for n in MANY],
        [["XGROUP", "DELCONSUMER", "s", "g", "c" * 200 + str(n)] for n in MANY],
    ),
    "names of producers": (
        [["XADD", "s", "IDMP", "p" * 200 + str(n), "i", "*", "f", "v"] for n in MANY],
        [["DEL", "s"]],
    ),
    "watched keys": ([["WATCH", "k" * 200 + str(n)] for n in MANY], [["UNWATCH"]]),
    "watched keys, EXEC": (
        [["WATCH", "k" * 200 + str(n)] for n in MANY], [["MULTI"], ["EXEC"]],
    ),
    "subscriptions": (
        [[name, "n" * 200 + str(n)] for n in MANY for name in ("SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE")],
        [["UNSUBSCRIBE"], ["PUNSUBSCRIBE"], ["SUNSUBSCRIBE"]],
    ),
    "subscriptions, RESET": ([["PSUBSCRIBE", "n" * 200 + str(n)] for n in MANY], [["RESET"]]),
    "a queue": ([["MULTI"], *(["SET", f"k{n}", "v" * 200] for n in MANY)], [["DISCARD"]]),
    "a queue, RESET": ([["MULTI"], *(["SET", f"k{n}", "v" * 200] for n in MANY)], [["RESET"]]),
    "users": (
        [["ACL", "SETUSER", f"u{n}", "~k*", "&c", ">p"] for n in MANY],
        [["ACL", "DELUSER", *(f"u{n}" for n in MANY)]],
    ),
    "a user": (
        [["ACL", "SETUSER", "u", f"~k{n}", f"&c{n}", f">p{n}", f"(~s{n} +get)"] for n in MANY],
        [["ACL", "SETUSER", "u", "reset"], ["ACL", "DELUSER", "u"]],
    ),
    "the slow log": (
        [["CONFIG", "SET", "slowlog-log-slower-than", "0", "slowlog-max-len", "1000"]]
        + [["GET", "k" * 120 + str(n)] for n in MANY],
        [["CONFIG", "SET", "slowlog-log-slower-than", "-1"], ["SLOWLOG", "RESET"]],
    ),
    "names of the client": (
        [["CLIENT", "SETNAME", "n" * 60_000], ["CLIENT", "SETINFO", "LIB-NAME", "n" * 60_000]],
        [["CLIENT", "SETNAME", ""], ["CLIENT", "SETINFO", "LIB-NAME", ""]],
    ),
    "stale expiries": (
        [["SET", "k" * 200 + str(n), "v", "EX", "1000"] for n in MANY]
        + [["EXPIRE", "k" * 200 + str(n), "2000"] for n in MANY],
        [["DEL", "k" * 200 + str(n)] for n in MANY],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", HELD)
def test_what_a_client_makes_grow_is_accounted_and_taken_back(what: str) -> None:
    # Given a store that has run each of the commands once
    store = LocalStore(config=Config(port=0, slowlog_log_slower_than=-1), journaled=False)
    client, (growing, ending) = store.client(), HELD[what]
    for words in (*growing, *ending):
        client(*words)
    before = used(store)
    # When a client makes something grow
    for words in growing:
        client(*words)
    grown = used(store) - before
    # Then the account has it, and has nothing of it when it is gone
    assert grown > 50_000
    for words in ending:
        client(*words)
    assert used(store) - before < grown / 20


@pytest.mark.parametrize(
    "what", ["watched keys", "subscriptions", "a queue", "names of the client"]
)
def test_a_client_that_leaves_takes_what_it_held_out_of_the_account(what: str) -> None:
    store = LocalStore(config=Config(port=0, slowlog_log_slower_than=-1), journaled=False)
    before = used(store)
    client = store.client()
    for words in HELD[what][0]:
        client(*words)
    assert used(store) - before > 50_000
    store.node.close_session(client.session)
    assert used(store) - before < 5_000
    assert store.node.clients.memory.held_bytes == 0


@pytest.mark.parametrize("ended", ["served", "unblocked", "left"])
def test_what_a_blocked_client_waits_for_is_accounted_and_taken_back(ended: str) -> None:
    # Given a store and a client that waits for many keys
    store = LocalStore(journaled=False)
    admin, reader = store.client(), store.client()
    before = used(store)
    reader.send("XREAD", "BLOCK", 3_600_000, "STREAMS", *(f"key{n}" for n in MANY), *["0"] * 300)
    assert used(store) - before > 50_000
    # When its wait ends
    if ended == "served":
        admin("XADD", "key7", "1-1", "f", "v")
    elif ended == "unblocked":
        admin("CLIENT", "UNBLOCK", reader.session.id)
    else:
        store.node.close_session(reader.session)
    # Then nothing but the capacity of its buffers is in the account
    assert used(store) - before < 20_000
    assert store.node.clients.memory.held_bytes == 0


def test_keys_that_a_restarted_store_uses_have_their_second_names_in_the_account() -> None:
    # Given a store that was opened with keys of long names
    store = LocalStore()
    names = ["k" * 200 + str(n) for n in range(300)]
    client = store.client()
    for name in names:
        client("SET", name, "value")
    store.crash()
    client, before = store.client(), used(store)
    # When each of them is used, for which its name is stored again
    for name in names:
        client("GET", name)
    # Then the names are in the account, until their keys are gone
    assert used(store) - before > 300 * 240
    client("DEL", *names)
    assert used(store) < before


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
