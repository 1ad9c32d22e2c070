"""A write that the journal has no room for is refused before anything changes (design rule 4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from headwater.commands.dispatch import FUNCTIONS
from headwater.commands.table import COMMANDS
from headwater.engine.check import broken_invariants
from headwater.testing.node import LocalClient, LocalStore, Word
from headwater.testing.replies import Failure, Simple
from tests.property.state import picture
from tests.unit.rdb.old_payloads import sealed

WRITES = """
XADD s 9-9 a b
XADD s MAXLEN 1 * a b
XADD s MINID ~ 1-2 DELREF 9-9 a b
XADD new * a b
XADD s IDMP p 1 * a b
XADD once IDMP p 1 * a b
XADD new IDMPAUTO p * a b
XCFGSET s IDMP-MAXSIZE 7
XIDMPRECORD s p 1 1-1
XDEL s 1-1
XDELEX s IDS 1 1-1
XDELEX s DELREF IDS 1 1-1
XTRIM s MAXLEN 1
XTRIM s MAXLEN 0 DELREF
XSETID s 9-9
XGROUP CREATE s new 0
XGROUP CREATE new g 0 MKSTREAM
XGROUP SETID s g 0
XGROUP DESTROY s g
XGROUP CREATECONSUMER s g new
XGROUP DELCONSUMER s g ann
XRETIRE s g idle
XREADGROUP GROUP g ann STREAMS s >
XREADGROUP GROUP g new STREAMS s >
XREADGROUP GROUP g ann NOACK STREAMS s >
XREADGROUP GROUP g ann CLAIM 0 STREAMS s >
XREADGROUP GROUP g ann STREAMS s 0
XREADGROUP GROUP g new BLOCK 0 STREAMS s >
XACK s g 1-1
XACKDEL s g IDS 1 1-1
XNACK s g FAIL IDS 1 1-1
XNACK s g FAIL IDS 1 1-3 FORCE
XRENEW s g ann IDS 1 1-1
XSETTLE s g ann ACK IDS 1 1-1
XSETTLE s g ann FAIL DELAY 5000 IDS 1 1-1
XSETTLE s g ann ACKDEL IDS 1 1-1 TO out * FIELDS 1 a b
XCLAIM s g bob 0 1-1
XCLAIM s g new 99999 1-1
XAUTOCLAIM s g bob 0 0
SET k v
SET string v
HSET h f v
HSET new f v
HSETNX h new v
HMSET h f v
HINCRBY h n 1
HDEL h f
DEL s
UNLINK s string
EXPIRE s 100
EXPIRE s 0
PEXPIRE s 100
EXPIREAT s 33177117420
PEXPIREAT s 1
PERSIST mortal
RENAME s new
RENAME s string
RENAMENX s new
COPY s new
COPY s string REPLACE
COPY l new DB 1
MOVE s 1
SWAPDB 0 1
GETDEL string
GETEX string EX 100
GETEX mortal PERSIST
SETEX k 100 v
PSETEX k 100 v
SETNX k v
MSET k v string w
MSETNX k v new w
MSETEX 2 k v new w EX 100
SET string new IFEQ x
DELEX string
INCREX n EX 100
INCREX n BYFLOAT 0.5 PERSIST
INCR n
INCRBY n 5
DECR n
DECRBY n 5
APPEND string y
SETRANGE string 1 y
LPUSH l x
RPUSH l x
RPUSH new x
LPOP l
RPOP l 2
BLPOP l 0
BRPOP none l 0
LSET l 0 y
LREM l 0 a
LTRIM l 1 0
SADD m x
SADD new x
SREM m a
RESTORE new 0 DUMPED
FLUSHDB
FLUSHALL
""".strip().splitlines()

DUMPED = sealed(b"\x00\x01x")
"""Replaces DUMPED in a line: the payload of a string."""

NOTHING_TO_WRITE = """
XADD none NOMKSTREAM IDMP p 1 * a b
XCFGSET s IDMP-MAXSIZE 100
XDEL s 9-9
XDELEX s DELREF IDS 1 9-9
XDELEX s ACKED IDS 1 1-1
XACKDEL s g IDS 1 9-9
XTRIM none MAXLEN 0
XACK s g 9-9
XNACK s g FAIL IDS 1 9-9
XSETTLE s g ann ACK IDS 1 9-9
XRETIRE s g ann
DEL none
HDEL h none
SET string v NX
EXPIRE none 100
PERSIST string
RENAME s s
RENAMENX s string
COPY s string
COPY none new
MOVE none 1
SWAPDB 0 0
GETDEL none
GETEX string
SETNX string v
MSETNX string v k w
MSETEX 2 string v k w NX
DELEX none
INCREX n UBOUND 0
LPOP none
LPOP l 0
SADD m a
SREM m none
""".strip().splitlines()

READS = """
XRANGE s - +
XLEN s
XREAD STREAMS s 0
XPENDING s g - + 10
XINFO STREAM s FULL
XSPLIT s - + 2
XCOUNTERS s none
GET string
HGETALL h
TTL mortal
KEYS *
SCAN 0
RANDOMKEY
TOUCH s l
OBJECT ENCODING l
OBJECT IDLETIME s
EXPIRETIME mortal
MGET string none
LRANGE l 0 -1
SMEMBERS m
HMGET h f
""".strip().splitlines()


@pytest.fixture
def store() -> Iterator[LocalStore]:
    made = LocalStore()
    client = made.client()
    for line in (
        *(f"XADD s 1-{seq} n {seq}" for seq in range(1, 5)),
        "XADD once IDMP p 1 * a b",
        "XGROUP CREATE s g 0",
        "XGROUP CREATECONSUMER s g idle",
        "XREADGROUP GROUP g ann COUNT 2 STREAMS s >",
        "SET string x",
        "SET mortal x EX 100",
        "HSET h f v",
        "RPUSH l a b",
        "SADD m a b",
    ):
        client(*words(line))
    yield made
    assert broken_invariants(made.node.keyspace) == []


def words(line: str) -> list[Word]:
    """Return the words of a line."""
    return [DUMPED if word == "DUMPED" else word for word in line.split()]


def full(_size: int) -> str:
    return "MISCONF the disk is full"


@pytest.fixture
def client(store: LocalStore) -> LocalClient:
    """A client whose writes do not fit into the journal."""
    made = store.client()
    made.session.call.admission = full
    return made


def refused(reply: object) -> bool:
    return isinstance(reply, Failure) and reply.text.startswith(b"MISCONF ")


@pytest.mark.parametrize("line", WRITES)
def test_a_write_without_room_changes_nothing(
    line: str, store: LocalStore, client: LocalClient
) -> None:
    before = picture(store.node.keyspace)
    assert refused(client(*words(line)))
    assert picture(store.node.keyspace) == before
    assert len(store.node.keyspace.facts.data) == 0


@pytest.mark.parametrize("line", [*NOTHING_TO_WRITE, *READS])
def test_a_command_that_writes_nothing_needs_no_room(line: str, client: LocalClient) -> None:
    assert not isinstance(client(*words(line)), Failure)


@pytest.mark.parametrize("line", WRITES)
def test_a_transaction_with_a_write_is_refused_as_a_whole(
    line: str, store: LocalStore, client: LocalClient
) -> None:
    before = picture(store.node.keyspace)
    assert client("MULTI") == Simple(b"OK")
    client("XLEN", "s")
    client(*words(line))
    reply = client("EXEC")
    assert isinstance(reply, Failure)
    assert reply.text.startswith(b"EXECABORT Transaction discarded because of: MISCONF ")
    assert picture(store.node.keyspace) == before


def test_a_transaction_is_refused_as_a_whole_unless_all_of_it_fits(
    store: LocalStore, client: LocalClient
) -> None:
    # Given room for the first write of a transaction, but not for a later large one
    client.session.call.admission = lambda size: None if size < 2000 else "MISCONF the disk is full"
    client("MULTI")
    client("SET", "a", "1")
    client("SET", "b", "x" * 5000)
    client("SET", "c", "3")
    # Then none of it is done, because each command may rely on the others
    reply = client("EXEC")
    assert isinstance(reply, Failure)
    assert reply.text.startswith(b"EXECABORT Transaction discarded because of: MISCONF ")
    assert client("EXISTS", "a", "b", "c") == 0


@pytest.mark.parametrize("count", [1, 7, 300])
def test_the_room_that_exec_requests_suffices_for_all_its_commands(
    count: int, store: LocalStore, client: LocalClient
) -> None:
    # Given a journal with exactly the room that EXEC requests
    asked: list[int] = []

    def admission(size: int) -> str | None:
        asked.append(size)
        return None if size <= asked[0] else "MISCONF the disk is full"

    client("MULTI")
    for number in range(count):
        client("XADD", "k" * 50, "MAXLEN", "~", "5", "*", "", "", "f", "x" * (number % 40))
    client("HSET", "m" * 200, "position", str(count), "epoch", "7")
    client("UNLINK", "stage")
    client("INCREX", "n" * 200, "EX", 100)
    client("MSETEX", 2, "a" * 200, "v", "b" * 200, "w", "EX", 100)
    client("HDEL", "m" * 200, "epoch")
    client.session.call.admission = admission

    replies = client("EXEC")

    assert isinstance(replies, list)
    assert not any(refused(reply) for reply in replies)


def test_every_write_command_is_tested() -> None:
    tried = {" ".join(line.split()[:2]) for line in WRITES} | {line.split()[0] for line in WRITES}
    for name in map(bytes.decode, FUNCTIONS):
        container, _, sub = name.partition("|")
        row = COMMANDS[container.encode()]
        row = row.subcommands[sub.encode()] if sub else row
        assert not row.writes or name.replace("|", " ") in tried, name


def test_a_blocked_reader_needs_no_room(store: LocalStore, client: LocalClient) -> None:
    client.send("XREAD", "BLOCK", "0", "STREAMS", "s", "$")
    assert client.reply() is None
    assert store.client()("XADD", "s", "9-9", "a", "b") == b"9-9"
    assert client.reply() == [[b"s", [[b"9-9", [b"a", b"b"]]]]]


def test_a_blocked_claiming_reader_waits_on_while_there_is_no_room(
    store: LocalStore, client: LocalClient
) -> None:
    # Given a blocked member of the group, and a full journal
    store.client()("XREADGROUP", "GROUP", "g", "ann", "STREAMS", "s", ">")
    line = "XREADGROUP GROUP g ann BLOCK 0 CLAIM 5000 STREAMS s >"
    client.send(*words(line))
    assert client.reply() is None
    # When its recheck is due, its key is signalled, and entries are added
    line = "XSETTLE s g ann FAIL DELAY 1000 IDS 1 1-1"
    store.client()(*words(line))
    store.advance(1)
    store.advance(5)
    store.client()("XADD", "s", "9-9", "a", "b")
    assert client.reply() is None
    # Then it gets all of them once there is room
    client.session.call.admission = lambda _size: None
    store.advance(1)
    reply: Any = client.reply()
    assert [entry[0] for entry in reply[0][1]] == [b"1-1", b"1-2", b"1-3", b"1-4", b"9-9"]


def test_a_claim_requests_room_only_for_claimed_entries(store: LocalStore) -> None:
    """Not for everything that is pending: most of it has not been idle for long enough."""
    # Given thousands of pending entries, one of them idle for long enough
    client = store.client()
    for _ in range(3000):
        client("XADD", "s", "*", "a", "b")
    client("XREADGROUP", "GROUP", "g", "ann", "STREAMS", "s", ">")
    client("XCLAIM", "s", "g", "ann", "0", "1-3", "IDLE", "60000", "JUSTID")
    asked: list[int] = []
    client.session.call.admission = asked.append
    # When it is claimed, without a COUNT
    line = "XREADGROUP GROUP g bob CLAIM 60000 STREAMS s >"
    reply = client(*words(line))
    # Then room is requested for one record
    assert reply == [[b"s", [[b"1-3", [b"n", b"3"], 60000, 1]]]]
    assert max(asked) < 1000
