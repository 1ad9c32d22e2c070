"""Moves blocks out of segments that are mostly dead, so that the segments can be removed.

    checkpoint ──▶ begin ── thread: copies blobs, at most `checkpoint-io-limit` (journal/segments/compaction.py)
                                 └── under the node's lock, some at a time: the facts ``stored`` with new places
    another checkpoint, begun then ──▶ the old segments are removed (segments.py)

Rule 1. Only the search for the blocks, in steps, and the change of their places are done under the node's lock.
Rule 2. A copy that is not used, because the block was deleted meanwhile, is dead in the new segment.
Rule 3. Nothing is copied if sparse segments have less than `LEAST_BYTES` of dead blobs.
Rule 4. A compaction that fails or is interrupted has changed nothing but the places that it has recorded.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import ref

from headwater.common.threads import NO_THREAD, started
from headwater.config.config import Config
from headwater.engine.bodies.blobs import BlobPlace
from headwater.engine.entries.entry_block import EntryBlock
from headwater.engine.facts.facts import HEADROOM
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.errors import NodePoisoned
from headwater.journal.log.journal import Journal
from headwater.journal.segments.compaction import Compaction, compact, sparse_segments
from headwater.journal.segments.segment_reader import SegmentReader
from headwater.journal.segments.segments import segment_name, segment_numbers
from headwater.server.services.records import TurnRecords
from headwater.server.services.state import NodeState
from headwater.server.services.storage.segments import Segments, segment_writer
from headwater.server.services.turn_clock import TurnClock

log = logging.getLogger("headwater.server")

LEAST_BYTES = 32 * 1024 * 1024
SEARCHED_AT_ONCE = 2000
"""Number of blocks that are visited without releasing the node's lock. Visiting them takes a millisecond."""
MOVED_AT_ONCE = 64
_PATIENCE_S = 0.1

Holders = dict[BlobPlace, list[tuple[int, "ref[EntryBlock]"]]]
"""Place → the streams and blocks that refer to it."""


class _Interrupted(Exception):
    """The node is stopping, is poisoned, or has another keyspace."""


