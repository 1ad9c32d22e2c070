"""Any history of commands: a store whose entries are on disk gives the same replies as one in memory, reads
nothing after it has changed something, and recovers the same state, whatever blocks it has then.

Jobs are settled late, blobs are moved, and bodies leave the cache at random.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from headwater.commands.call import Call
from headwater.commands.dispatch import find_command
from headwater.engine.bodies.blobs import BlobPlace
from headwater.engine.bodies.bodies import Opened
from headwater.engine.bodies.codecs import make_codec
from headwater.engine.bodies.sealed_block import ColdBlocks
from headwater.engine.check import broken_invariants
from headwater.engine.facts.facts import FactBuffer
from headwater.engine.image.image import image_facts
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.engine.replay.replay import Replay
from headwater.engine.streams.stream import StoredStream
from headwater.engine.tier.sealing import CompressionJob
from headwater.errors import CommandError
from headwater.resp.arguments import Arguments
from headwater.resp.replies import ReplyWriter
from tests.blocks import tiny_blocks
from tests.property.state import picture
from tests.samples import sampled
from tests.stored import MemoryBlobs, stored_blocks

MOST_RUNS = 40
"""How often a command may start again. MAXSIZE finds out step by step what it needs."""


class Commands:
    """Runs commands on a keyspace, without a server."""

    def __init__(self, keyspace: Keyspace) -> None:
        self.keyspace = keyspace
        self.call = Call(keyspace, ReplyWriter(bytearray()))
        self.call.settings.node_max_entries = 5
        self.runs = 0
        """How often the latest command ran."""

    def __call__(self, *words: object) -> bytes:
        keyspace, call = self.keyspace, self.call
        call.now_ms += 10
        call.arguments = Arguments.of(*(str(word).encode() for word in words))
        bodies = keyspace.sealing.bodies
        delivered: list[Opened] = []
        for run in range(1, MOST_RUNS):
            self.runs = run
            written = len(keyspace.facts.data)
            call.reply.out.clear()
            bodies.may_wait = False
            bodies.deliver(delivered)
            try:
                find_command(call.arguments).function(call)  # type: ignore[misc]
                return bytes(call.reply.out)
            except CommandError as error:
                assert len(keyspace.facts.data) == written
                return str(error).encode()
            except ColdBlocks as cold:
                assert len(keyspace.facts.data) == written, f"{words} read after a change"
                codec = {name: make_codec(name) for name in ("none", "zlib")}
                delivered += [bodies.load(one, codec[one.codec]) for one in cold.wanted]
            finally:
                bodies.release()
                bodies.may_wait = True
        raise AssertionError(f"{words} never finds what it needs")


class History:
    """Draws commands for two stores, of which one stores its blocks."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.blobs = MemoryBlobs(seed)
        self.blobs.cached = self.random.choice((0.0, 0.5, 0.9))
        self.cold, self.hot = Commands(Keyspace()), Commands(Keyspace())
        self.cold.keyspace.sealing.store_in(self.blobs, storing=True)
        self.cold.keyspace.sealing.configure(self.random.choice((0, 300)), "zlib")
        self.jobs: list[CompressionJob] = []
        self.moment: tuple[int, list[bytearray]] | None = None
        self.ms = 0
        self.restarts = 0

    def run(self, steps: int) -> None:
        for _ in range(steps):
            draw = self.random.random()
            if draw < 0.35:
                self._store()
            elif draw < 0.37:
                self._move()
            elif draw < 0.375:
                facts = self.cold.keyspace.facts.data
                self.moment = (len(facts), list(image_facts(self.cold.keyspace)))
            self._send(*self._drawn())
        self.check()

    def check(self) -> None:
        keyspace = self.cold.keyspace
        for gid, cids in {gid: list(cids) for gid, cids in keyspace.unseen.items()}.items():
            for cid in cids:  # What the server writes later.
                one = keyspace.groups[gid].by_cid[cid]
                keyspace.groups[gid].record_seen(one, one.seen_time, one.active_time)
        assert broken_invariants(keyspace) == []
        expected = picture(keyspace)
        assert picture(self.hot.keyspace) == expected
        for block_bytes, image in (
            (160, False),
            (160, True),
            (90, False),
            (700, False),
            (700, True),
        ):
            again = self.recovered(block_bytes, image=image)
            assert broken_invariants(again) == []
            assert picture(again) == expected
            assert again.unread_blobs == []

    def recovered(self, block_bytes: int, *, image: bool) -> Keyspace:
        """Return the state that results from the facts, or from an image and the facts after it."""
        again = Keyspace(FactBuffer(muted=True))
        again.sealing.block_bytes = block_bytes
        again.sealing.store_in(self.blobs, storing=True)
        again.sealing.configure(0, "zlib")
        replay, start = Replay(again), 0
        if image and self.moment is not None:
            start, groups = self.moment
            for group in groups:
                replay.apply(memoryview(group), 0)
        replay.begin(memoryview(self.cold.keyspace.facts.data)[start:], 0)
        while replay.step() >= 0:
            if self.random.random() < 0.05:
                again.sealing.help(1)
        again.signalled.clear()
        return again

    # --- steps ----------------------------------------------------------------------------------

    def _send(self, *words: object) -> None:
        one, other = self.cold(*words), self.hot(*words)
        assert one == other, words

    def _store(self) -> None:
        keyspace, draw = self.cold.keyspace, self.random
        chosen = keyspace.sealing.choose(draw.randrange(4))
        self.jobs += chosen
        for job in chosen:
            stream = keyspace.streams.get(job.origin)
            if stream is not None and job.last == (self.ms, 0) and draw.random() < 0.5:
                self._send(*self._reuse(stream.key.decode()))
        for _ in range(draw.randrange(4)):
            if self.jobs:
                self.blobs.store(keyspace, self.jobs.pop(draw.randrange(len(self.jobs))))

    def _move(self) -> None:
        keyspace = self.cold.keyspace
        used = list(keyspace.sealing.segments())
        for sid, stream in list(keyspace.streams.items()):
            for block in stored_blocks(stream.log, set(used[:1])):
                assert block.packed is not None
                assert block.packed.blob is not None
                old = block.packed.blob.place()
                new = BlobPlace(1000 + len(self.blobs.blobs), *old[1:])
                self.blobs.blobs[new] = self.blobs.blobs[old]
                keyspace.move(sid, block, old, new)

    def _drawn(self) -> tuple[object, ...]:
        draw = self.random
        key, group = draw.choice("ab"), draw.choice("gh")
        kinds: list[Callable[[], tuple[object, ...]]] = [
            *[lambda: self._add(key)] * 16,
            lambda: ("XDEL", key, *[self._id() for _ in range(draw.randrange(1, 12))]),
            lambda: ("XTRIM", key, "MAXLEN", draw.choice("=~"), draw.randrange(20, 80)),
            lambda: ("XSETID", key, draw.choice((f"{self.ms}-0", f"{self.ms - 1}-0"))),
            lambda: self._reuse(key),
            lambda: ("COPY", key, draw.choice("ab"), "REPLACE"),
            lambda: ("DEL", key) if draw.random() < 0.3 else ("XLEN", key),
            lambda: ("XGROUP", "CREATE", key, group, draw.choice((0, "$")), "MKSTREAM"),
            lambda: ("XRANGE", key, self._id(), "+", "COUNT", draw.randrange(1, 30)),
            lambda: ("XREVRANGE", key, self._id(), "-", "COUNT", draw.randrange(1, 30)),
            lambda: self._read(key),
            *[lambda: self._read_group(key, group)] * 3,
            *[lambda: self._claim(key, group)] * 2,
            lambda: ("XACK", key, group, *[self._id() for _ in range(draw.randrange(1, 12))]),
            lambda: ("XINFO", "STREAM", key, *draw.choice(((), ("FULL",), ("FULL", "COUNT", 0)))),
            lambda: ("DUMP", key),
        ]
        return draw.choice(kinds)()

    def _id(self) -> str:
        return f"{self.random.randrange(max(1, self.ms - 120), self.ms + 2)}-0"

    def _add(self, key: str) -> tuple[object, ...]:
        self.ms += 1
        size = 500 if self.random.random() < 0.02 else self.random.randrange(20)
        return "XADD", key, f"{self.ms}-0", "field", self.random.randbytes(size).hex()

    def _reuse(self, key: str) -> tuple[object, ...]:
        """Remove the newest entry, as XTRIM ACKED does, and use its id again with other fields."""
        for keyspace in (self.cold.keyspace, self.hot.keyspace):
            stream, last = keyspace.databases[0].values.get(key.encode()), (self.ms, 0)
            if not isinstance(stream, StoredStream) or stream.log.last() != last:
                continue
            if not stream.referenced(last) and stream.max_deleted_id < last:
                stream.delete([last], marks=False)
                lower = max((self.ms - 1, 0), stream.log.last(), stream.max_deleted_id)
                stream.set_id(lower, stream.entries_added, stream.max_deleted_id)
        return "XADD", key, f"{self.ms}-0", "other", self.random.randrange(1000)

    def _read(self, key: str) -> tuple[object, ...]:
        limits = self._limits(COUNT=30, MAXCOUNT=40, MAXSIZE=800)
        return "XREAD", *limits, "STREAMS", "a", "b", self._id(), self.random.choice((0, "+"))

    def _limits(self, **most: int) -> list[object]:
        draw = self.random
        words: list[object] = []
        for name, value in most.items():
            if draw.random() < 0.5:
                words += [name, draw.randrange(30 if name == "MAXCOUNT" else 1, value)]
        return words

    def _read_group(self, key: str, group: str) -> tuple[object, ...]:
        draw = self.random
        limits = self._limits(COUNT=30, MAXCOUNT=40, MAXSIZE=800)
        claim = draw.choice(((), ("CLAIM", 0), ("CLAIM", 50), ("NOACK",)))
        keys = draw.choice(((key,), (key, key)))
        ids = [draw.choice((">", ">", 0, self._id())) for _ in keys]
        return (
            *("XREADGROUP", "GROUP", group, draw.choice("xy"), *limits, *claim),
            *("STREAMS", *keys, *ids),
        )

    def _claim(self, key: str, group: str) -> tuple[object, ...]:
        draw = self.random
        options = draw.choice(((), ("JUSTID",)))
        if draw.random() < 0.5:
            return "XAUTOCLAIM", key, group, "z", 0, 0, "COUNT", draw.randrange(1, 30), *options
        ids = [self._id() for _ in range(draw.randrange(1, 12))]
        return "XCLAIM", key, group, "z", 0, *ids, *draw.choice(((), ("FORCE",))), *options


@pytest.mark.parametrize("seed", range(12))
def test_any_history_is_the_same_on_disk(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_blocks(monkeypatch)
    History(seed).run(400)


@pytest.mark.slice
@pytest.mark.timeout(900)
def test_many_histories_are_the_same_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_blocks(monkeypatch)
    for seed in range(100, 100 + sampled(40)):
        History(seed).run(600)
