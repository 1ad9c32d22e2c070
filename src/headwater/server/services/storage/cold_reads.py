"""Reads blocks from disk in threads, while the loop serves other clients.

    command's turn ── ColdBlocks ──▶ queue ──▶ a thread: read, check, decompress ──▶ done
                                                                                      │ wakes the driver
    a later turn: deliver the blocks ── the command runs again from its start ◀───────┘

Rule 1. A command that needs blocks on disk has changed nothing and replied nothing (design rule 7). The command
        runs again like a new request: all checks are repeated.
Rule 2. A client waits while its blocks are read: its further requests run after its reply. The client is not
        blocked in Redis's sense: it is not counted, CLIENT UNBLOCK and timeouts do not affect it, and if its input
        ends it still gets its reply.
Rule 3. The blocks are delivered right before the command runs again, and are open until it ends. If the command
        then needs other blocks, it waits again, and gets all of them together.
Rule 4. If a block cannot be read, the command runs again and may wait for the disk itself. It then reports the
        error, unless it no longer needs the block. It also does so if no thread can be started.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import NamedTuple
from weakref import ref

from headwater.common.clock import SystemClock
from headwater.common.log_limit import LimitedLog
from headwater.common.threads import NO_THREAD, started
from headwater.engine.bodies.bodies import Bodies, Opened, place_of
from headwater.engine.bodies.codecs import Codec, codec_in
from headwater.engine.bodies.sealed_block import SealedBlock
from headwater.resp.arguments import Arguments
from headwater.server.session.session import Session

_log = logging.getLogger("headwater.server")

THREADS = 4
"""Number of clients whose blocks are read concurrently: a disk serves concurrent requests faster."""


class ColdRead(NamedTuple):
    """The result of a command that needs blocks on disk: ``wanted``, and probably ``ahead`` later.
    ``arguments`` are a copy of the request, None if its reply has begun (commands/reply_tail.py)."""

    arguments: Arguments | None
    wanted: list[SealedBlock]
    ahead: Sequence[SealedBlock]


class _Read:
    """The blocks that one command needs, including those of earlier attempts."""

    def __init__(self, session: Session, bodies: Bodies, opened: list[Opened]) -> None:
        self.session = session
        self.bodies = bodies
        self.opened = opened
        self.cold: ColdRead | None = None
        self.reply_mode = session.reply_mode
        self.cancelled = self.failed = False

    def do(self, codecs: dict[str, Codec]) -> None:
        """Read the blocks, in a thread."""
        assert self.cold is not None
        try:
            blocks = [*self.cold.wanted, *self.cold.ahead]
            if len(blocks) > 1 and self.bodies.source is not None:
                places = [place_of(one) for one in blocks if one.blob is not None]
                self.bodies.source.read_ahead(places)
            for packed in self.cold.wanted:
                if self.cancelled:
                    return
                self.opened.append(self.bodies.load(packed, codec_in(codecs, packed.codec)))
        except Exception as error:
            # The command gets the same error (rule 4); errors other than damage are logged there, too.
            _log.debug("blocks could not be read: %r", error)
            self.failed = True


_Queue = SimpleQueue["_Read | threading.Event | None"]


class ColdReads:
    """The clients of a node whose commands need blocks on disk. The threads start when they are needed."""

    def __init__(self) -> None:
        self.wake: Callable[[], None] | None = None
        """Thread-safe function that makes the driver run a tick of the node; None without a driver."""
        self.waits = 0
        """Number of times a command had to wait."""
        self._reading: dict[Session, _Read] = {}
        self._ready: dict[Session, _Read] = {}
        self._queue: _Queue = SimpleQueue()
        self._done: deque[_Read] = deque()
        self._threads: list[threading.Thread] = []
        self._log = LimitedLog(_log, monotonic=SystemClock().monotonic)

    def __contains__(self, session: object) -> bool:
        return session in self._reading or session in self._ready

    def __len__(self) -> int:
        return len(self._reading)

    def begin(self, session: Session, cold: ColdRead, bodies: Bodies) -> None:
        """Let ``session`` wait for its blocks. If no thread can be started, its command reads them itself (rule 4)."""
        session.blocked = True
        earlier = self._ready.pop(session, None)
        read = _Read(session, bodies, [] if earlier is None else earlier.opened)
        read.cold = cold
        self._reading[session] = read
        self.waits += 1
        if len(self._threads) < min(THREADS, len(self._reading)):
            arguments = (self._queue, self._done, ref(self))
            thread = threading.Thread(
                target=_read_all, args=arguments, name="headwater-reader", daemon=True
            )
            if started(thread):
                self._threads.append(thread)
        if self._threads:
            self._queue.put(read)
            return
        self._log.warning(
            "a command that needs entries on disk holds up all clients: %s", NO_THREAD
        )
        read.failed = True
        self._done.append(read)
        if self.wake is not None:
            self.wake()

    def settle(self) -> list[Session]:
        """Return the sessions whose commands can run again: their requests are ``postponed``. The caller must hold
        the node's lock and be within a turn."""
        sessions: list[Session] = []
        while self._done:
            read = self._done.popleft()
            if read.cancelled:
                continue
            session = read.session
            assert read.cold is not None
            del self._reading[session]
            self._ready[session] = read
            session.blocked, session.postponed = False, read.cold.arguments
            session.reply_mode = read.reply_mode
            sessions.append(session)
        return sessions

    def deliver(self, session: Session) -> bool:
        """Open the blocks that were read for the request that ``session`` now runs again. Return whether the
        request may wait for the disk (rule 4)."""
        read = self._ready.get(session)
        if read is None:
            return False
        read.bodies.deliver(read.opened)
        return read.failed

    def end(self, session: Session) -> None:
        """Forget the blocks of ``session``, whose request has run again."""
        self._ready.pop(session, None)

    def cancel(self, session: Session) -> None:
        """Forget a session that is closed."""
        self._ready.pop(session, None)
        read = self._reading.pop(session, None)
        if read is not None:
            read.cancelled = True
            session.blocked = False

    def wait_until_idle(self) -> None:
        """Wait until all blocks are read. For tests; call it without the node's lock."""
        while any(read not in self._done for read in list(self._reading.values())):
            passed = threading.Event()
            self._queue.put(passed)
            passed.wait()

    def stop(self) -> None:
        """End the threads. Call it with or without the node's lock."""
        for read in self._reading.values():
            read.cancelled = True
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def __del__(self) -> None:
        for _ in range(THREADS):
            self._queue.put(None)


def _read_all(queue: _Queue, done: deque[_Read], reads: ref[ColdReads]) -> None:
    """Read blocks in a thread. Holds no reference to the node, and ends when the node is freed."""
    codecs: dict[str, Codec] = {}
    while (item := queue.get()) is not None:
        if isinstance(item, threading.Event):
            item.set()
            continue
        item.do(codecs)
        done.append(item)
        del item
        owner = reads()
        if owner is None:
            return
        if owner.wake is not None:
            owner.wake()
        del owner
