"""Compresses blocks of entries in a thread, and stores them in segments if the node has a journal.

    end of a turn, or the thread ──▶ Sealer.step: the coldest blocks are queued (engine/tier/sealing.py)
    thread, without the node's lock ── compress ── append to the segment ── fsync ──▶ done
    before a commit, or the thread ──▶ Sealer.settle: the results replace the blocks' bytes, and the facts
                                       ``stored`` are written

Rule 1. The thread accesses only the bytes of jobs, which never change, and the segment. Everything else
        happens in `step` and `settle`, under the node's lock.
Rule 2. If the thread falls behind by `SEALING_LAG_BYTES`, turns compress a few blocks themselves.
        This slows down clients that write faster than blocks can be sealed, and bounds the memory.
Rule 3. If the thread or its results are lost, nothing else is lost: the blocks remain as they were
        written.
Rule 4. A block is reported as stored after the fsync of its segment. One fsync serves all blocks that were
        queued, at most `SYNCED_AT_ONCE_BYTES`. No reply waits for the facts.
Rule 5. If a segment cannot be written, blocks are sealed in memory, by turns if necessary (rule 2), until
        storing is tried again after `PAUSE_S`. After a failed fsync, storing fails until a restart.
Rule 6. While memory is tight (memory_use.py), a turn that adds to it waits for the disk, `RELIEF_S` at most:
        clients that write faster than blocks can be stored are slowed down, not refused.
Rule 7. The thread applies results also when no turns run. The thread pauses in between, so that turns come first.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from contextlib import suppress
from queue import Empty, SimpleQueue
from time import monotonic
from typing import NamedTuple
from weakref import ref

from headwater.common.threads import NO_THREAD, started
from headwater.engine.bodies.blobs import BlobPlace
from headwater.engine.bodies.codecs import CODECS, Codec, codec_in
from headwater.engine.facts.facts import HEADROOM
from headwater.engine.tier.sealing import CompressionJob, compressed
from headwater.errors import NodePoisoned
from headwater.journal.segments.blobs import BlobHead
from headwater.journal.segments.segments import SegmentWriter
from headwater.server.services.services import Services
from headwater.server.services.storage.segments import Segments

log = logging.getLogger("headwater.server")

MAX_QUEUED = 16
"""Maximum number of blocks queued for the thread, 1 MiB, so that the thread need not wait for the end of a turn
after each block."""

MAX_QUEUED_TO_STORE = 128
"""Maximum number of queued blocks if the thread stores them: 8 MiB for each fsync."""

SYNCED_AT_ONCE_BYTES = 8 * 1024 * 1024

HELPED_AT_ONCE = 4
"""Maximum number of blocks that a turn compresses. Together they take 0.6 ms with zstd, 2 ms with zlib."""

SETTLED_AT_ONCE = 16
"""Maximum number of results that a turn applies."""

_NICENESS = 10
"""Niceness of the thread, which gives the loop precedence on a shared processor. It is not the maximum: the
thread holds the GIL for some microseconds after each block, and other threads wait for the GIL meanwhile."""

_PATIENCE_S = 0.1
_BETWEEN_S = 0.001
"""Pause between two of the thread's own turns, in seconds."""
_BLOCKED_S = 1.0
"""Pause between two of the thread's own turns while the journal is full, in seconds."""
RELIEF_S = 0.05
PAUSE_S = 10.0


class SealingResult(NamedTuple):
    """Result of a job. ``wire`` is the body, None if the codec has failed. ``place`` is the position of the stored
    body, None if it is not stored. ``failure`` is the reason why storing failed, if it did."""

    job: CompressionJob
    codec: str
    wire: bytes | None
    place: BlobPlace | None = None
    failure: str | None = None


_Queue = SimpleQueue[tuple[CompressionJob, str, SegmentWriter | None] | None]
_Done = deque[SealingResult]


