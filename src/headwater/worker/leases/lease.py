"""Renews the leases of the entries that a process owns, whether their handlers run or not.

Rule 1. Three times per lease, all entries that a consumer still owns are renewed, and also the reader's key of an
        ordered group. Renewals that are due for several consumers are sent in one request.
Rule 2. A thread with its own connection renews for all consumers, so that a handler that blocks the event loop does
        not lose its lease. In tests, where the clock stops between two advances, a task renews.
Rule 3. Only a reply of the server can show that a lease is lost. A broken connection does not show it.
Rule 4. A reply must arrive before the next renewal is due, but always has at least a second. The second renewal in
        a row that fails is logged as a warning, because others may claim the entries.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from headwater.groups.membership.lease import LeaseThread
from headwater.groups.membership.member import Member
from headwater.groups.protocol.operation import Operation, perform, run, together
from headwater.groups.protocol.store_errors import Remedy, Step, remedy
from headwater.groups.reading.claiming import owned
from headwater.groups.settling.settling import renew
from headwater.worker.declare.owned import Owned
from headwater.worker.leases.freshness import Freshness
from headwater.worker.leases.reader_lease import ReaderLease
from headwater.worker.store.clocks import Timers, sleep
from headwater.worker.store.connections import Connections, Pause
from headwater.worker.store.shared_connection import SharedConnections

if TYPE_CHECKING:
    import redis
    import redis.asyncio

log = logging.getLogger("headwater.worker")

EARLY = 0.1
"""Fraction of its interval by which a renewal may be sent early, together with others."""

IDLE_SECONDS = 1.0
"""Interval at which a renewer without consumers checks whether it has got one, in seconds."""

Ended = Callable[[str, BaseException | None], None]
"""Function that is called in the event loop if the renewer ends without having been stopped."""

MISSES_SAID = 2
"""Number of renewals in a row that must fail before this is logged. A single failure is harmless,
because the next renewal is in time."""


class LeaseTable(Protocol):
    """The entries to renew."""

    owned: dict[bytes, Owned]
    reading: ReaderLease | None
    """The reader's lease of an ordered consumer; otherwise None."""

    def unread(self) -> bool:
        """Return whether a large reply with further entries is under way. Those entries are renewed as well."""
        ...

    @property
    def member(self) -> Member | None:
        """The member that owns the entries; None until the group is joined."""
        ...

    def lost(self, entries: Sequence[Owned]) -> None:
        """Give up entries that a renewal found to be owned by others."""


class LostLeases(NamedTuple):
    """The leases that a renewal found to be lost."""

    entries: Sequence[Owned] = ()
    reading: bool = False
    """True if another process is the reader of an ordered consumer."""
    asked: bool = False
    """True if the store was asked, because there was something to renew."""

    def __bool__(self) -> bool:
        return bool(self.entries) or self.reading


def renewal(table: LeaseTable) -> Operation[LostLeases]:
    """Renew the reader's key, if this process has it, then all entries in ``table``. Return the lost leases."""
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
    """Give up lost leases. It must be called in the event loop's thread."""
    if lost.reading and table.reading is not None:
        table.reading.lose()
    table.lost(lost.entries)


class Leased:
    """The leases of one consumer. ``ended`` is called if the renewer ends without having been stopped."""

    def __init__(
        self,
        name: str,
        table: LeaseTable,
        *,
        stream: str,
        lease_ms: int,
        clock: Timers,
        connections: SharedConnections,
        fresh: Freshness,
        ended: Ended,
    ) -> None:
        self.table = table
        self.stream = stream
        self.seconds = lease_ms / 3000
        """Time between two renewals, in seconds."""
        self.fresh = fresh
        self.ended = ended
        self.due = clock.monotonic() + self.seconds
        self._name = name
        self._who = f"lease renewer of {name}"
        self._clock = clock
        self._availability = connections.availability
        self._pause = Pause()
        self._renewed_at = clock.monotonic()
        self._said = False
        fresh.renewed(clock.monotonic())

    def missed(self, error: Exception) -> None:
        """Record that a renewal failed, and log the second failure in a row."""
        now = self._clock.monotonic()
        what = remedy(error, Step.RENEW)
        if what is Remedy.REJOIN:
            self.due = now + self.seconds
            return  # the reader gets this error too, and creates the group again
        pause = min(self.seconds, self._pause.next())
        self.due = now + pause
        if what is Remedy.END:
            log.error("renewing the leases of %s failed", self._name, exc_info=error)
        else:
            self._availability.troubled(self._who, error, pause=pause)
        late = now - self._renewed_at
        if late >= MISSES_SAID * self.seconds and not self._said:
            self._said = True
            log.warning(
                "no lease of %s was renewed for %.1f s (entries owned: %d); other workers claim "
                "its entries after claim_after: %s",
                self._name,
                late,
                len(self.table.owned),
                error,
            )

    def renewed(self, lost: LostLeases, began: float) -> None:
        """Record a renewal that was sent at ``began``."""
        self.fresh.renewed(began, lost=bool(lost))
        self.due = began + self.seconds
        self._renewed_at = self._clock.monotonic()
        self._said = False
        self._pause.reset()
        if lost.asked:
            self._availability.well(self._who)
        else:
            self.left()

    def left(self) -> None:
        """Record that the renewer does not ask the store for this consumer."""
        self._availability.left(self._who)


