"""What a write command puts into the journal is in proportion to what it changes, not to the value that it changes.

Each row has the most bytes that it may write, and is compared with what Redis writes to its append-only file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import redis

from headwater.testing.node import LocalStore, Word
from tests import peers
from tests.crash.journal_tools import WatchedJournal, command_bytes

MANY = 100_000
STRING_BYTES = 10_000_000
MS = 1_700_000_000_000
IDS = [f"{MS + number}-1" for number in range(50_000, 51_000)]
Answer = Callable[..., Any]


class Row(NamedTuple):
    most: int
    """Bytes of the journal, with the header of the record group."""
    words: tuple[Word, ...]
    why_more: str = ""
    """Why it may write more than twice what Redis writes."""


NO_PEER = "Redis 8.2 does not have the command"
FEW, PER_ID = 150, 40
ROWS = [
    Row(FEW, ("APPEND", "string", "x")),
    Row(FEW, ("SETRANGE", "string", 5_000_000, "x")),
    Row(FEW, ("SETRANGE", "none", STRING_BYTES, "x")),
    Row(FEW, ("GETEX", "string", "EX", 1000)),
    Row(FEW, ("EXPIRE", "string", 1000)),
    Row(FEW, ("PERSIST", "expiring")),
    Row(FEW, ("RENAME", "string", "renamed")),
    Row(FEW, ("COPY", "string", "copied")),
    Row(FEW, ("MOVE", "string", 5)),
    Row(FEW, ("GETDEL", "string")),
    Row(FEW, ("SET", "string", "x", "KEEPTTL")),
    Row(FEW, ("EVAL", "return redis.call('APPEND', KEYS[1], 'x')", 1, "string")),
    Row(FEW, ("LSET", "list", MANY // 2, "x")),
    Row(FEW, ("LREM", "list", 1, "e50001")),
    Row(FEW, ("LREM", "list", -1, "e50001")),
    Row(FEW, ("LREM", "list", 0, "same")),
    Row(FEW, ("LREM", "list", -30_000, "same")),
    Row(FEW, ("LPUSH", "list", "x")),
    Row(FEW, ("RPUSH", "list", "x")),
    Row(FEW, ("LPOP", "list", 1000)),
    Row(FEW, ("BRPOP", "list", 0)),
    Row(2 * FEW, ("LTRIM", "list", 50_000, 50_010)),
    Row(2 * FEW, ("LTRIM", "list", 1, 0)),
    Row(FEW, ("RENAME", "list", "renamed")),
    Row(FEW, ("HSET", "hash", "f50000", "x")),
    Row(FEW, ("HSETNX", "hash", "new", "x")),
    Row(FEW, ("HINCRBY", "hash", "f50000", 1)),
    Row(FEW, ("HDEL", "hash", "f50000")),
    Row(FEW, ("COPY", "hash", "copied")),
    Row(FEW, ("SADD", "set", "x")),
    Row(FEW, ("SREM", "set", "m50000")),
    Row(FEW, ("DEL", "set")),
    Row(2 * FEW, ("XADD", "stream", f"{MS + 200_000}-1", "n", 1)),
    Row(2 * FEW, ("XADD", "stream", "MAXLEN", "=", 10, f"{MS + 200_000}-1", "n", 1)),
    Row(2 * FEW, ("XADD", "stream", "MINID", "~", MS + 90_000, f"{MS + 200_000}-1", "n", 1)),
    Row(FEW, ("XTRIM", "stream", "MAXLEN", 10)),
    Row(FEW, ("XDEL", "stream", IDS[0])),
    Row(FEW + 1000 * PER_ID, ("XDEL", "stream", *IDS)),
    Row(FEW + 1000 * PER_ID, ("XDELEX", "stream", "DELREF", "IDS", 1000, *IDS)),
    Row(FEW, ("XSETID", "stream", f"{MS + 300_000}-1")),
    Row(FEW, ("COPY", "stream", "copied")),
    Row(FEW, ("XGROUP", "CREATE", "stream", "new", 0)),
    Row(FEW, ("XGROUP", "SETID", "stream", "g", 0)),
    Row(FEW, ("XGROUP", "DELCONSUMER", "stream", "g", "c")),
    Row(FEW, ("XGROUP", "DESTROY", "stream", "g")),
    Row(FEW, ("XACK", "stream", "g", IDS[0])),
    Row(FEW + 1000 * PER_ID, ("XACK", "stream", "g", *IDS)),
    Row(FEW + 1000 * PER_ID, ("XACKDEL", "stream", "g", "IDS", 1000, *IDS)),
    Row(2 * FEW, ("XCLAIM", "stream", "g", "d", 0, IDS[0])),
    Row(2 * FEW + 1000 * PER_ID, ("XCLAIM", "stream", "g", "d", 0, *IDS)),
    Row(2 * FEW + 1000 * PER_ID, ("XAUTOCLAIM", "stream", "g", "d", 0, 0, "COUNT", 1000)),
    Row(2 * FEW, ("XREADGROUP", "GROUP", "h", "d", "COUNT", 1000, "STREAMS", "stream", ">")),
    Row(
        FEW + 1000 * PER_ID,
        ("XREADGROUP", "GROUP", "g", "c", "COUNT", 1000, "STREAMS", "stream", 0),
        "Redis loses the new times and counts of deliveries when it ends",
    ),
    Row(2 * FEW + 1000 * PER_ID, ("XNACK", "stream", "g", "FAIL", "IDS", 1000, *IDS), NO_PEER),
    Row(
        2 * FEW + 1000 * PER_ID,
        ("XSETTLE", "stream", "g", "c", "FAIL", "DELAY", 1000, "IDS", 1000, *IDS),
        NO_PEER,
    ),
    Row(2 * FEW + 1000 * PER_ID, ("XRENEW", "stream", "g", "c", "IDS", 1000, *IDS), NO_PEER),
    Row(FEW, ("XRETIRE", "stream", "h", "idle"), NO_PEER),
    Row(FEW, ("XCFGSET", "stream", "IDMP-MAXSIZE", 5), NO_PEER),
    Row(FEW, ("XIDMPRECORD", "stream", "p", "i", IDS[0]), NO_PEER),
    Row(FEW, ("SWAPDB", 0, 4)),
    Row(FEW, ("FLUSHDB",)),
]


def _fill(send: Answer) -> None:
    """Create a large value of each type in database 1."""
    send("SELECT", 1)
    send("SET", "string", b"s" * STRING_BYTES)
    send("SET", "expiring", b"s" * STRING_BYTES, "EX", 100_000)
    send("RPUSH", "list", *(f"e{one}" if one % 2 else "same" for one in range(MANY)))
    send("HSET", "hash", *(word for one in range(MANY) for word in (f"f{one}", one)))
    send("SADD", "set", *(f"m{one}" for one in range(MANY)))
    script = "for n = {}, {} do redis.call('XADD', KEYS[1], string.format('%.0f-1', n), 'n', n) end"
    send("EVAL", script.format(MS, MS + MANY), 1, "stream")
    for group in ("g", "h"):
        send("XGROUP", "CREATE", "stream", group, 0)
    send("XGROUP", "CREATECONSUMER", "stream", "h", "idle")
    send("XREADGROUP", "GROUP", "g", "c", "COUNT", MANY, "STREAMS", "stream", ">")
    send("SELECT", 0)


def _give(send: Answer, words: tuple[Word, ...]) -> None:
    """Copy the large values that a command names into database 0, which is emptied."""
    send("FLUSHDB")
    send("SELECT", 1)
    for key in ("string", "expiring", "list", "hash", "set", "stream"):
        if key in words:
            send("COPY", key, key, "DB", 0)
    send("SELECT", 0)


@pytest.fixture(scope="module")
def ours() -> Iterator[Callable[[tuple[Word, ...]], int]]:
    """Measures a command on large values: the bytes that it writes to the journal."""
    store = LocalStore()
    client = store.client()
    _fill(client)
    written = 0
    journal = store.node.records.journal
    assert journal is not None

    def count(buffer: bytearray, _sync: bool) -> None:
        nonlocal written
        written += command_bytes(buffer, journal.seed)

    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(store.node.records, "journal", WatchedJournal(journal, count))

        def measure(words: tuple[Word, ...]) -> int:
            nonlocal written
            _give(client, words)
            written = 0
            client(*words)
            return written

        yield measure


@pytest.fixture(scope="module")
def theirs() -> Iterator[Callable[[tuple[Word, ...]], int]]:
    """Measures a command on Redis: the bytes that it writes to the append-only file."""
    options = ("--appendonly", "yes", "--appendfsync", "no", "--auto-aof-rewrite-percentage", "0")
    with peers.running("redis-8.2", *options) as server:
        with redis.Redis.from_url(server.url, socket_timeout=60) as client:
            connection = client.connection_pool.get_connection()

            def send(*words: Any) -> Any:
                connection.send_command(*words)
                return connection.read_response()

            def size() -> int:
                return int(client.info("persistence")["aof_current_size"])

            def measure(words: tuple[Word, ...]) -> int:
                _give(send, words)
                before = size()
                send(*words)
                return size() - before

            _fill(send)
            yield measure


NAMES = [" ".join(map(str, row.words[:5])) for row in ROWS]


@pytest.mark.slow
@pytest.mark.peer
@pytest.mark.xdist_group("large values")
@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_the_journal_grows_with_the_change_and_not_with_the_value(
    row: Row,
    ours: Callable[[tuple[Word, ...]], int],
    request: pytest.FixtureRequest,
) -> None:
    # Given large values, when a command changes a little of one
    written = ours(row.words)
    # Then what it writes is bounded, and at most twice what Redis writes plus names and headers
    assert 0 < written <= row.most
    if not row.why_more:
        aof = request.getfixturevalue("theirs")(row.words)
        assert written <= 2 * (aof + FEW), f"{written} bytes, Redis {aof}"
