"""Renews the leases of the entries that a consumer owns, running and buffered alike.

Rule 1. Every third of the lease, everything owned is renewed, as long as it is still owned; and the key of
        the reader of an ordered group with it.
Rule 2. In its own thread with its own connection, so that a handler that blocks the event loop
        keeps its lease. In tests, where time stops between two advances, a task does it.
Rule 3. A lease is lost only when the server says so; a connection that is gone says nothing.
Rule 4. An answer has until the next renewal is due, and at least a second. The second renewal in a
        row that fails is a warning: others may claim what is owned.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from headwater.groups.lease import LeaseThread
from headwater.groups.member import Member
from headwater.groups.operation import Operation, perform, run
from headwater.groups.settling import renew
from headwater.groups.store_errors import Remedy, Step, remedy
from headwater.worker.clocks import Timers, sleep
from headwater.worker.connections import Connections, Pause, deadline_s
from headwater.worker.freshness import Freshness
from headwater.worker.owned import Owned
from headwater.worker.reader_lease import ReaderLease

if TYPE_CHECKING:
    import redis

log = logging.getLogger("headwater.worker")

Ended = Callable[[str, BaseException | None], None]
"""Called in the event loop if the renewer ends although nothing asked it to."""

MISSES_SAID = 2
"""Renewals in a row that are missed before the log says so; one is made up for by the next."""


class LeaseTable(Protocol):
    """Whose leases are kept."""

    owned: dict[bytes, Owned]
    reading: ReaderLease | None
    """Of an ordered consumer."""

    @property
    def member(self) -> Member | None:
        """Who owns them, once the group is joined."""
        ...

    def lost(self, entries: Sequence[Owned]) -> None:
        """These were not owned any more when they were to be renewed."""


class LostLeases(NamedTuple):
    """What was no longer this consumer's when it was to be renewed."""

    entries: Sequence[Owned] = ()
    reading: bool = False
    """Of an ordered consumer: another process reads."""

    def __bool__(self) -> bool:
        return bool(self.entries) or self.reading


def renewal(table: LeaseTable) -> Operation[LostLeases]:
    """Renew the reader's key, if it is held, then everything owned; what was lost."""
    member, reading = table.member, table.reading
    if member is None:
        return LostLeases()
    another_reads = False
    if reading is not None and reading.held:
        another_reads = not (yield from reading.renew(member))
    entries = list(table.owned.values())
    if not entries:
        return LostLeases(reading=another_reads)
    flags = yield from renew(member, [one.id for one in entries])
    lost = [one for one, kept in zip(entries, flags, strict=True) if not kept]
    return LostLeases(lost, another_reads)


def drop(table: LeaseTable, lost: LostLeases) -> None:
    """Give up what was lost. In the event loop's thread."""
    if lost.reading and table.reading is not None:
        table.reading.lose()
    table.lost(lost.entries)


class Misses:
    """The renewals of one consumer that failed in a row, and what is said of them."""

    def __init__(
        self, name: str, *, seconds: float, clock: Timers, connections: Connections
    ) -> None:
        self._name = name
        self._who = f"lease renewer of {name}"
        self._seconds = seconds
        self._clock = clock
        self._availability = connections.availability
        self._pause = Pause()
        self._renewed_at = clock.monotonic()
        self._said = False

    def missed(self, error: Exception, *, entries: int) -> float:
        """A renewal failed; how many seconds to wait before the next."""
        if remedy(error, Step.RENEW) is Remedy.REJOIN:
            return self._seconds  # the reader meets it too, and creates the group again
        pause = min(self._seconds, self._pause.next())
        self._availability.troubled(self._who, error, pause=pause)
        late = self._clock.monotonic() - self._renewed_at
        if late >= MISSES_SAID * self._seconds and not self._said:
            self._said = True
            log.warning(
                "no lease of %s was renewed for %.1f s (entries owned: %d); other workers claim "
                "them when claim_after is over: %s",
                self._name,
                late,
                entries,
                error,
            )
        return pause

    def renewed(self) -> float:
        """Nothing is overdue; how many seconds to wait before the next renewal."""
        self._renewed_at = self._clock.monotonic()
        self._said = False
        self._pause.reset()
        self._availability.well(self._who)
        return self._seconds


class ThreadRenewer:
    """Renews from a thread, a `groups.lease.Leases`."""

    def __init__(
        self,
        name: str,
        table: LeaseTable,
        *,
        lease_ms: int,
        clock: Timers,
        connections: Connections,
        fresh: Freshness,
        ended: Ended,
    ) -> None:
        self._table = table
        self._fresh = fresh
        seconds = lease_ms / 3000
        self._misses = Misses(name, seconds=seconds, clock=clock, connections=connections)
        self._clock = clock
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._thread = LeaseThread(
            self,
            connect=lambda: connections.synchronous(deadline_s=deadline_s(lease_ms)),
            first=seconds,
        )

    def start(self) -> None:
        self._fresh.renewed(self._clock.monotonic())
        self._thread.start()

    def cancel(self) -> None:
        """Renew nothing more."""
        self._thread.stop()

    async def close(self) -> None:
        """Return when the thread has closed its connection, or is stuck in a command."""
        self.cancel()
        await asyncio.get_running_loop().run_in_executor(None, self._thread.join, 1.0)
        self._misses.renewed()

    # --- in the thread ----------------------------------------------------------------------------

    def renew(self, client: redis.Redis) -> None:
        """Renew everything owned."""
        began = self._clock.monotonic()
        lost = run(client, renewal(self._table))
        if lost:
            self._loop.call_soon_threadsafe(drop, self._table, lost)
        self._fresh.renewed(began, lost=bool(lost))

    def renewed(self) -> float:
        return self._misses.renewed()

    def missed(self, error: Exception) -> float:
        return self._misses.missed(error, entries=len(self._table.owned))

    def owner_is_gone(self) -> bool:
        """The worker's event loop was closed, the worker was not."""
        return self._loop.is_closed()

    def ended(self, error: BaseException | None) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._ended, "lease renewer", error)


class TaskRenewer:
    """Renews from a task, on a clock that a test advances."""

    def __init__(
        self,
        name: str,
        table: LeaseTable,
        *,
        lease_ms: int,
        clock: Timers,
        connections: Connections,
        fresh: Freshness,
        ended: Ended,
    ) -> None:
        self._table = table
        self._fresh = fresh
        self._seconds = lease_ms / 3000
        self._misses = Misses(name, seconds=self._seconds, clock=clock, connections=connections)
        self._clock = clock
        self._connections = connections
        self._ended = ended
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._fresh.renewed(self._clock.monotonic())
        self._task = asyncio.create_task(self._keep(), name="headwater leases")
        self._task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        if not self._stopping:
            self._ended("lease renewer", None if task.cancelled() else task.exception())

    def cancel(self) -> None:
        self._stopping = True
        if self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        self.cancel()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _keep(self) -> None:
        client = self._connections.asynchronous()
        pause = self._seconds
        try:
            while True:
                await sleep(self._clock, pause)
                began = self._clock.monotonic()
                try:
                    lost = await perform(client, renewal(self._table))
                except Exception as error:
                    if remedy(error, Step.RENEW) is Remedy.END:
                        raise
                    pause = self._misses.missed(error, entries=len(self._table.owned))
                else:
                    drop(self._table, lost)
                    self._fresh.renewed(began, lost=bool(lost))
                    pause = self._misses.renewed()
        finally:
            await client.aclose()
