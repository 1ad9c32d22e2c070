"""Compresses blocks of entries in a thread, so that turns do not wait for it.

    end of a turn, or the thread ──▶ Sealer.step: compressed bytes replace the blocks' bytes, the coldest
                                     blocks are queued (engine/sealing.py)
    thread, without the node's lock ── compress ──▶ done

Rule 1. The thread accesses only the bytes of jobs, which never change. Everything else happens in
        `step`, under the node's lock.
Rule 2. If the thread falls behind by `SEALING_LAG_BYTES`, turns compress a few blocks themselves.
        This slows down clients that write faster than blocks can be sealed, and bounds the memory.
Rule 3. If the thread, or its results, are lost, nothing else is: the blocks remain as they were
        written.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from contextlib import suppress
from queue import SimpleQueue
from weakref import ref

from headwater.engine.codecs import Codec, make_codec
from headwater.engine.sealing import CompressionJob, Sealing

log = logging.getLogger("headwater.server")

MAX_QUEUED = 16
"""Maximum number of blocks queued for the thread, 1 MiB: it need not wait for a turn to end after
each."""

HELPED_AT_ONCE = 4
"""Maximum number of blocks that a turn compresses: 0.6 ms with zstd, 2 ms with zlib."""

_NICENESS = 10
"""Gives the loop precedence on a shared processor. Not the maximum: the thread needs the GIL for some
microseconds after each block, and a thread that waits for the GIL waits for it."""

_PATIENCE_S = 0.1

_Queue = SimpleQueue[tuple[CompressionJob, str] | None]
_Done = deque[tuple[CompressionJob, str, bytes | None]]


class Sealer:
    """Seals the blocks of a node. The thread starts with the first block."""

    def __init__(self, sealing: Sealing, lock: threading.RLock) -> None:
        self.sealing = sealing
        """The sealing of the current keyspace."""
        self._lock = lock
        self._queue: _Queue = SimpleQueue()
        self._done: _Done = deque()
        self._queued = 0
        self._thread: threading.Thread | None = None
        self._stopped = False

    def step(self) -> None:
        """Apply the results of the thread and queue more blocks. The caller holds the node's lock."""
        sealing = self.sealing
        while self._done:
            job, codec, wire = self._done.popleft()
            job.block.sealing.settle(job, codec, wire)  # not self.sealing after DEBUG RELOAD
            self._queued -= 1
        if self._queued <= MAX_QUEUED // 2 and not self._stopped:
            for job in sealing.choose(MAX_QUEUED - self._queued):
                self._queued += 1
                self._queue.put((job, sealing.codec))
            if self._queued and self._thread is None:
                self._begin()
        sealing.help(HELPED_AT_ONCE)

    def try_step(self) -> None:
        """Run `step` in the thread when its queue is empty, unless the node is busy: then the next
        end of a turn does it."""
        if self._lock.acquire(timeout=_PATIENCE_S):
            try:
                self.step()
            finally:
                self._lock.release()

    def stop(self) -> None:
        """End the thread after the queued blocks. Call it with or without the node's lock; with it,
        this may take `_PATIENCE_S` longer, because the thread may wait for the lock."""
        self._stopped = True
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def __del__(self) -> None:
        self._queue.put(None)

    def _begin(self) -> None:
        arguments = (self._queue, self._done, ref(self))
        self._thread = threading.Thread(
            target=_compress_all, args=arguments, name="headwater-sealer", daemon=True
        )
        self._thread.start()


def _compress_all(queue: _Queue, done: _Done, sealer: ref[Sealer]) -> None:
    """The thread's function. It holds no reference to the node, and ends when the node is freed."""
    with suppress(OSError, AttributeError):  # on Linux, niceness is per thread
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
    codecs: dict[str, Codec] = {}
    while (item := queue.get()) is not None:
        job, name = item
        try:
            codec = codecs.get(name) or codecs.setdefault(name, make_codec(name))
            done.append((job, name, codec.compress(job.data)))
        except Exception:
            log.exception("a block of entries could not be compressed; it remains uncompressed")
            done.append((job, name, None))
        del job, item
        if queue.empty():
            owner = sealer()
            if owner is None:
                return
            owner.try_step()
            del owner
