"""Checkpoints: images of the store, so that the journal stays short and a start is quick.

    end of a turn, or BGREWRITEAOF ──▶ step: Journal.rotate
                                        │
    thread ── starts a helper process, waits ──▶ image-NNNNNN, durable
                                        │
    under the node's lock ──▶ Journal.use_image: the manifest names the image; then old files are removed
                                        │
    compactions.py ◀────────────────────┘

Rule 1. Turns continue while an image is written. Only the rotation and the replacement of the manifest
        are done under the node's lock.
Rule 2. One checkpoint runs at a time. One that fails is tried again after growing pauses, up to
        `_LONGEST_PAUSE_S`. Until then the journal has everything, as if no checkpoint had begun.
Rule 3. If no helper process can be started, the store writes images itself (`write_now`), between turns: when
        it is opened or closed, on request, and when the disk is full.

Source: redis.conf, auto-aof-rewrite-percentage and auto-aof-rewrite-min-size.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress

from headwater.common.threads import NO_THREAD, started
from headwater.config.config import Config
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.errors import HeadwaterError
from headwater.journal.disk.files import DiskFiles
from headwater.journal.images.rotation import Rotation
from headwater.journal.log.journal import Journal
from headwater.persistence.building import checkpoint
from headwater.persistence.digest import source_digest
from headwater.persistence.order import CheckpointFailed, CheckpointOrder
from headwater.persistence.process import HelperProcess, can_start
from headwater.server.services.records import TurnRecords
from headwater.server.services.state import DISK_IS_FULL, NEVER, NodeState
from headwater.server.services.storage.checkpoint_statistics import CheckpointStatistics
from headwater.server.services.storage.compactions import Compactions
from headwater.server.services.storage.segments import Segments
from headwater.server.services.turn_clock import TurnClock

log = logging.getLogger("headwater.server")

TAIL_BYTES = 16 * 1024 * 1024
"""Growth of the journal since the last image, in bytes, from which a clean stop writes an image: replaying that
much would take a tenth of a second."""

STATE_BYTES = 2 * 1024 * 1024 * 1024
"""Size of the entries, in bytes, from which a clean stop writes no image: writing one would take some ten seconds,
and a service manager does not wait longer than a minute or two."""

_SHORTEST_PAUSE_S, _LONGEST_PAUSE_S = 5.0, 600.0
_LONGEST_AFTER = 7
"""Number of failures in a row after which the pause no longer grows."""
_LEAST_GROWTH_BYTES = 64 * 1024
"""Minimum growth for an automatic checkpoint: ``auto-aof-rewrite-min-size 0`` would begin one in each turn."""
_PATIENCE_S = 0.1


class Checkpoints:
    """The checkpoints of a node. All methods but those of the thread require the node's lock."""

    def __init__(
        self,
        config: Config,
        state: NodeState,
        times: TurnClock,
        records: TurnRecords,
        compactions: Compactions,
        lock: threading.RLock,
    ) -> None:
        self.statistics = CheckpointStatistics(times.wall_now() // 1000)
        self._config = config
        self._state = state
        self._times = times
        self._records = records
        self._lock = lock
        self._compactions = compactions
        self._journal: Journal | None = None
        self._segments: Segments | None = None
        self._keyspace: Keyspace | None = None
        self._thread: threading.Thread | None = None
        self._helper: HelperProcess | None = None
        self._stopped = False
        self._failures = 0
        self._retry_at = 0.0
        self._damaged = False
        """True if the last checkpoint found damage in a file that a start would read."""

    def use(self, journal: Journal, segments: Segments, keyspace: Keyspace) -> None:
        """Write checkpoints of ``keyspace``, which ``journal`` describes, from now on."""
        self._journal, self._segments, self._keyspace = journal, segments, keyspace
        if self._has_helper:
            with suppress(OSError):  # a checkpoint tries again, and reports it
                source_digest()  # now: an upgrade of the package may follow
        self.configure(self._config)
        if not self._has_helper and self._tail_is_long():
            self.write_now()

    def configure(self, config: Config) -> None:
        """Apply the settings of the triggers, and of the time for which replaced files are kept."""
        self._config = config
        if self._journal is not None:
            self._journal.catalog.retention.keep_ms = config.journal_retention * 1000
            self._state.checkpoint_at = self._next()

    @property
    def _has_helper(self) -> bool:
        """True if a helper process can be started, and can read the files."""
        return (
            self._journal is not None and isinstance(self._journal.files, DiskFiles) and can_start()
        )

    def _growth(self) -> int:
        """Return the number of bytes by which the journal may grow before the next automatic checkpoint. Without a
        helper, only a full disk causes one."""
        share = self._config.auto_aof_rewrite_percentage
        if self._journal is None or not share:
            return NEVER
        if not self._has_helper:
            return DISK_IS_FULL
        image = self._journal.image
        size = 0 if image is None else image.size
        least = self._config.auto_aof_rewrite_min_size - size
        return max(least, size * share // 100, _LEAST_GROWTH_BYTES)

    def _next(self) -> int:
        """Return the result of `_growth`, or -1 if a checkpoint was requested."""
        return -1 if self.statistics.requested else self._growth()

    # --- beginning ------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """True if a checkpoint was requested or is being written."""
        return self.statistics.requested != "" or self._thread is not None

    def request(self, command: str) -> None:
        """Begin a checkpoint at the end of this turn, or after the one that is running. ``command`` is ``save`` or
        ``rewrite``, which differ only in the fields of INFO."""
        assert self._journal is not None, "the command checks that there is a journal"
        self.statistics.requested = command
        self._retry_at = 0.0
        if self._thread is None:
            self._state.checkpoint_at = -1

    def due(self) -> bool:
        """Return whether the end of a turn would begin a checkpoint."""
        wanted = (
            self._journal is not None and self._records.grown_bytes >= self._state.checkpoint_at
        )
        return wanted and self._times.monotonic() >= self._retry_at

    def step(self) -> None:
        """Begin a checkpoint, if one is due. Called between turns, after a commit."""
        if self._thread is not None or self._stopped or self._journal is None:
            self._state.checkpoint_at = NEVER
            return
        if self._times.monotonic() < self._retry_at:
            return
        self._state.checkpoint_at = NEVER
        if not self._has_helper:
            self.write_now()
            return
        self.statistics.begin(self._times.monotonic())
        try:
            rotation = self._journal.rotate()
        except Exception as error:
            self._failed(_reason(error))
            return
        self._records.count_again()
        assert self._keyspace is not None
        assert self._segments is not None
        self.statistics.changes_begun = self._keyspace.dirty
        arguments = (self._journal, rotation, self._segments.floor())
        thread = threading.Thread(
            target=self._run, args=arguments, name="headwater-checkpoint", daemon=True
        )
        if started(thread):
            self._thread = thread
        else:
            self._failed(NO_THREAD)

    # --- in the thread --------------------------------------------------------------------------

    def _run(self, journal: Journal, rotation: Rotation, floor: int) -> None:
        failure, damaged = "", False
        try:
            self._checkpoint(journal, rotation, floor)
        except Exception as error:
            failure = _reason(error)
            damaged = isinstance(error, CheckpointFailed) and error.damaged
        if failure:
            with suppress(OSError):
                journal.catalog.discard_image(rotation.image)
        if not self._acquire():
            return
        try:
            self._thread = None
            if failure:
                self._failed(failure, damaged=damaged)
            else:
                self._succeeded()
                self._compactions.begin()
        finally:
            self._lock.release()

    def _checkpoint(self, journal: Journal, rotation: Rotation, floor: int) -> None:
        order = CheckpointOrder(
            journal.files.path(""),
            source_digest(),
            journal.seed,
            journal.image,
            rotation,
            self._config.stream_hot_bytes,
            self._config.stream_compression,
        )
        self._helper = HelperProcess(order)
        if self._stopped:
            self._helper.end()
        built = self._helper.wait()
        self._helper = None
        if not self._acquire():
            return
        segments, keyspace = self._segments, self._keyspace
        assert segments is not None
        assert keyspace is not None
        try:
            journal.use_image(rotation, built.entry)
            unneeded = segments.unneeded(floor, built.segments, keyspace.sealing.segments())
        finally:
            self._lock.release()
        # The lock is not held, because removing a large file takes milliseconds.
        journal.remove_replaced()
        segments.remove(unneeded)

    def _acquire(self) -> bool:
        """Acquire the node's lock. Return False, without the lock, if the node is stopping, because the node then
        waits for this thread."""
        while not self._lock.acquire(timeout=_PATIENCE_S):
            if self._stopped:
                return False
        if self._stopped:
            self._lock.release()
            return False
        return True

    # --- ending ---------------------------------------------------------------------------------

    def _succeeded(self) -> None:
        assert self._journal is not None
        image = self._journal.image
        assert image is not None
        took = self.statistics.succeed(self._times.monotonic(), self._times.wall_now() // 1000)
        self._failures, self._retry_at, self._damaged = 0, 0.0, False
        self._records.image_written()
        self._state.checkpoint_at = self._next()
        log.info(
            "checkpoint: image %d of %d bytes was written in %.1f s", image.number, image.size, took
        )

    def _failed(self, reason: str, *, damaged: bool = False) -> None:
        self._failures, self._damaged = self._failures + 1, damaged
        self.statistics.fail(self._times.monotonic())
        self._records.count_again()
        doubled = 2 ** min(self._failures - 1, _LONGEST_AFTER)
        pause = min(_LONGEST_PAUSE_S, _SHORTEST_PAUSE_S * doubled)
        if not self.statistics.requested:
            self._retry_at = self._times.monotonic() + pause
        self._state.checkpoint_at = self._next()
        if damaged:
            log.critical(
                "checkpoint: no image was written, and a start would be refused. The state in memory is "
                "complete: do not change any file and do not kill this server, but stop it with SIGTERM or "
                "SHUTDOWN. It then writes an image of that state, which replaces the damaged file. What was "
                "found: %s",
                reason,
            )
            return
        log.error(
            "checkpoint: no image was written: %s. The journal has everything; the next attempt is in "
            "%.0f seconds or later",
            reason,
            pause,
        )

    def stop(self) -> None:
        """End the helper and the thread. Call it with or without the node's lock."""
        self._stopped = True
        self._compactions.stop()
        helper, thread = self._helper, self._thread
        if helper is not None:
            helper.end()
        if thread is not None:
            thread.join()

    def resume(self) -> None:
        """Write checkpoints again after `stop`."""
        self._stopped = False
        self._compactions.resume()

    # --- in this process ------------------------------------------------------------------------

    def finish(self) -> None:
        """Write an image at a clean stop if a file is damaged or, except after SHUTDOWN NOSAVE, if replaying the
        journal would take long, the last checkpoint failed, or only save points keep the data."""
        least = TAIL_BYTES if self._config.appendonly and not self._failures else 1
        wanted = self._state.writes_image_at_stop and self._tail_is_long(least)
        if wanted or self._damaged:
            self.write_now()

    def _tail_is_long(self, least: int = TAIL_BYTES) -> bool:
        if self._journal is None or self._keyspace is None:
            return False
        if not self._has_helper:
            least = min(least, self._config.auto_aof_rewrite_min_size)
        sealing = self._keyspace.sealing
        state = sealing.hot_bytes + sealing.kept_bytes + sealing.sealed_bytes
        return self._journal.grown_bytes >= least and state < STATE_BYTES

    def write_now(self) -> None:
        """Write an image in this thread, between turns. A failure of any kind is logged: the journal has everything."""
        assert self._journal is not None
        assert self._keyspace is not None
        assert self._segments is not None
        self.statistics.begin(self._times.monotonic())
        self.statistics.changes_begun = self._keyspace.dirty
        floor = self._segments.floor()
        try:
            checkpoint(self._journal, self._keyspace)
        except Exception as error:
            self._failed(_reason(error))
        else:
            self._succeeded()
            live = self._keyspace.sealing.segments()
            self._segments.remove(self._segments.unneeded(floor, live))


def _reason(error: Exception) -> str:
    """Return the reason why a checkpoint failed. Log the traceback of an internal error."""
    if isinstance(error, (CheckpointFailed, HeadwaterError, OSError)):
        return str(error) or repr(error)
    log.error("checkpoint: an internal error", exc_info=error)
    return repr(error)
