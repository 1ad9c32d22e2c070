"""Quarantine, in which a suspected poison message runs with nothing else in its process.

    claimed ──▶ judge ──▶ condemned     ──▶ dead letter
                     ├──▶ suspect       ──▶ HERE, ONLY: drain, write its record, run alone
                     │                      ELSEWHERE: hand back for the quarantine process
                     └──▶ anything else ──▶ the handlers

Rule 1. While a suspect runs alone, its process runs nothing else and owns no other unsettled entry: every
        consumer hands back entries whose handlers have not begun, and waits for the running ones.
Rule 2. One suspect runs at a time. Other suspects are handed back meanwhile.
Rule 3. The time for draining is limited. After ``claim_after``, the suspect is handed back and the process
        continues. If a suspect runs alone for longer than ``claim_after``, other entries begin to run with it,
        except in the quarantine process.
Rule 4. Under a supervisor, one child, the quarantine process, handles only suspects, and other children are not
        drained. It does not connect until the supervisor names a group that has a suspect. Suspects of an ordered
        consumer are an exception: they run in the process that reads, so that they stay in order.

`headwater.groups.reading.poison` decides which deaths count against a message.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import partial
from typing import Any, Protocol

from headwater.groups.reading.poison import (
    NO_RECORD,
    Record,
    alone,
    forget,
    judged,
    outlived,
    sweep,
    write,
)
from headwater.groups.settling.settling import FINAL, SettleOutcome
from headwater.worker.declare.owned import Owned
from headwater.worker.run.pool import Pool
from headwater.worker.settle.in_flight import InFlight
from headwater.worker.settle.scope import Scope
from headwater.worker.settle.settle import Queued
from headwater.worker.store.waiting import within

log = logging.getLogger("headwater.worker")

HAND_BACK_DELAY_MS = 1_000
"""Delay of a suspect that a process hands back because it cannot run it now, in milliseconds."""

DRAIN_PAUSE_FACTOR = 10
"""Pause between a failed drain and the next one, as a multiple of ``claim_after``."""

WARN_AFTER_DRAINS = 3
"""Number of failed drains in a row from which each further one is logged as a warning."""

SWEEP_SECONDS = 60.0
"""Interval at which the records of messages that are no longer pending are found and deleted, in seconds."""


class Suspects(StrEnum):
    """The place where suspects run."""

    HERE = "here"
    """Suspects run in this process, alone: without a supervisor, and for ordered consumers."""
    ELSEWHERE = "elsewhere"
    """Suspects run in the quarantine process of the same supervisor."""
    ONLY = "only"
    """Suspects run in this process, which is the quarantine process and runs nothing else."""


class Pausable(Protocol):
    """The methods of a consumer's loop that `QuarantineLock` uses."""

    async def pause(self) -> None:
        """Stop reading, hand back entries whose handlers have not begun, and wait for the running ones."""

    def resume(self) -> None:
        """Continue reading."""


class QuarantineLock:
    """Lets one loop of a process at a time pause all others. ``tell`` is called with the stream and the group of a
    suspect that is handed back for the quarantine process."""

    def __init__(self, tell: Callable[[str, str], None] = lambda _stream, _group: None) -> None:
        self.loops: list[Pausable] = []
        self.tell = tell
        self._entered = False

    async def enter(self, loop: Pausable) -> bool:
        """Pause all other loops, and return True when they are paused. Return False if another loop has paused them
        or is pausing them."""
        if self._entered:
            return False
        self._entered = True
        try:
            await asyncio.gather(*(one.pause() for one in self.loops if one is not loop))
        except BaseException:
            self.leave(loop)
            raise
        return True

    def leave(self, loop: Pausable) -> None:
        """Resume all other loops."""
        self._entered = False
        for one in self.loops:
            if one is not loop:
                one.resume()


