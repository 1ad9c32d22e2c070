"""Renews the leases of a consumer's entries, whether their handlers run or not.

Rule 1. Three times per lease, all entries that the consumer still owns are renewed; and with them the reader's
        key of an ordered group.
Rule 2. A thread with its own connection renews, so that a handler that blocks the event loop does not lose its
        lease. In tests, where the clock stops between two advances, a task renews.
Rule 3. Only a reply of the server means that a lease is lost. A broken connection does not.
Rule 4. A reply must arrive before the next renewal is due, within at least a second. The second renewal in a row
        that fails is logged as a warning: others may claim the entries.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from headwater.groups.claiming import owned
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
"""Called in the event loop if the renewer ends without having been stopped."""

MISSES_SAID = 2
"""How many renewals in a row must fail before this is logged. A single one is harmless: the next one is in
time."""


class LeaseTable(Protocol):
    """The entries to renew."""

    owned: dict[bytes, Owned]
    reading: ReaderLease | None
    """The reader's lease of an ordered consumer; else None."""

    unread: Callable[[], bool]
    """Returns whether a large reply with further entries is under way. They are renewed as well."""

    @property
    def member(self) -> Member | None:
        """The member that owns them, once the group is joined; else None."""
        ...

    def lost(self, entries: Sequence[Owned]) -> None:
        """Called with entries that a renewal found to be owned by others."""


class LostLeases(NamedTuple):
    """The leases that a renewal found to be lost."""

    entries: Sequence[Owned] = ()
    reading: bool = False
    """For an ordered consumer: another process is the reader."""
    asked: bool = False
    """The store was asked: there was something to renew."""

    def __bool__(self) -> bool:
        return bool(self.entries) or self.reading


def renewal(table: LeaseTable) -> Operation[LostLeases]:
    """Renew the reader's key, if this process has it, and then all entries. Return the lost leases."""
    member, reading = table.member, table.reading
    if member is None:
        return LostLeases()
    another_reads = asked = False
    if reading is not None and reading.held:
        asked = True
        another_reads = not (yield from reading.renew(member))
    entries = list(table.owned.values())
    ids = [one.id for one in entries]
    if table.unread():
        known = set(ids)
        ids += [entry_id for entry_id, _ in (yield from owned(member)) if entry_id not in known]
    if not ids:
        return LostLeases(reading=another_reads, asked=asked)
    flags = (yield from renew(member, ids))[: len(entries)]
    lost = [one for one, kept in zip(entries, flags, strict=True) if not kept]
    return LostLeases(lost, another_reads, asked=True)


def drop(table: LeaseTable, lost: LostLeases) -> None:
    """Give up lost leases. Called in the event loop's thread."""
    if lost.reading and table.reading is not None:
        table.reading.lose()
    table.lost(lost.entries)


class Misses:
    """Counts and logs the renewals of one consumer that fail in a row."""

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
        """Record that a renewal failed. Return the seconds to wait before the next one."""
        if remedy(error, Step.RENEW) is Remedy.REJOIN:
            return self._seconds  # the reader gets this error too, and creates the group again
        pause = min(self._seconds, self._pause.next())
        self._availability.troubled(self._who, error, pause=pause)
        late = self._clock.monotonic() - self._renewed_at
        if late >= MISSES_SAID * self._seconds and not self._said:
            self._said = True
            log.warning(
                "no lease of %s was renewed for %.1f s (entries owned: %d); other workers claim "
                "them after claim_after: %s",
                self._name,
                late,
                entries,
                error,
            )
        return pause

    def renewed(self, *, asked: bool) -> float:
        """Record that a renewal succeeded; ``asked``: the store was asked, as there was something to renew. Return
        the seconds to wait before the next one."""
        self._renewed_at = self._clock.monotonic()
        self._said = False
        self._pause.reset()
        if asked:
            self._availability.well(self._who)
        else:
            self._availability.left(self._who)
        return self._seconds


class ThreadRenewer:
    """Renews in a thread; implements `groups.lease.Leases`."""

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
        self._asked = False
        self._thread = LeaseThread(
            self,
            connect=lambda: connections.synchronous(deadline_s=deadline_s(lease_ms)),
            first=seconds,
        )

    def start(self) -> None:
        self._fresh.renewed(self._clock.monotonic())
        self._thread.start()

    def cancel(self) -> None:
        """Stop renewing."""
        self._thread.stop()

    async def close(self) -> None:
        """Stop renewing, and wait until the thread has closed its connection, at most a second: it may be stuck
        in a command."""
        self.cancel()
        await asyncio.get_running_loop().run_in_executor(None, self._thread.join, 1.0)
        self._misses.renewed(asked=False)

    # --- in the thread ----------------------------------------------------------------------------

    def renew(self, client: redis.Redis) -> None:
        """Renew all entries."""
        began = self._clock.monotonic()
        lost = run(client, renewal(self._table))
        self._asked = lost.asked
        if lost:
            self._loop.call_soon_threadsafe(drop, self._table, lost)
        self._fresh.renewed(began, lost=bool(lost))

    def renewed(self) -> float:
        return self._misses.renewed(asked=self._asked)

    def missed(self, error: Exception) -> float:
        return self._misses.missed(error, entries=len(self._table.owned))

    def owner_is_gone(self) -> bool:
        """Return whether the worker's event loop was closed without closing the worker."""
        return self._loop.is_closed()

    def ended(self, error: BaseException | None) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._ended, "lease renewer", error)


class TaskRenewer:
    """Renews in a task, on a clock that a test advances."""

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
                await sleep(self._clock, pause, upkeep=True)
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
                    pause = self._misses.renewed(asked=lost.asked)
        finally:
            await client.aclose()
