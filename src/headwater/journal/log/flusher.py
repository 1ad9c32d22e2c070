"""The thread of ``appendfsync everysec``: one fsync a second while there is unsynced data.

Rule 1. One fsync runs at a time. Bytes written before it began are durable when it returns.
Rule 2. A failed fsync is never repeated: it is reported, and nothing is flushed after it.
Rule 3. Only the thread that runs the turn calls `wrote` and `forget`. `wrote` needs no lock: it sets one
        attribute, and only the latest value counts.
Rule 4. A turn waits for an fsync only if the fsync has been running for two seconds. Then the disk
        does not keep up, and more than one second of writes could be lost (Redis does the same, and
        counts it in ``aof_delayed_fsync``).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from headwater.common.clock import Clock
from headwater.common.log_limit import LimitedLog
from headwater.common.threads import NO_THREAD, started
from headwater.config.storage import FsyncPolicy
from headwater.errors import StoreUnusable
from headwater.journal.disk.files import Files
from headwater.journal.format.names import file_name
from headwater.journal.format.records import Synced

log = logging.getLogger("headwater.journal")

INTERVAL_SECONDS = 1.0
LATE_SECONDS = 2.0


class Flusher:
    """Flushes the bytes that `wrote` reported. `take_synced` returns the end of the bytes that an fsync flushed.

    ``on_failure`` is called in the flusher's thread with the exception of a failed fsync.
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
        """Number of times that a turn had to wait for an fsync."""
        self.fsyncs = 0
        self.synced_turn = 0
        """The last turn that an fsync has made durable."""
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
        """The value of ``_written``, the same object, for which an fsync was started or is not needed."""
        self._synced: Synced | None = None
        self._since: float | None = None
        self._failed = False
        self._looked = 0.0

    def use(self, policy: FsyncPolicy) -> None:
        """Start flushing if this policy needs it. Raises `StoreUnusable` if no thread can be started."""
        if policy == "everysec":
            self.start()

    def start(self) -> None:
        """Start flushing once a second, also after a `stop`."""
        self._stopped.clear()
        self._looked = self._clock.monotonic()
        thread = threading.Thread(target=self._run, name="headwater-fsync", daemon=True)
        if not started(thread):
            raise StoreUnusable(
                f"appendfsync everysec needs a thread, but {NO_THREAD}: raise the limit, or use appendfsync always"
            )
        self._thread = thread

    def stop(self) -> None:
        """Stop the thread after any running fsync. Unsynced data stays unsynced."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def wrote(self, number: int, end: int, turn: int) -> None:
        """Report that file ``number`` was written up to ``end``, and that ``turn`` was the last turn written.
        The next fsync includes it."""
        self._written = number, end, turn

    def take_synced(self) -> Synced | None:
        """Return the end of the bytes that the last fsync flushed; None if no fsync ended since the last call."""
        if self._synced is None:
            return None
        with self._changed:
            synced, self._synced = self._synced, None
        return synced

    def flush_once(self) -> bool:
        """Run one fsync if there is unsynced data. Return False if there was none or the fsync failed."""
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

    def late_s(self) -> float:
        """Return the time since the thread last looked for unsynced data, in seconds; 0 if it does not run. Any
        thread may call this."""
        return 0.0 if self._thread is None else max(0.0, self._clock.monotonic() - self._looked)

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
        """Wait for any running fsync."""
        with self._changed:
            while self._since is not None:
                self._changed.wait()

    def forget(self) -> None:
        """Wait for any running fsync, and do not flush the bytes written so far: the caller's own fsync will
        include them."""
        with self._changed:
            self._taken = self._written
            while self._since is not None:
                self._changed.wait()
            self._synced = None

    def _run(self) -> None:
        while not self._stopped.wait(self._interval):
            self._looked = self._clock.monotonic()
            self.flush_once()
            if self._failed:
                return
