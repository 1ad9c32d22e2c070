"""Compresses blocks of entries in a thread of its own, so that no turn waits for it.

    end of a turn, or the thread ──▶ Sealer.step: what was compressed becomes the blocks' form, the
                                     coldest go in line (engine/sealing.py)
    thread, without the node's lock ── compress ──▶ done

Rule 1. The thread touches nothing but the bytes of jobs, which never change; all else happens in
        `step`, under the node's lock.
Rule 2. Where the thread cannot keep up, by `SEALING_LAG_BYTES`, turns compress a few blocks
        themselves: whoever writes faster than can be sealed is slowed down, and memory is bounded.
Rule 3. Losing the thread, or what it has done, loses nothing: blocks stay as they were written.
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

MOST_IN_LINE = 16
"""Blocks given to the thread ahead, 1 MiB: it need not wait for the end of a turn after each."""

HELPED_AT_ONCE = 4
"""Blocks that a turn compresses at most: 0.6 ms with zstd, 2 ms with zlib."""

_NICENESS = 10
"""The loop goes first where both want the same processor. Not the greatest: the thread must hold
Python's lock for some microseconds after each block, and whoever waits for that waits for it."""

_PATIENCE_S = 0.1

_Line = SimpleQueue[tuple[CompressionJob, str] | None]
_Done = deque[tuple[CompressionJob, str, bytes | None]]


class Sealer:
    """Seals the blocks of one node; the thread begins when there is something to do."""

    def __init__(self, sealing: Sealing, lock: threading.RLock) -> None:
        self.sealing = sealing
        """Of the keyspace in force."""
        self._lock = lock
        self._line: _Line = SimpleQueue()
        self._done: _Done = deque()
        self._in_line = 0
        self._thread: threading.Thread | None = None
        self._stopped = False

    def step(self) -> None:
        """Take over what the thread has done and give it more; called under the node's lock."""
        sealing = self.sealing
        while self._done:
            job, codec, wire = self._done.popleft()
            job.block.sealing.settle(job, codec, wire)  # DEBUG RELOAD: of the store as it was
            self._in_line -= 1
        if self._in_line <= MOST_IN_LINE // 2 and not self._stopped:
            for job in sealing.choose(MOST_IN_LINE - self._in_line):
                self._in_line += 1
                self._line.put((job, sealing.codec))
            if self._in_line and self._thread is None:
                self._begin()
        sealing.help(HELPED_AT_ONCE)

    def rest(self) -> None:
        """A step from the thread, when it has nothing more to do; a node that is busy makes it itself
        at the end of a turn."""
        if self._lock.acquire(timeout=_PATIENCE_S):
            try:
                self.step()
            finally:
                self._lock.release()

    def stop(self) -> None:
        """End the thread, when it has done what is in line; under the node's lock, which it may want,
        that takes up to `_PATIENCE_S` more."""
        self._stopped = True
        if self._thread is not None:
            self._line.put(None)
            self._thread.join()
            self._thread = None

    def __del__(self) -> None:
        self._line.put(None)

    def _begin(self) -> None:
        arguments = (self._line, self._done, ref(self))
        self._thread = threading.Thread(
            target=_compress_all, args=arguments, name="headwater-sealer", daemon=True
        )
        self._thread.start()


def _compress_all(line: _Line, done: _Done, sealer: ref[Sealer]) -> None:
    """The thread. It holds on to no node: one that is let go of ends it."""
    with suppress(OSError, AttributeError):  # Linux knows the niceness of a thread
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
    codecs: dict[str, Codec] = {}
    while (item := line.get()) is not None:
        job, name = item
        try:
            codec = codecs.get(name) or codecs.setdefault(name, make_codec(name))
            done.append((job, name, codec.compress(job.data)))
        except Exception:
            log.exception("a block of entries could not be compressed; it stays as it is")
            done.append((job, name, None))
        del job, item
        if line.empty():
            owner = sealer()
            if owner is None:
                return
            owner.rest()
            del owner