class Sealer:
    """Seals the blocks of a node. The thread starts with the first block."""

    def __init__(
        self,
        services: Services,
        lock: threading.RLock,
    ) -> None:
        self.keyspace = services.keyspace
        """The current keyspace."""
        self.segments: Segments | None = None
        """Segments in which blocks are stored; None in a node without a journal."""
        self.done: _Done = deque()
        """Results that `settle` has not applied."""
        self.takes_turns = True
        """True if the thread itself applies results, between turns. Otherwise only turns do."""
        self.threaded = True
        """True if a thread does the work. Otherwise `work` does, in a test."""
        self._records = services.records
        self._state = services.state
        self._times = services.times
        self._memory = services.memory
        self._faults = services.faults
        self._lock = lock
        self._reported = threading.Event()
        """Event that is set when the thread has results."""
        self._queue: _Queue = SimpleQueue()
        self._queued = self._sealed_bytes = 0
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._retry_at = 0.0

    def step(self) -> None:
        """Queue more blocks, and help the thread if it lags behind. The caller must hold the node's lock."""
        self._enqueue()
        self.keyspace.sealing.help(HELPED_AT_ONCE)
        if self._memory.is_pressing and self._state.poisoned is None:
            self._relieve()

    def _enqueue(self) -> None:
        sealing, segments = self.keyspace.sealing, self.segments
        writer = segments.writer if segments is not None and sealing.storing else None
        most = MAX_QUEUED if writer is None else MAX_QUEUED_TO_STORE
        if self._queued <= most // 2 and not self._stopped and not self._pauses():
            for job in sealing.choose(most - self._queued):
                self._queued += 1
                self._sealed_bytes += _sealed_bytes(job)
                self._queue.put((job, sealing.codec, writer))
        if self._queued and self._thread is None and self.threaded and not self._stopped:
            self._begin()

    def _relieve(self) -> None:
        """Wait for results until memory is not tight (rule 6)."""
        memory, ends = self._memory, monotonic() + RELIEF_S
        while memory.is_tight and self._queued and self._thread is not None:
            sealing = self.keyspace.sealing
            sealed = self._sealed_bytes + len(sealing.unstored) * sealing.block_bytes
            if memory.lacking() > sealing.hot_bytes + sealed:
                break  # Other data take the memory.
            if not self.done:
                self._reported.clear()
            if not self.done and not self._reported.wait(max(0.0, ends - monotonic())):
                break
            if monotonic() >= ends or not self._apply():
                break
            memory.exceeded()
            self._enqueue()
        memory.is_pressing = False

    def settle(self, most: int = SETTLED_AT_ONCE) -> None:
        """Apply at most ``most`` results of the thread. The caller must hold the node's lock and then commit."""
        records, keyspace = self._records, self.keyspace
        for _ in range(min(most, len(self.done))):
            if not records.admits(HEADROOM):
                return
            job, codec, wire, place, failure = self.done.popleft()
            self._queued -= 1
            self._sealed_bytes -= _sealed_bytes(job)
            if failure is not None:
                self._pause_storing(failure)
            if job.sealing is not keyspace.sealing:  # after DEBUG RELOAD
                job.sealing.settle(job, codec, wire)
            else:
                mark = records.begin()
                try:
                    keyspace.store(job, codec, wire, place)
                finally:  # an error leaves the block as it is
                    records.seal_unawaited(mark, self._times.now())
            if place is not None and self.segments is not None:
                self.segments.settled, self.segments.failure = place.segment, ""

    def has_work(self) -> bool:
        """Return whether a block is queued or a result is not applied yet."""
        return self._queued > 0

    def work(self) -> None:
        """Seal all queued blocks in this thread (``threaded``)."""
        worker = _Worker(self.done, self._reported)
        while not self._queue.empty():
            item = self._queue.get()
            assert item is not None
            worker.seal(*item)
        worker.sync()

    def try_step(self) -> float | None:
        """Run `take_turn` in the thread when its queue is empty, unless the node is busy. Return the time until
        the next call, in seconds; None if no result is left or the node does not take any."""
        if not self.takes_turns:
            return None
        applied = True
        if self._lock.acquire(timeout=_PATIENCE_S):
            try:
                applied = self.take_turn()
            except Exception as error:
                self._faults.rest(error, "sealing blocks of entries")
            finally:
                self._lock.release()
        if not self.done or self._stopped or self._state.poisoned is not None:
            return None
        return _BETWEEN_S if applied else _BLOCKED_S

    def stop(self) -> None:
        """End the thread after the queued blocks. Call it with or without the node's lock; with it,
        this may take `_PATIENCE_S` longer, because the thread may wait for the lock."""
        self._stopped = True
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def resume(self) -> None:
        """Seal blocks again after `stop`."""
        self._stopped = False

    def __del__(self) -> None:
        self._queue.put(None)

    def take_turn(self) -> bool:
        """Apply results and queue more blocks in a separate turn. Return whether a result was applied. The caller
        must hold the node's lock."""
        if self._state.poisoned is not None or self._stopped:
            return False
        applied = self._apply()
        if self._state.poisoned is None:
            self._enqueue()
            self.keyspace.sealing.help(HELPED_AT_ONCE)
        return applied

    def _apply(self) -> bool:
        """Run `settle` in a separate turn. Return whether a result was applied."""
        queued = self._queued
        self._records.turn += 1
        self.settle()
        try:
            self._records.commit()
        except NodePoisoned as error:
            self._state.poisoned = error
            return False
        return self._queued < queued

    def _pauses(self) -> bool:
        """Return whether storing has failed and is not tried again yet."""
        segments = self.segments
        failing = segments is not None and segments.failure != ""
        return failing and self._times.monotonic() < self._retry_at

    def _pause_storing(self, failure: str) -> None:
        """Store nothing for a while (rule 5)."""
        assert self.segments is not None
        if not self.segments.failure:
            log.error(
                "older entries stay in memory, because no segment can be written: %s", failure
            )
        self.segments.failure = failure
        self._retry_at = self._times.monotonic() + PAUSE_S

    def _begin(self) -> None:
        """Start the thread. If that is not possible, try again after a while."""
        if self._times.monotonic() < self._retry_at:
            return
        arguments = (self._queue, _Worker(self.done, self._reported), ref(self))
        thread = threading.Thread(
            target=_seal_all, args=arguments, name="headwater-sealer", daemon=True
        )
        if started(thread):
            self._thread = thread
        else:
            self._retry_at = self._times.monotonic() + PAUSE_S
            log.warning("older entries stay in memory, uncompressed: %s", NO_THREAD)