class Quarantine:
    """Judges the entries that one consumer claims, and runs its suspects alone."""

    def __init__(
        self,
        scope: Scope,
        loop: Pausable,
        *,
        suspects: Suspects,
        lock: QuarantineLock,
        in_flight: InFlight,
        pool: Pool,
        offer: Callable[[Sequence[Owned]], None],
    ) -> None:
        consumer = self._consumer = scope.consumer
        self._loop = loop
        self._suspects = suspects
        self._lock = lock
        self._in_flight = in_flight
        self._pool = pool
        self._offer = offer
        self._clock = scope.clock
        self._changes = scope.changes
        self._claim_after_seconds = consumer.claim_after_ms / 1000
        self._failed_drains = 0
        self._next_drain = 0.0
        self._sweep_at = 0.0
        self._settled: list[bytes] = []
        """Ids of settled messages whose records must be deleted."""
        self._tasks: set[asyncio.Task[Any]] = set()
        scope.hooks.settled.append(self._over)

    @property
    def hands_back(self) -> bool:
        """True if suspects are handed back, for the quarantine process or because a drain of this process failed
        recently."""
        too_early = self._clock.monotonic() < self._next_drain
        return self._suspects is Suspects.ELSEWHERE or too_early

    async def judge(self, claimed: Sequence[Owned]) -> None:
        """Judge claimed entries, and set the record of each. Old records are deleted every `SWEEP_SECONDS`."""
        if not claimed:
            return
        records: dict[bytes, Record] = await self._in_flight.ask(
            lambda member: judged(
                member,
                [owned.delivered for owned in claimed],
                leave=self._suspects is Suspects.ELSEWHERE,
                isolated=self._consumer.isolated,
                max_crashes=self._consumer.max_crashes,
            )
        )
        for owned in claimed:
            owned.judged(records.get(owned.id, NO_RECORD))
        if self._clock.monotonic() >= self._sweep_at:
            await self._in_flight.ask(sweep)
            self._sweep_at = self._clock.monotonic() + SWEEP_SECONDS

    def _over(self, queued: Queued, outcome: SettleOutcome) -> None:
        """Process the reply to a settlement."""
        if outcome.done and outcome.error is None and queued.settlement.how in FINAL:
            for owned in queued.entries:
                if owned.record is not NO_RECORD:
                    self._forget_soon(owned)

    def _forget_soon(self, owned: Owned) -> None:
        """Delete the record of a message that was settled and will not be delivered again."""
        if owned.record == NO_RECORD:
            return
        self._settled.append(owned.id)
        if all(task.done() for task in self._tasks):
            # One task deletes all records, because a task for each would open a connection for each.
            task = asyncio.ensure_future(self._forget())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _forget(self) -> None:
        """Delete the records of settled messages until none is left."""
        while self._settled:
            ids, self._settled = self._settled, []
            await self._in_flight.ask(partial(forget, ids=ids))

    async def forgotten(self) -> None:
        """Wait until all deletions of records have ended."""
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def abandon(self) -> None:
        """Cancel the deletions of records, as SIGKILL would."""
        for task in self._tasks:
            task.cancel()

    # --- running a suspect ------------------------------------------------------------------------

    async def handle(self, suspects: Sequence[Owned]) -> None:
        """Run the first of these suspects alone, and hand back the others; or hand back all of them."""
        first, *others = suspects
        if self.hands_back:
            self._hand_back_suspects(suspects)
            return
        # They are not delayed: other processes can run them, and this one can after the first. When a process has
        # died twice with a full buffer, many messages are suspects, and a delay of each would hold them up.
        self._in_flight.hand_back(others)
        self._in_flight.hand_back(
            [owned for owned in self._in_flight.unbegun() if owned is not first]
        )
        if not await self._drained(first):
            if self._waits(first):
                self._hand_back([first])
            return
        try:
            await self._run(first)
        finally:
            self._lock.leave(self._loop)

    def _hand_back_suspects(self, suspects: Sequence[Owned]) -> None:
        """Log that suspects cannot run in this process now, and hand them back."""
        for owned in suspects:
            log.info(
                "%s of %s is suspected of killing its process: it is handed back until a process can "
                "run it alone",
                owned.delivery.id,
                owned.delivery.stream,
            )
        if self._suspects is Suspects.ELSEWHERE:
            self._lock.tell(self._consumer.stream.name, self._consumer.group)
        self._hand_back(suspects)

    def _hand_back(self, entries: Sequence[Owned]) -> None:
        self._in_flight.hand_back(entries, delay_ms=HAND_BACK_DELAY_MS)

    async def _drained(self, suspect: Owned) -> bool:
        """Drain this process, and return whether it now runs and owns nothing but the suspect.

        Returns False after ``claim_after``, or if another loop has the lock. After True, the caller must leave the
        lock.
        """
        entered = False

        async def drain() -> None:
            nonlocal entered
            entered = await self._lock.enter(self._loop)
            if not entered:
                return
            await self._changes.until(lambda: not self._pool.running)
            self._in_flight.settler.hurry()
            await self._changes.until(
                lambda: len(self._in_flight.owned) == 1 or not suspect.unbegun
            )

        if await within(self._clock, self._claim_after_seconds, drain()):
            self._failed_drains = 0 if entered else self._failed_drains
            return entered
        if entered:
            self._lock.leave(self._loop)
        self._drain_failed(suspect)
        return False

    def _drain_failed(self, suspect: Owned) -> None:
        """Postpone the next drain. Log a warning if several drains in a row have failed."""
        self._failed_drains += 1
        self._next_drain = self._clock.monotonic() + DRAIN_PAUSE_FACTOR * self._claim_after_seconds
        if self._failed_drains >= WARN_AFTER_DRAINS:
            log.warning(
                "%s of %s is suspected of killing its process and must run alone, but handlers of "
                "this process still ran after %g s, %d times. Declare a timeout for them, or run the "
                "app with `headwater work`, which has a process for suspects.",
                suspect.delivery.id,
                suspect.delivery.stream,
                self._claim_after_seconds,
                self._failed_drains,
            )

    async def _run(self, suspect: Owned) -> None:
        """Run a suspect in a drained process. Return when it is settled, or has run for ``claim_after``."""
        # The suspect may have been settled while it waited: by a stop, or because its lease was lost.
        if self._waits(suspect):
            log.warning(
                "%s of %s runs alone: its process died %d times while others ran too, and %d times "
                "while it ran alone",
                suspect.delivery.id,
                suspect.delivery.stream,
                suspect.record.excused,
                suspect.record.crashes,
            )
            await self._remember(suspect, alone(suspect.record, count=suspect.count))
            if self._waits(suspect):
                self._offer([suspect])
        ended = self._changes.until(lambda: not self._in_flight.owns(suspect))
        if self._suspects is Suspects.ONLY:
            await ended
        elif not await within(self._clock, self._claim_after_seconds, ended):
            log.warning(
                "%s of %s has run alone for %g s: the process continues with others",
                suspect.delivery.id,
                suspect.delivery.stream,
                self._claim_after_seconds,
            )
            await self._remember(suspect, outlived(suspect.record))
            if not self._in_flight.owns(suspect):
                self._forget_soon(
                    suspect
                )  # the message was settled meanwhile: delete the record just written

    def _waits(self, owned: Owned) -> bool:
        """Return whether this process still owns an entry whose handler has not begun."""
        return owned.unbegun and self._in_flight.owns(owned)

    async def _remember(self, owned: Owned, record: Record) -> None:
        """Set a message's record, and write it to the store."""
        owned.record = record
        await self._in_flight.ask(lambda member: write(member, {owned.id: record}))
