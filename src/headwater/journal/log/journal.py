"""The journal: groups of facts in numbered files, appended turn by turn.

    journal = Journal.open(DiskFiles(directory), policy="always")
    for batch in read_image(journal.files, journal.image, journal.seed):    # if there is an image
        …
    for batch in journal.batches():         # once, completely, before anything is written
        …
    reason = journal.admits(len(buffer) + size)     # before the first mutator of a command
    journal.commit(buffer)                          # once a turn, before the first reply
    rotation = journal.rotate()                     # between turns; another process makes the image
    journal.use_image(rotation, entry)              # then the older files: journal.remove_replaced()
    journal.close()

Rule 1. A group is in one file. A full file is followed by the next. A file that is created for a larger
        group is large enough for the group.
Rule 2. A file is fsynced before the next is written to. The first group after an fsync is the journal's
        own and names the end of the synced bytes. A clean stop ends with such a group.
Rule 3. The reserve: groups that `admits` accepts are written to allocated space, in this file or the
        next. The next file is created when this one is begun. `admits` allocates if the reserve is too
        small. If that fails, the write is refused; only this failure is ever retried.
Rule 4. A failed write or fsync poisons the journal: `admits`, `commit`, `rotate`, `use_image` and `set_policy`
        then raise `NodePoisoned`. An fsync is never repeated: a second one would succeed without the data.
Rule 5. Files are removed only after MANIFEST, durably, does not name them (`headwater.journal.images.catalog`).

The file format is in `headwater.journal.format.records`; `headwater.journal.log.recovery` reads it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator
from typing import Literal, NamedTuple, NoReturn

from headwater.common.clock import Clock, SystemClock
from headwater.common.limits import JOURNAL_FILE_BYTES, MAX_RECORD_GROUP_BYTES
from headwater.config.storage import FsyncPolicy
from headwater.errors import NodePoisoned, StoreUnusable
from headwater.journal.disk.files import Files
from headwater.journal.format.batches import JournalBatch
from headwater.journal.format.failures import forked, poisoned, unreadable, unrecoverable
from headwater.journal.format.manifest import ImageEntry, StoreHistory
from headwater.journal.format.names import file_name
from headwater.journal.format.records import (
    FILE_HEADER_BYTES,
    SYNCED_GROUP_BYTES,
    Synced,
    group_at,
)
from headwater.journal.images.rotation import Rotation
from headwater.journal.log.adopting import finish
from headwater.journal.log.flusher import INTERVAL_SECONDS, Flusher
from headwater.journal.log.recovery import Recovery
from headwater.journal.log.reserve import Reserve
from headwater.journal.log.starting import begin
from headwater.journal.log.tail import FileStart, JournalTail
from headwater.journal.log.writing import Writer


class Journal:
    """A journal that is open for replay and then for writing, created by `open` only. Only the thread that holds
    the node's lock may call its methods, except `remove_replaced`."""

    seed: int
    """Part of every record's checksum: an argument of `records.seal_group`."""

    @classmethod
    def open(
        cls,
        files: Files,
        *,
        policy: FsyncPolicy,
        file_bytes: int = JOURNAL_FILE_BYTES,
        clock: Clock | None = None,
        seed: int | None = None,
        flush_interval: float = INTERVAL_SECONDS,
    ) -> Journal:
        """Lock the directory and examine the journal in it. An empty directory is a new journal.

        ``clock``, ``seed`` and ``flush_interval`` (seconds) are for tests. Raises `StoreInUse`,
        `StoreUnusable` and `JournalDamaged`; the directory is then unlocked.
        """
        files.lock()
        try:
            # A helper of a killed server may still be writing an image.
            files.lock_images()
            files.unlock_images()
            # This creates the file that backups lock: they only read the directory, and create nothing.
            with files.removable():
                pass
            finish(files)
            return cls(files, policy, file_bytes, clock or SystemClock(), seed, flush_interval)
        except OSError as error:
            files.unlock()
            raise unreadable(files, error) from error
        except BaseException:
            files.unlock()
            raise

    def __init__(
        self,
        files: Files,
        policy: FsyncPolicy,
        file_bytes: int,
        clock: Clock,
        seed: int | None,
        flush_interval: float,
    ) -> None:
        self.recovery = Recovery(files)
        """The findings of the recovery, complete when `batches` has ended: last_turn, cuts, notes and more."""
        self.catalog = self.recovery.catalog
        if self.recovery.seed is not None:
            seed = self.recovery.seed
        self.seed = int.from_bytes(os.urandom(4), "little") if seed is None else seed
        self.policy: FsyncPolicy = policy
        self.failure: str | None = None
        """Reason why the journal is poisoned; None if it is not. The node checks it every turn."""
        self._pid = os.getpid()
        self.files = files
        self._flusher = Flusher(
            files, clock=clock, on_failure=self._poison, interval=flush_interval
        )
        self._reserve = Reserve(files, self.catalog, file_bytes, self.seed)
        self._state: Literal["replay", "open", "closed"] = "replay"
        self.allowance = -1  # bytes of a turn's groups that `admits` accepts without checking
        self.grown_bytes = 0
        """Number of bytes of records that follow the image, as of the last commit."""
        self.offset = 0
        """Number of bytes of facts since the history of the store began (`Writer.append`), as of the last
        commit. With the history, it names the state."""
        self._writer = Writer(files, self.seed)
        self._before = 0
        self._base = 0
        self._owed = False
        self._durable_turn = 0
        self._fsyncs = 0

    # --- starting -------------------------------------------------------------------------------

    def batches(self) -> Generator[JournalBatch]:
        """Yield the engine's groups in the journal files, which follow `image`, oldest first. A batch is valid
        until the next one is requested. At the end, tails are cut off and the journal becomes writable.

        Raises `JournalDamaged` at a damaged place, without having changed the disk, and `StoreUnusable` if
        the disk cannot be read or written. If the iteration does not reach its end, for any reason, the
        journal is closed.
        """
        assert self._state == "replay", "replayed twice"
        try:
            yield from self.recovery.batches()
            self._begin()
        except OSError as error:
            self.close()
            raise unrecoverable(self.files, error) from error
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        begin(self.files, self.recovery, self._reserve, self._writer, self.seed)
        self._before = self.catalog.closed_bytes
        self._durable_turn = self.recovery.last_turn
        self.offset = self.recovery.offset
        self._state = "open"
        self._measure()
        self._base = self.total_bytes
        self._flusher.use(self.policy)

    # --- the reserve ----------------------------------------------------------------------------

    def admits(self, nbytes: int) -> str | None:
        """Return None if ``nbytes`` can be committed: all groups of the turn so far, including headers, and
        the groups that the next command will add. Otherwise return the reason why not.

        Allocates if the reserve is too small. Raises `NodePoisoned`.
        """
        if nbytes <= self.allowance:
            return None
        self._check()
        if nbytes > MAX_RECORD_GROUP_BYTES:
            return f"{nbytes} bytes of facts exceed the limit of {MAX_RECORD_GROUP_BYTES}"
        reason = self._reserve.make_next(self._writer.number + 1, nbytes)
        self._measure()
        return reason

    def _measure(self) -> None:
        """Compute ``grown_bytes`` and ``allowance``. Groups can be written if their total size fits into the rest
        of this file, or into the next file, however they are divided between the two."""
        self.grown_bytes = self._before + self._writer.end
        here = self._writer.size - self._writer.end - 2 * SYNCED_GROUP_BYTES
        self.allowance = -1 if self.failure is not None else max(here, self._reserve.room())

    # --- writing --------------------------------------------------------------------------------

    def commit(self, buffer: bytearray, *, sync: bool = True) -> int:
        """Write the sealed groups of the turn and clear ``buffer``. With ``always`` they are durable when
        this returns, with ``everysec`` about a second later. Return `grown_bytes`.

        ``sync=False`` is for groups that no client waits for (consumers' seen times): they become durable
        with later ones. Raises `NodePoisoned`; then no reply may be sent.
        """
        self._check()
        if not buffer:
            return self.grown_bytes
        writer = self._writer
        try:
            if self.policy == "everysec":
                self._flusher.wait_if_late()
                writer.unrecorded_sync = self._flusher.take_synced() or writer.unrecorded_sync
            if len(buffer) <= writer.room():
                self.offset += writer.append(buffer, 0, len(buffer))
            else:
                self._append_across_files(buffer)
            if sync and (self.policy == "always" or self._owed):
                self._sync()
                self._owed = False
            elif sync and self.policy == "everysec":
                self._flusher.wrote(writer.number, writer.end, writer.turn)
            # After the fsync: if a new file was begun, the next one is created now.
            self._reserve.prepare(writer.number + 1)
            self._measure()
        except BaseException as error:
            self._fail(error)
        del buffer[:]
        self._check_failure()
        return self.grown_bytes

    def _append_across_files(self, buffer: bytearray) -> None:
        """Write the groups that fit into this file to it, and the others to the next file."""
        start = end = 0
        while end < len(buffer):
            _turn, _now_ms, next_end = group_at(buffer, end)
            if next_end - start <= self._writer.room():
                end = next_end
                continue
            if end > start:
                self.offset += self._writer.append(buffer, start, end)
                start = end
            self._continue(next_end - start)
        self.offset += self._writer.append(buffer, start, end)

    def _continue(self, needed: int) -> None:
        """Continue in the next file, which has space for ``needed`` bytes."""
        writer = self._writer
        writer.leave()
        self._sync()
        self._durable_turn = max(self._durable_turn, writer.turn - 1)  # more of the turn may follow
        writer.unrecorded_sync = writer.here()
        if self._reserve.room() < needed:
            reason = self._reserve.make_next(writer.number + 1, needed)
            assert reason is None, f"{needed} bytes were not admitted: {reason}"
        self.files.close(writer.name)
        self.catalog.close_file(writer.here(), self.offset)
        self._before += writer.end
        writer.use(self._reserve.take(), FILE_HEADER_BYTES)

    def _sync(self) -> None:
        """Make everything written so far durable."""
        if self.policy == "everysec":
            self._flusher.forget()
            self._check_failure()
        if self._writer.unsynced:
            self._writer.sync()
            self._fsyncs += 1

    # --- images ---------------------------------------------------------------------------------

    @property
    def image(self) -> ImageEntry | None:
        """The image with which the store begins; None if it has no image."""
        return self.catalog.image

    @property
    def history(self) -> StoreHistory | None:
        """The history of the store; None during the replay of a new one."""
        found: StoreHistory | None = self.catalog.history
        return found

    @property
    def total_bytes(self) -> int:
        """The size of the image and of all records, in bytes."""
        return self.catalog.image_bytes + self.grown_bytes

    @property
    def record_bytes(self) -> int:
        """Number of bytes as in `grown_bytes`, without the header of a file that has no record yet."""
        return self._before + self._writer.end * (self._writer.end > FILE_HEADER_BYTES)

    def tail(self, offset: int) -> JournalTail | None:
        """Return a reader of the groups that follow ``offset`` of the store; None if no file has them any more."""
        if offset == self.offset:
            end = self.end()
            begin = FileStart(end.number, offset)
            return JournalTail(self.files, self.seed, begin, offset, end.offset)
        found = [one for one in self._starts() if one.offset <= offset <= self.offset]
        return JournalTail(self.files, self.seed, max(found), offset) if found else None

    def first_offset(self) -> int:
        """Return the first offset from which `tail` can read."""
        return min(one.offset for one in self._starts())

    def _starts(self) -> list[FileStart]:
        catalog = self.catalog
        image = catalog.image
        found = [FileStart(number + 1, at) for number, at in list(catalog.reached.items())]
        return [FileStart(catalog.first, 0 if image is None else image.offset), *found]

    def end(self) -> Synced:
        """Return the place up to which the journal is written, between two turns."""
        end: Synced = self._writer.here()
        return end

    def rotate(self) -> Rotation:
        """Make everything durable and continue in the next file, between two turns. Return the data for an
        image of the state. If nothing was written since the last rotation, no file is begun.

        Raises `StoreUnusable` if no next file can be created; nothing has changed then. Raises `NodePoisoned`.
        """
        self._check()
        writer, catalog = self._writer, self.catalog
        reason = self._reserve.secure(writer.number + 1)
        self._measure()
        if reason is not None:
            raise StoreUnusable(f"the journal cannot continue in another file: {reason}")
        if writer.end > FILE_HEADER_BYTES:
            try:
                self._end_file()
                ended = writer.here()
                self._continue(0)
                self._reserve.prepare(writer.number + 1)
                self._measure()
                self._give_back(ended)
            except BaseException as error:
                self._fail(error)
        return catalog.rotation(writer.number, writer.turn, writer.now_ms, self.offset)

    def _give_back(self, ended: Synced) -> None:
        """Cut off the space after the records of a file that a rotation has ended. Before that, save
        the end in MANIFEST if MANIFEST names a file after the next one (recovery.py, rule 4)."""
        catalog, name = self.catalog, file_name(ended.number)
        if catalog.last > self._writer.number:
            catalog.save_floor(ended)  # writes MANIFEST only if it does not say this yet
        with contextlib.suppress(OSError):  # it only gives back unused space
            self.files.truncate(name, ended.offset)
            self.files.close(name)

    def use_image(self, rotation: Rotation, entry: ImageEntry) -> None:
        """Begin the store with ``entry``, the image of ``rotation`` that `ImageWriter.finish` returned. Raises
        `OSError` if MANIFEST could not be replaced."""
        self._check()
        self.catalog.use_image(entry, rotation.first)
        self._before = self.catalog.closed_bytes
        self._measure()
        self._base = self.total_bytes

    def remove_replaced(self) -> None:
        """Remove the files that nothing names any more (`Catalog.remove_old`). Any thread may call this."""
        self.catalog.remove_old(expire=True)

    # --- policy, statistics, end ----------------------------------------------------------------

    def set_policy(self, policy: FsyncPolicy) -> None:
        """Change ``appendfsync``. Groups written under the old policy are made durable first. After ``always``,
        the commit of this turn is still fsynced: its earlier commands may have been reported as durable.

        Raises `StoreUnusable` if the policy needs a thread and none can be started; then nothing has changed."""
        self._check()
        changes = policy != self.policy
        try:
            if changes:
                self._flusher.stop()
            self._sync()
            self._durable_turn = self._writer.turn
        except BaseException as error:
            self._fail(error)
        if changes:
            self._flusher.use(policy)
        self._owed |= self.policy == "always" and policy != "always"
        self.policy = policy

    def statistics(self) -> JournalStatistics:
        """Return the statistics for INFO. Unlike other calls, this works on a poisoned journal."""
        return JournalStatistics(
            current_bytes=self.total_bytes,
            base_bytes=self._base,
            files=self._writer.number - self.catalog.first + 1,
            fsyncs=self._fsyncs + self._flusher.fsyncs,
            delayed_fsyncs=self._flusher.delayed,
            durable_turn=max(self._durable_turn, self._flusher.synced_turn),
            failure=self.failure,
            flusher_late_s=self._flusher.late_s(),
            refusal=self._reserve.refuses(self.allowance),
        )

    def close(self) -> None:
        """Stop cleanly: make everything durable, record that, and unlock the directory.

        A journal that is poisoned or was not replayed completely is closed unchanged. Raises `NodePoisoned`
        if the last writes fail. Closing twice does nothing.
        """
        if self._state == "closed":
            return
        self._refuse_after_fork()
        writable = self._state == "open"
        self._state = "closed"
        try:
            self._flusher.stop()
            if writable and self.failure is None:
                self._finish()
        except BaseException as error:
            self._fail(error)
        finally:
            self.files.unlock()

    def _finish(self) -> None:
        self._end_file()
        written = self._writer.end > FILE_HEADER_BYTES
        self.catalog.save_stop(self._writer.here() if written else self.catalog.floor, self.offset)

    def _end_file(self) -> None:
        """Make everything durable, and record that at the end of this file."""
        self._sync()
        if not self._writer.clean:
            self._writer.leave()
            self._writer.end_cleanly()
            self._sync()

    # --- failing --------------------------------------------------------------------------------

    def _refuse_after_fork(self) -> None:
        # Compares process ids rather than `headwater.common.forks`: a fork in C need not notify Python.
        if os.getpid() != self._pid:
            raise forked(self.files, self._pid)

    def _check_failure(self) -> None:
        if self.failure is not None:
            raise NodePoisoned(self.failure)

    def _check(self) -> None:
        self._check_failure()
        self._refuse_after_fork()
        assert self._state == "open", f"a journal in state {self._state} cannot be written"

    def _poison(self, error: BaseException) -> None:
        """Store the first failure."""
        if self.failure is None:
            self.failure = poisoned(self.files, self._writer.name, error)
        self.allowance = -1

    def _fail(self, error: BaseException) -> NoReturn:
        """Poison the journal after any error, even an interruption: it is unknown which bytes were written."""
        self._poison(error)
        if isinstance(error, OSError | AssertionError):
            raise NodePoisoned(self.failure) from error
        raise error


# --- statistics for INFO --------------------------------------------------------------------------


class JournalStatistics(NamedTuple):
    """The statistics of ``INFO persistence``. Sizes are bytes of records, not of allocated space."""

    current_bytes: int
    """Size of the image and of all records in journal files."""
    base_bytes: int
    """Value of ``current_bytes`` at the start, or when the last image was taken into use."""
    files: int
    """Number of journal files with records, including the one that is written."""
    fsyncs: int
    delayed_fsyncs: int
    durable_turn: int
    """The last turn that is known to be completely on disk. Not maintained with ``always``."""
    failure: str | None
    """Reason why nothing more is written until a restart; None if writing is possible."""
    flusher_late_s: float
    """Time since the flushing thread last looked for unsynced data, in seconds; 0 if the thread does not run."""
    refusal: str | None
    """Reason why writes are refused now: this file is nearly full, and no next one can be created. Else None."""
