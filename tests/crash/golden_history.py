"""Writes the golden journals: a history with every kind of fact, and the resulting state.

    python -m tests.crash.golden_history tests/crash/golden/format-N

creates two data directories in the given one, with the current code:

    stopped/   after a clean stop
    killed/    the process was killed, and the last record is torn in the middle

and ``state.txt``, the state of both: it does not include the torn record, which set a key. Files of a
released format are never written again: `tests/crash/test_golden.py` reads them with every later version.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from pprint import pformat
from typing import Any

from headwater.config.config import Config
from headwater.engine.facts import FactBuffer
from headwater.engine.keyspace import Keyspace
from headwater.engine.replay import Replay
from headwater.journal.journal import Journal
from headwater.server.turn.node import Node
from headwater.testing.files import CrashableFiles
from headwater.testing.node import LocalStore, Word
from headwater.testing.replies import Failure, Reply
from tests.property.state import picture

SEED = 0x5EED
FILE_BYTES = 2048


class GoldenStore(LocalStore):
    """A store whose journal has small files and a fixed seed."""

    def _journal(self, files: CrashableFiles) -> Journal:
        return Journal.open(
            files, policy="always", file_bytes=FILE_BYTES, clock=self.clock, seed=SEED
        )


Client = Callable[..., Reply]


def play(store: LocalStore) -> None:
    """Run the history: every kind of fact at least once, with some result of each remaining."""
    connection = store.client()

    def client(*words: Word) -> Reply:
        reply = connection(*words)
        assert not isinstance(reply, Failure), (words, reply)
        return reply

    client("SELECT", 3)
    client("SET", "gone", "x")
    client("FLUSHDB")
    client("SET", "gone", "x")
    client("FLUSHALL")
    client("SELECT", 0)
    _play_values(client)
    _play_streams(store, client)
    _play_groups(store, client)
    _play_producers(store, client)
    client("SELECT", 4)
    client("SET", "word", "in database 4, then 5")
    client("SWAPDB", 4, 5)
    client("SELECT", 0)


def _play_values(client: Client) -> None:
    client("SET", "word", b"\x00tea\r\n\xff")
    client("SET", "mortal", "x", "PXAT", 4_000_000_000_000)
    client("SET", "deleted", "x")
    client("DEL", "deleted")
    client("HSET", "hash", "f", "v", "g", "w")
    client("HDEL", "hash", "g")
    client("RPUSH", "list", "a", "b", "c", "d")
    client("LPUSH", "list", "z")
    client("RPOP", "list")
    client("SADD", "set", "a", "b", "c")
    client("SREM", "set", "b")
    client("RENAME", "set", "renamed")


def _play_streams(store: LocalStore, client: Client) -> None:
    for number in range(1, 31):
        client("XADD", "s", f"{number}-1", "n", number, "pad", "x" * (number * 7 % 40))
    client("XDEL", "s", "3-1", "17-1")
    client("XTRIM", "s", "MINID", "3-0")
    client("XADD", "ids", "5-1", "a", "b")
    client("XSETID", "ids", "9-0", "ENTRIESADDED", 4, "MAXDELETEDID", "5-0")
    client("MULTI")
    client("XADD", "one", "1-1", "in", "a transaction")
    client("SET", "two", "of it")
    client("EXEC")
    store.advance(1)


def _play_groups(store: LocalStore, client: Client) -> None:
    for group in ("g", "h", "gone"):
        client("XGROUP", "CREATE", "s", group, "0")
    client("XGROUP", "DESTROY", "s", "gone")
    client("XGROUP", "CREATECONSUMER", "s", "h", "leaves")
    client("XGROUP", "DELCONSUMER", "s", "h", "leaves")
    client("XGROUP", "SETID", "s", "h", "20-1", "ENTRIESREAD", 18)
    for consumer in ("ann", "bob"):
        client("XREADGROUP", "GROUP", "g", consumer, "COUNT", 6, "STREAMS", "s", ">")
        store.advance(2)
    client("XACK", "s", "g", "4-1")
    client("XNACK", "s", "g", "FAIL", "IDS", 1, "5-1")
    client("XSETTLE", "s", "g", "ann", "FAIL", "DELAY", 1000, "IDS", 1, "6-1")
    client("XSETTLE", "s", "g", "ann", "FAIL", "DELAY", 3_600_000, "IDS", 1, "7-1")
    store.advance(2)
    client("XCLAIM", "s", "g", "bob", 0, "8-1")
    client("XREADGROUP", "GROUP", "h", "eve", "STREAMS", "s", 0)
    store.advance(2)
    client("COPY", "s", "copied", "DB", 2)


def _play_producers(store: LocalStore, client: Client) -> None:
    client("XADD", "short", "*", "a", "b")
    client("XCFGSET", "short", "IDMP-DURATION", 1)
    client("XADD", "short", "IDMP", "p", "expires", "*", "a", "b")
    client("XADD", "made", "IDMP", "p", "once", "*", "a", "b")
    client("XADD", "made", "IDMP", "p", "once", "*", "a", "b")
    client("XCFGSET", "made", "IDMP-DURATION", 60, "IDMP-MAXSIZE", 2)
    for iid in ("second", "third", "fourth"):
        client("XADD", "made", "IDMP", "p", iid, "*", "a", "b")
    client("XADD", "made", "IDMP", "q", "other", "*", "a", "b")
    client("XADD", "made", "IDMP", "q", "other", "*", "a", "b")
    client("CONFIG", "SET", "dump-format", "8.8")
    dumped = client("DUMP", "made")
    assert isinstance(dumped, bytes)
    client("RESTORE", "restored", 0, dumped)
    store.advance(3)


def kinds_in(files: CrashableFiles) -> set[int]:
    """Return the kinds of all facts in these files, found by applying them."""
    found: set[int] = set()
    replay = Replay(Keyspace(FactBuffer(muted=True)))
    journal = Journal.open(files, policy="always", file_bytes=FILE_BYTES)
    for group in journal.replay():
        replay.begin(group.facts, group.now_ms)
        while (kind := replay.step()) >= 0:
            found.add(kind)
    journal.close()
    return found


def state_of(node: Node) -> str:
    """Return the state of a node as readable text."""
    return pformat(_ordered(picture(node.keyspace)), width=100) + "\n"


def _ordered(value: Any) -> Any:
    """Convert sets to sorted lists, because the order of a set differs between processes."""
    if isinstance(value, dict):
        return {key: _ordered(one) for key, one in value.items()}
    if isinstance(value, tuple):
        return tuple(_ordered(one) for one in value)
    return sorted(value) if isinstance(value, set) else value


def loaded(directory: Path) -> CrashableFiles:
    """Return the files of a data directory, in memory."""
    files = CrashableFiles()
    for path in sorted(directory.iterdir()):
        files.create(path.name, 0)
        files.corrupt(path.name, 0, path.read_bytes())
    return files


def write(directory: Path) -> None:
    """Write the golden files in the current format."""
    for name in ("stopped", "killed"):
        store = GoldenStore(config=Config(port=0))
        play(store)
        files, journal = store.files, store.node.journal
        assert files is not None
        assert journal is not None
        if name == "killed":
            store.client()("SET", "torn", "x" * 60)
            files.corrupt(journal._writer.name, journal._writer.end - 30, bytes(30))
        else:
            (directory / "state.txt").write_text(state_of(store.node))
            store.node.close()
        (directory / name).mkdir()
        for file in files.names():
            (directory / name / file).write_bytes(bytes(files.content(file).data))


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    write(target)
