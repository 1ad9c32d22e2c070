"""Writes the golden journals: a history with every kind of fact, and the resulting state.

    python -m tests.crash.golden_history tests/crash/golden/format-N

creates two data directories in the given one, with the current code:

    stopped/   after a clean stop
    killed/    the process was killed, and the last record is torn in the middle

each with an image of one play of the history, segments with most of its entries, and a journal of another play (only
the journal in formats 1 and 2), and ``state.txt``, the state of both: it does not include the torn record, which set a key. Files of a
released format are never written again: `tests/crash/test_golden.py` reads them with every later version.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from pprint import pformat
from typing import Any

import pytest

from headwater.config.config import Config
from headwater.engine.facts.facts import FactBuffer
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.engine.replay.replay import Replay
from headwater.journal.format.batches import groups_of
from headwater.journal.images.images import read_image
from headwater.journal.log.journal import Journal
from headwater.persistence.source import SegmentSource
from headwater.server.turn.node import Node
from headwater.testing.files import CrashableFiles
from headwater.testing.node import LocalStore, Word
from headwater.testing.replies import Failure, Reply
from tests.blocks import tiny_blocks
from tests.property.state import picture

SEED = 0x5EED
FILE_BYTES = 2048
SEGMENT_BYTES = 4096


class GoldenStore(LocalStore):
    """A store with small files and a fixed seed, whose entries go to disk as soon as they may."""

    def __init__(self) -> None:
        super().__init__(config=Config(port=0, stream_compression="zlib"), cold=True)

    def _open(self) -> Node:
        node = super()._open()
        assert node.services.storage.segments is not None
        node.services.storage.segments.writer._segment_bytes = SEGMENT_BYTES
        return node

    def _journal(self, files: CrashableFiles) -> Journal:
        return Journal.open(
            files, policy="always", file_bytes=FILE_BYTES, clock=self.clock, seed=SEED
        )


Client = Callable[..., Reply]


def play(store: LocalStore, *, again: bool = False) -> None:
    """Run the history: every kind of fact at least once, with some result of each remaining. ``again`` keeps
    the databases 9 and 10, so it omits FLUSHALL."""
    connection = store.client()

    def client(*words: Word) -> Reply:
        reply = connection(*words)
        assert not isinstance(reply, Failure), (words, reply)
        return reply

    client("SELECT", 3)
    client("SET", "gone", "x")
    client("FLUSHDB")
    client("SET", "gone", "x")
    client("DEL" if again else "FLUSHALL", *(["gone"] if again else []))
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
    client("SET", "written", "green")
    client("APPEND", "written", "tea")
    client("SETRANGE", "written", 10, "x")
    client("RPUSH", "changed", "a", "b", "a", "c", "a")
    client("LSET", "changed", 3, "d")
    client("LREM", "changed", -2, "a")
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
    """Return the kinds of all facts in these files, found by applying them: of the image, then of the journal."""
    found: set[int] = set()
    journal = Journal.open(files, policy="always", file_bytes=FILE_BYTES)
    keyspace = Keyspace(FactBuffer(muted=True))
    keyspace.sealing.store_in(SegmentSource(files, journal.seed), storing=False)
    replay, image = Replay(keyspace), journal.image
    batches = [] if image is None else [*read_image(files, image, journal.seed)]
    for group in itertools.chain(
        *(batch.groups() for batch in batches), groups_of(journal.batches())
    ):
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


def played() -> GoldenStore:
    """Return a store that has run the history, was checkpointed, and has run it again."""
    store = GoldenStore()
    play(store)
    client = store.client()
    for old, new in ((0, 9), (2, 10)):
        client("SWAPDB", old, new)
    client("SELECT", 9)
    client("XCLAIM", "s", "g", "bob", 0, "9-1", "RETRYCOUNT", 2**33)
    store.cold = False  # of these entries some are compressed, and some are not, in memory
    for number in range(31, 50):
        client("CONFIG", "SET", "stream-hot-bytes", 0 if number < 40 else 1_000_000)
        client("XADD", "s", f"{number}-1", "n", number, "pad", "y" * number)
    store.node.services.storage.checkpoints.write_now()
    client("CONFIG", "SET", "stream-hot-bytes", 0)
    store.cold = True
    play(store, again=True)
    return store


def write(directory: Path) -> None:
    """Write the golden files in the current format."""
    for name in ("stopped", "killed"):
        with pytest.MonkeyPatch.context() as patches:
            tiny_blocks(patches, block_bytes=400)
            store = played()
        files, journal = store.files, store.node.journal
        assert files is not None
        assert journal is not None
        if name == "killed":
            store.client()("SET", "torn", "x" * 60)
            files.corrupt(journal._writer.name, journal._writer.end - 30, bytes(30))
        else:
            (directory / "state.txt").write_text(state_of(store.node))
            store.node.close()
        (directory / name).mkdir(exist_ok=True)
        for path in (directory / name).iterdir():
            path.unlink()
        for file in files.names():
            (directory / name / file).write_bytes(bytes(files.content(file).data))


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    write(target)