class Compactions:
    """The compactions of a node. All methods but those of the thread require the node's lock."""

    def __init__(
        self,
        config: Config,
        state: NodeState,
        times: TurnClock,
        records: TurnRecords,
        lock: threading.RLock,
    ) -> None:
        self.moved_bytes = 0
        """Number of bytes of blobs that were moved since the store was opened."""
        self._config = config
        self._state = state
        self._times = times
        self._records = records
        self._lock = lock
        self._journal: Journal | None = None
        self._segments: Segments | None = None
        self._keyspace: Keyspace | None = None
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()

    def use(self, journal: Journal, segments: Segments, keyspace: Keyspace) -> None:
        """Move blocks of ``keyspace`` from now on."""
        self._journal, self._segments, self._keyspace = journal, segments, keyspace

    def configure(self, config: Config) -> None:
        """Apply the setting of the rate, from the next compaction on."""
        self._config = config

    def begin(self) -> None:
        """Begin to move blocks in a thread, unless a compaction runs."""
        if self._thread is not None or self._stopping.is_set() or self._segments is None:
            return
        assert self._journal is not None
        assert self._keyspace is not None
        if not self._keyspace.sealing.segments() and not self._segments.settled:
            return
        self._segments.compacting_from = self._journal.catalog.next_segment
        arguments = (self._journal, self._segments, self._keyspace)
        self._thread = threading.Thread(
            target=self._run, args=arguments, name="headwater-compaction", daemon=True
        )
        if not started(self._thread):
            log.warning("segments are not compacted: %s", NO_THREAD)
            self._segments.compacting_from = self._thread = None

    def stop(self) -> None:
        """End the thread. Call it with or without the node's lock."""
        self._stopping.set()
        thread = self._thread
        if thread is not None:
            thread.join()

    def resume(self) -> None:
        """Compact segments again after `stop`."""
        self._thread = None
        self._stopping.clear()

    def wait(self) -> None:
        """Wait until the compaction that runs has ended. For tests; call it without the node's lock."""
        thread = self._thread
        if thread is not None:
            thread.join()

    # --- in the thread --------------------------------------------------------------------------

    def _run(self, journal: Journal, segments: Segments, keyspace: Keyspace) -> None:
        before = self.moved_bytes
        try:
            self._compact(journal, segments, keyspace)
        except _Interrupted:
            log.debug("a compaction was interrupted")
        except OSError as error:
            log.warning("segments could not be compacted: %s", error)
        except Exception:
            log.exception("a compaction has failed")
        finally:
            # The lock is not taken: a node that stops holds it while it waits for this thread.
            segments.compacting_from = None
            self._thread = None
        if self.moved_bytes > before:
            self._state.checkpoint_at = -1  # the old segments can be removed after that

    def _compact(self, journal: Journal, segments: Segments, keyspace: Keyspace) -> None:
        with self._locked(keyspace):
            live = dict(keyspace.sealing.segments())
            floor = segments.floor()
        sparse = _sparse(journal, live, floor)
        if not sparse:
            return
        holders = self._find(keyspace, sparse)
        writer = segment_writer(journal)
        reader = SegmentReader(journal.files, journal.seed)
        rate = self._config.checkpoint_io_limit
        result = compact(holders, reader, writer, rate, pause=self._pause)
        writer.finish()
        self._move(keyspace, holders, result)
        for flaw in result.damaged.values():
            log.error("entries could not be moved to another segment: %s", flaw)
        if result.stopped is not None:
            log.warning("a compaction has ended early: %s", result.stopped)
        log.info(
            "compaction: %d bytes were moved out of %d segments", result.copied_bytes, len(sparse)
        )

    def _find(self, keyspace: Keyspace, sparse: set[int]) -> Holders:
        """Return the blocks that refer to the segments in ``sparse``."""
        found: Holders = {}
        with self._locked(keyspace):
            sids = list(keyspace.streams)
        at, index = 0, 0
        while at < len(sids):
            with self._locked(keyspace):
                left = SEARCHED_AT_ONCE
                while at < len(sids) and left > 0:
                    stream = keyspace.streams.get(sids[at])
                    blocks = [] if stream is None else stream.log.blocks
                    part = blocks[index : index + left]
                    _add(found, sids[at], part, sparse)
                    left -= len(part) + 1
                    index += len(part)
                    if index >= len(blocks):
                        at, index = at + 1, 0
        return found

    def _move(self, keyspace: Keyspace, holders: Holders, result: Compaction) -> None:
        """Record the new places."""
        moves = list(result.moved.items())
        for start in range(0, len(moves), MOVED_AT_ONCE):
            with self._locked(keyspace):
                self._record(keyspace, holders, moves[start : start + MOVED_AT_ONCE])

    def _record(
        self, keyspace: Keyspace, holders: Holders, moves: list[tuple[BlobPlace, BlobPlace]]
    ) -> None:
        records = self._records
        records.turn += 1
        for old, new in moves:
            for sid, reference in holders[old]:
                block = reference()
                if block is None:
                    continue
                if not records.admits(HEADROOM):
                    raise OSError("the journal is full")
                mark = records.begin()
                if keyspace.move(sid, block, old, new):
                    self.moved_bytes += new.size
                records.seal_unawaited(mark, self._times.now())
        try:
            records.commit()
        except NodePoisoned as error:
            self._state.poisoned = error
            raise _Interrupted from error

    @contextmanager
    def _locked(self, keyspace: Keyspace) -> Iterator[None]:
        """Hold the node's lock. Raises `_Interrupted` if the compaction must end."""
        while not self._lock.acquire(timeout=_PATIENCE_S):
            if self._stopping.is_set():
                raise _Interrupted
        try:
            poisoned = self._state.poisoned is not None
            if self._stopping.is_set() or poisoned or self._keyspace is not keyspace:
                raise _Interrupted
            yield
        finally:
            self._lock.release()

    def _pause(self, seconds: float) -> None:
        if self._stopping.wait(seconds):
            raise _Interrupted


def _sparse(journal: Journal, live: dict[int, int], floor: int) -> set[int]:
    """Return the segments that are less than half live, if moving their blobs is worth it (rule 3)."""
    files = journal.files
    old = (number for number in segment_numbers(files) if number < floor and number in live)
    sizes = {number: files.reads.size(segment_name(number)) for number in old}
    found = sparse_segments(sizes, live)
    dead = sum(sizes[number] - live[number] for number in found)
    return found if dead >= LEAST_BYTES else set()


def _add(found: Holders, sid: int, blocks: list[EntryBlock], sparse: set[int]) -> None:
    for block in blocks:
        packed = block.packed
        if packed is not None and packed.blob is not None and packed.blob.segment in sparse:
            place = packed.blob.place()
            found.setdefault(place, []).append((sid, ref(block)))