class _Worker:
    """The thread's work on jobs: compresses, writes and reports blocks."""

    def __init__(self, done: _Done, reported: threading.Event) -> None:
        self._done = done
        self._reported = reported
        self._codecs: dict[str, Codec] = {}
        self._writer: SegmentWriter | None = None
        self._unsynced: list[SealingResult] = []

    def seal(self, job: CompressionJob, name: str, writer: SegmentWriter | None) -> None:
        """Compress a block, and write it unless ``writer`` is None."""
        try:
            codec = codec_in(self._codecs, name)
            result = SealingResult(job, *compressed(job, codec))
        except Exception:
            log.exception("a block of entries could not be compressed; it remains uncompressed")
            self._report([SealingResult(job, name, None)])
            return
        if writer is None:
            self._report([result])
            return
        self._writer = writer
        try:
            place = _write(writer, result)
        except OSError as error:
            self._report([result._replace(failure=_reason(error))])
            return
        self._unsynced.append(result._replace(place=place))
        if writer.unsynced_bytes >= SYNCED_AT_ONCE_BYTES:
            self.sync()

    def sync(self) -> None:
        """Make the written blocks durable, and report them."""
        if self._writer is None or not self._unsynced:
            return
        results, self._unsynced = self._unsynced, []
        try:
            self._writer.sync()
        except OSError as error:
            results = [one._replace(place=None, failure=_reason(error)) for one in results]
        self._report(results)

    def _report(self, results: list[SealingResult]) -> None:
        self._done.extend(results)
        self._reported.set()


def _sealed_bytes(job: CompressionJob) -> int:
    """Return the number of bytes in memory of a sealed block; 0 if it is hot."""
    return 0 if job.packed is None or job.packed.wire is None else len(job.packed.wire)


def _write(writer: SegmentWriter, result: SealingResult) -> BlobPlace:
    job, wire = result.job, result.wire
    assert wire is not None
    code = CODECS.index(result.codec)
    head = BlobHead(job.origin, *job.first, *job.last, job.entries, code, job.size)
    return writer.append(head, job.ids, wire)


def _reason(error: OSError) -> str:
    return f"[Errno {error.errno}] {error.strerror}"


def _seal_all(queue: _Queue, worker: _Worker, sealer: ref[Sealer]) -> None:
    """Seal blocks in the thread. Holds no reference to the node, and ends when the node is freed."""
    with suppress(OSError, AttributeError):  # on Linux, niceness is per thread
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
    pause: float | None = None
    while True:
        with suppress(Empty):
            item = queue.get(timeout=pause)
            if item is None:
                break
            worker.seal(*item)
            del item
            if not queue.empty():
                continue
            worker.sync()
        owner = sealer()
        if owner is None:
            return
        pause = owner.try_step()
        del owner
    worker.sync()