class Renewer:
    """Renews for the consumers in `leased`. This is the common part of the two kinds of renewers."""

    def __init__(self, *, clock: Timers, connections: Connections) -> None:
        self.leased: dict[Leased, None] = {}
        self._clock = clock
        self._connections = connections

    def add(self, one: Leased) -> None:
        """Begin to renew for a consumer."""
        self.leased = {**self.leased, one: None}  # the thread may be iterating over the old one

    def remove(self, one: Leased) -> None:
        """Stop renewing for a consumer."""
        self.leased = {other: None for other in self.leased if other is not one}
        one.left()

    def _due(self, now: float) -> list[list[Leased]]:
        """Return the consumers whose leases are (almost) due, by node, so that an error affects only its node."""
        nodes: dict[object, list[Leased]] = {}
        for one in self.leased:
            if one.due <= now + EARLY * one.seconds:
                nodes.setdefault(self._connections.node_of(one.stream), []).append(one)
        return [*nodes.values()]

    def _pause(self) -> float:
        """Return the seconds until the next renewal is due."""
        now = self._clock.monotonic()
        return max(0.0, min((one.due for one in self.leased), default=now + IDLE_SECONDS) - now)

    def _take(
        self, part: Sequence[Leased], results: Sequence[LostLeases | Exception], began: float
    ) -> list[tuple[Leased, LostLeases]]:
        """Record the results of renewals that were sent at ``began``. Return the lost leases."""
        found = []
        for one, lost in zip(part, results, strict=True):
            if isinstance(lost, Exception):
                one.missed(lost)
                continue
            if lost:
                found.append((one, lost))
            one.renewed(lost, began)
        return found

    def _end(self, error: BaseException | None) -> None:
        for one in self.leased:
            one.ended("lease renewer", error)


class ThreadRenewer(Renewer):
    """Renews in a thread; implements `groups.membership.lease.Leases`."""

    def __init__(self, *, clock: Timers, connections: Connections, deadline_s: float) -> None:
        super().__init__(clock=clock, connections=connections)
        self._loop = asyncio.get_running_loop()
        self._thread = LeaseThread(
            self, connect=lambda: connections.synchronous(deadline_s=deadline_s), first=0.0
        )

    def start(self) -> None:
        """Start the thread. The consumers must have been added."""
        # Import this module before the thread starts: of two threads that import it, one may find half of it.
        import redis.backoff  # noqa: F401

        self._thread.start()

    async def close(self) -> None:
        """Stop renewing, and wait until the thread has closed its connection, at most a second, because the thread
        may be stuck in a command."""
        self._thread.stop()
        await asyncio.get_running_loop().run_in_executor(None, self._thread.join, 1.0)

    def add(self, one: Leased) -> None:
        super().add(one)
        self._thread.hurry()

    # --- in the thread ----------------------------------------------------------------------------

    def renew(self, client: redis.Redis) -> None:
        """Renew all entries that are due."""
        failure: Exception | None = None
        for part in self._due(self._clock.monotonic()):
            began = self._clock.monotonic()
            try:
                results = run(client, together(renewal(one.table) for one in part))
            except Exception as error:
                if remedy(error, Step.RENEW) is Remedy.END:
                    raise
                failure = error
                for one in part:
                    one.missed(error)
            else:
                for one, lost in self._take(part, results, began):
                    self._loop.call_soon_threadsafe(drop, one.table, lost)
        if failure is not None:
            raise failure

    def renewed(self) -> float:
        return self._pause()

    def missed(self, error: Exception) -> float:  # noqa: ARG002  # `Leased.missed` has logged it
        return self._pause()

    def owner_is_gone(self) -> bool:
        """Return whether the worker's event loop was closed without closing the worker."""
        return self._loop.is_closed()

    def ended(self, error: BaseException | None) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._end, error)


class TaskRenewer(Renewer):
    """Renews in a task, on a clock that a test advances."""

    _task: asyncio.Task[None] | None = None
    _stopping = False

    def start(self) -> None:
        """Start the task. The consumers must have been added."""
        self._task = asyncio.create_task(self._keep(), name="headwater leases")
        self._task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        if not self._stopping:
            self._end(None if task.cancelled() else task.exception())

    async def close(self) -> None:
        """Stop renewing."""
        self._stopping = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _keep(self) -> None:
        client = self._connections.asynchronous()
        try:
            while True:
                await sleep(self._clock, self._pause(), upkeep=True)
                for part in self._due(self._clock.monotonic()):
                    await self._renew(client, part)
        finally:
            await client.aclose()

    async def _renew(self, client: redis.asyncio.Redis, part: Sequence[Leased]) -> None:
        began = self._clock.monotonic()
        try:
            results = await perform(client, together(renewal(one.table) for one in part))
        except Exception as error:
            if remedy(error, Step.RENEW) is Remedy.END:
                raise
            for one in part:
                one.missed(error)
        else:
            for one, lost in self._take(part, results, began):
                drop(one.table, lost)
