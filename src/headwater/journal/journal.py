"""What is durable: groups of facts in numbered files, appended turn by turn.

    journal = Journal.open(DiskFiles(directory), policy="always")
    for group in journal.replay():          # once, to its end, before anything is written
        apply(group.facts, group.now_ms)
    …
    reason = journal.admits(len(buffer) + size)     # before the first mutator of a command
    journal.commit(buffer)                          # once a turn, before the first reply
    …
    journal.close()

Rule 1. A group is in one file. A full file is followed by the next; a file that is begun for a
        larger group is as large as it.
Rule 2. A file is fsynced before the next is written to. The first group after an fsync is our own
        and says how far it reached; a clean stop ends with such a group.
Rule 3. The reserve: what `admits` let in is written to space that is already allocated, in this file
        or the next, which is made when this one is begun. `admits` allocates when the reserve is too
        small; that this fails is a reason to refuse, and the only thing here that is tried again.
Rule 4. A write or fsync that fails poisons the journal: `NodePoisoned` from then on, from every
        call. An fsync is never repeated, because a second one would succeed without the data.

The files: `headwater.journal.records` draws them, `headwater.journal.recovery` reads them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Literal, NoReturn

from headwater.clock import Clock, SystemClock
from headwater.config.storage import FsyncPolicy
from headwater.errors import ForkedStore, NodePoisoned, StoreUnusable
from headwater.journal.files import Files
from headwater.journal.flusher import INTERVAL_SECONDS, Flusher
from headwater.journal.records import (
    FILE_HEADER_BYTES,
    SYNCED_GROUP_BYTES,
    Group,
    group_at,
)
from headwater.journal.recovery import Recovery
from headwater.journal.repair import repair
from headwater.journal.reserve import Reserve
from headwater.journal.statistics import JournalStatistics
from headwater.journal.writing import Writer
from headwater.limits import JOURNAL_FILE_BYTES, MAX_RECORD_GROUP_BYTES


class Journal:
    """A journal that is open for replay, then for writing. Made by `open` only.

    One thread at a time may call it: the one that holds the node's lock.
    """

    seed: int
    """Goes into every record's checksum: an argument of `records.seal_group`."""

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
        """Hold the directory and look at the journal in it; an empty directory is a new journal.

        ``seed`` and ``flush_interval`` (seconds) are for tests. Raises `StoreInUse`,
        `StoreUnusable` and `JournalDamaged`; the directory is let go then.
        """
        files.lock()
        try:
            return cls(files, policy, file_bytes, clock or SystemClock(), seed, flush_interval)
        except OSError as error:
            files.unlock()
            raise StoreUnusable(
                f"the journal in {files.path('')} cannot be read: {error}. Check the disk and the "
                "rights of the directory."
            ) from error
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
        """What was found, complete when `replay` has ended: last_turn, cuts, notes and more."""
        if self.recovery.seed is not None:
            seed = self.recovery.seed
        self.seed = int.from_bytes(os.urandom(4), "little") if seed is None else seed
        self.policy: FsyncPolicy = policy
        self.failure: str | None = None
        """Why the journal is poisoned; None while it is not. The node looks at it every turn."""
        self._pid = os.getpid()
        self._files = files
        self._flusher = Flusher(
            files, clock=clock, on_failure=self._poison, interval=flush_interval
        )
        self._reserve = Reserve(files, file_bytes, self.seed)
        self._state: Literal["replay", "open", "closed"] = "replay"
        self.allowance = -1  # bytes of a turn's groups that need not be asked for
        self._writer = Writer(files, self.seed)
        self._before = 0
        self._base = 0
        self._owed = False
        self._durable_turn = 0
        self._fsyncs = 0

    # --- starting -------------------------------------------------------------------------------

    def replay(self) -> Iterator[Group]:
        """The engine's groups that the files hold, oldest first; each group's facts are valid until
        the next is asked for. When it ends, tails are cut off and the journal can be written.

        Raises `JournalDamaged` at a damaged place, with nothing on disk changed, and
        `StoreUnusable` when the disk cannot be read or written. A replay that does not reach its
        end, for whatever reason, closes the journal.
        """
        assert self._state == "replay", "replayed twice"
        try:
            yield from self.recovery.replay()
            self._begin()
        except OSError as error:
            self.close()
            raise StoreUnusable(
                f"the journal in {self._files.path('')} cannot be recovered: {error}. Check the "
                "disk and start again: nothing that was acknowledged has been given up."
            ) from error
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        recovery, writer = self.recovery, self._writer
        if recovery.seed is None:
            reason = self._reserve.make_next(1, 0)
            if reason is not None:
                raise StoreUnusable(
                    f"no journal can be begun in {self._files.path('')}: {reason}. Free some space "
                    "or give the process the right to write there."
                )
            writer.use(self._reserve.take(), FILE_HEADER_BYTES)
        else:
            repair(self._files, recovery)
            writer.use(recovery.current, recovery.end)
            self._reserve.adopt(recovery.spares)
            if not self._reserve.reclaim(recovery.current):
                # Its space is not ours for certain, so it counts as full.
                writer.size = 0
        self._before = max(0, recovery.bytes - writer.end)
        self._base = self._before + writer.end
        writer.vouch, writer.clean = writer.here(), recovery.clean
        writer.turn, writer.now_ms = recovery.last_turn, recovery.last_now_ms
        self._durable_turn = recovery.last_turn
        self._state = "open"
        self._reserve.ahead(writer.number + 1)
        self._measure()
        self._start_flusher()

    def _start_flusher(self) -> None:
        if self.policy == "everysec":
            self._flusher.start()

    # --- the reserve ----------------------------------------------------------------------------

    def admits(self, nbytes: int) -> str | None:
        """None when ``nbytes`` can be committed at once: all groups of the turn so far, headers
        included, and what the next command will add. Else the reason why not.

        Allocates when the reserve is too small. Raises `NodePoisoned`.
        """
        if nbytes <= self.allowance:
            return None
        self._check()
        if nbytes > MAX_RECORD_GROUP_BYTES:
            return f"{nbytes} bytes of facts are more than {MAX_RECORD_GROUP_BYTES}, the limit"
        reason = self._reserve.make_next(self._writer.number + 1, nbytes)
        self._measure()
        return reason

    def _measure(self) -> None:
        """Whatever fits in the rest of this file or in the next fits, however it is divided."""
        here = self._writer.size - self._writer.end - 2 * SYNCED_GROUP_BYTES
        self.allowance = -1 if self.failure is not None else max(here, self._reserve.room())

    # --- writing --------------------------------------------------------------------------------

    def commit(self, buffer: bytearray, *, sync: bool = True) -> None:
        """Write the turn's sealed groups and empty ``buffer``; under ``always`` they are durable
        when this returns, under ``everysec`` a second later.

        ``sync=False`` is for groups that nobody waits for (consumers' seen times): they become
        durable with whatever follows. Raises `NodePoisoned`; then nothing may be answered.
        """
        self._check()
        if not buffer:
            return
        writer = self._writer
        try:
            if self.policy == "everysec":
                self._flusher.wait_if_late()
                writer.vouch = self._flusher.take_synced() or writer.vouch
            if len(buffer) <= writer.room():
                writer.append(buffer, 0, len(buffer))
            else:
                self._append_across_files(buffer)
            if sync and (self.policy == "always" or self._owed):
                self._sync()
                self._owed = False
            elif sync and self.policy == "everysec":
                self._flusher.wrote(writer.number, writer.end, writer.turn)
            # After the fsync: a new file is begun, so the next one is made now.
            self._reserve.ahead(writer.number + 1)
            self._measure()
        except BaseException as error:
            self._fail(error)
        del buffer[:]
        self._check_failure()

    def _append_across_files(self, buffer: bytearray) -> None:
        """As many groups as fit go into this file, the others into the next."""
        start = end = 0
        while end < len(buffer):
            _turn, _now_ms, next_end = group_at(buffer, end)
            if next_end - start <= self._writer.room():
                end = next_end
                continue
            if end > start:
                self._writer.append(buffer, start, end)
                start = end
            self._rotate(next_end - start)
        self._writer.append(buffer, start, end)

    def _rotate(self, needed: int) -> None:
        """Go on in the next file, which has room for ``needed`` bytes."""
        writer = self._writer
        self._sync()
        self._durable_turn = max(self._durable_turn, writer.turn - 1)  # more of it may come
        writer.vouch = writer.here()
        if self._reserve.room() < needed:
            reason = self._reserve.make_next(writer.number + 1, needed)
            assert reason is None, f"{needed} bytes were not admitted: {reason}"
        self._files.close(writer.name)
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

    # --- policy, figures, end -------------------------------------------------------------------

    def set_policy(self, policy: FsyncPolicy) -> None:
        """Change ``appendfsync``; what was written under the old policy is made durable first, and so
        is the turn that leaves ``always``: others may have been told already that they are safe."""
        self._check()
        try:
            self._flusher.stop()
            self._sync()
            self._durable_turn = self._writer.turn
        except BaseException as error:
            self._fail(error)
        self._owed |= self.policy == "always" and policy != "always"
        self.policy = policy
        self._start_flusher()

    def statistics(self) -> JournalStatistics:
        """Figures for INFO; the only call that a poisoned journal answers."""
        flusher = self._flusher
        return JournalStatistics(
            current_bytes=self._before + self._writer.end,
            base_bytes=self._base,
            files=self._writer.number,
            fsyncs=self._fsyncs + flusher.fsyncs,
            delayed_fsyncs=flusher.delayed,
            durable_turn=max(self._durable_turn, flusher.synced_turn),
            failure=self.failure,
            refusal=self._reserve.refusal,
        )

    def close(self) -> None:
        """A clean stop: everything is durable and the journal says so; the directory is let go.

        A journal that is poisoned or was not replayed to its end is let go as it is. Raises
        `NodePoisoned` when the last writes fail. Closing twice does nothing.
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
            self._files.unlock()

    def _finish(self) -> None:
        self._sync()
        if not self._writer.clean:
            self._writer.end_cleanly()
            self._sync()

    # --- failing --------------------------------------------------------------------------------

    def _refuse_after_fork(self) -> None:
        # Not by the generation (`headwater.forks`): whoever forks in C need not tell Python of it.
        if os.getpid() != self._pid:
            raise ForkedStore(
                f"the journal in {self._files.path('')} belongs to process {self._pid}, which made "
                "this one by fork. Open the store after the fork, or connect over a socket."
            )

    def _check_failure(self) -> None:
        if self.failure is not None:
            raise NodePoisoned(self.failure)

    def _check(self) -> None:
        self._check_failure()
        self._refuse_after_fork()
        assert self._state == "open", f"a journal in state {self._state} is not written"

    def _poison(self, error: BaseException) -> None:
        """Remember the first failure."""
        if self.failure is None:
            self.failure = (
                f"{self._files.path(self._writer.name)} could not be written: {error!r}. Commands "
                "have run that are not durable, so nothing more is answered from this state. See "
                "to the disk and restart: what was acknowledged is in the journal."
            )
        self.allowance = -1

    def _fail(self, error: BaseException) -> NoReturn:
        """Poisoned, whatever it was: after an interruption nobody knows what has been written."""
        self._poison(error)
        if isinstance(error, OSError | AssertionError):
            raise NodePoisoned(self.failure) from error
        raise error
