"""The thread of ``appendfsync everysec``: an fsync a second while something is not durable.

Rule 1. One fsync at a time. What was written before it began is durable when it returns.
Rule 2. An fsync that fails is never tried again: it is reported, and nothing is flushed after it.
Rule 3. One thread calls `wrote` and `forget`, the turn's. It says what it wrote without a lock, by
        setting one name: what was said last is what counts.
Rule 4. A turn does not wait for an fsync that runs, unless it has run for two seconds: then the disk
        does not keep up, and to go on would make the promised second longer and longer (Redis does
        the same, and counts it in ``aof_delayed_fsync``).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from headwater.clock import Clock
from headwater.journal.files import Files
from headwater.journal.names import file_name
from headwater.journal.records import Synced
from headwater.log_limit import LimitedLog

log = logging.getLogger("headwater.journal")

INTERVAL_SECONDS = 1.0
LATE_SECONDS = 2.0


class Flusher:
    """Flushes what `wrote` was told of; `take_synced` says how far the last fsync reached.

    ``on_failure`` is called in the flusher's thread with the error of the fsync.
    """

    def __init__(
        self,
        files: Files,
        *,
        clock: Clock,
        on_failure: Callable[[Exception], None],
        interval: float = INTERVAL_SECONDS,
    ) -> None:
        self.delayed = 0
        """How often a turn had to wait."""
        self.fsyncs = 0
        self.synced_turn = 0
        """The last turn that an fsync has covered."""
        self._files = files
        self._clock = clock
        self._log = LimitedLog(log, monotonic=clock.monotonic)
        self._on_failure = on_failure
        self._interval = interval
        self._changed = threading.Condition()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._written: tuple[int, int, int] | None = None
        self._taken: tuple[int, int, int] | None = None
        """What of ``_written`` an fsync was begun for, or needs none: the same object."""
        self._synced: Synced | None = None
        self._since: float | None = None
        self._failed = False

    def start(self) -> None:
        """Begin to flush once a second, again after a `stop`."""
        self._stopped.clear()
        self._thread = threading.Thread(target=self._run, name="headwater-fsync", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread, after the fsync that may be running; what is dirty stays so."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def wrote(self, number: int, end: int, turn: int) -> None:
        """File ``number`` has been written up to ``end``, the last of ``turn``; the next fsync is to
        cover it."""
        self._written = number, end, turn

    def take_synced(self) -> Synced | None:
        """How far the last fsync reached, once."""
        if self._synced is None:
            return None
        with self._changed:
            synced, self._synced = self._synced, None
        return synced

    def flush_once(self) -> bool:
        """One fsync, if anything is dirty; False when nothing was done or it failed."""
        with self._changed:
            written = self._written
            if written is None or written is self._taken or self._failed:
                return False
            self._taken = written
            self._since = self._clock.monotonic()
        number, end, turn = written
        failure: Exception | None = None
        self.fsyncs += 1
        try:
            self._files.sync(file_name(number))
        except Exception as error:
            failure = error
        if failure is not None:
            self._failed = True
            self._on_failure(failure)
        with self._changed:
            self._since = None
            if failure is None:
                self._synced = Synced(number, end)
                self.synced_turn = turn
            self._changed.notify_all()
        return failure is None

    def wait_if_late(self) -> None:
        """Wait for an fsync that has been running for two seconds or more."""
        since = self._since
        if since is None or self._clock.monotonic() - since < LATE_SECONDS:
            return
        self.delayed += 1
        # Precedent: Redis, aof.c, "Asynchronous AOF fsync is taking too long".
        self._log.warning(
            "an fsync of the journal has been running for %.1f seconds (is the disk busy?): writes "
            "wait until it ends",
            self._clock.monotonic() - since,
        )
        self.wait_until_idle()

    def wait_until_idle(self) -> None:
        """Wait for the fsync that may be running."""
        with self._changed:
            while self._since is not None:
                self._changed.wait()

    def forget(self) -> None:
        """Wait for the fsync that may be running, and flush nothing that was written before this:
        the caller's own fsync will cover it."""
        with self._changed:
            self._taken = self._written
            while self._since is not None:
                self._changed.wait()
            self._synced = None

    def _run(self) -> None:
        while not self._stopped.wait(self._interval):
            self.flush_once()
            if self._failed:
                return
