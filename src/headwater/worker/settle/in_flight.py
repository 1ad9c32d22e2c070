"""The in-flight deliveries of one consumer: the entries that it owns, and their settlement.

Rule 1. `take` adds an entry. It is removed when the store has replied to its settlement, or has reported that
        another consumer owns it.
Rule 2. A settlement is repeated until the store acknowledges it: broken connections are replaced, and a
        vanished group is created again (`retrying_client`, `settlement_sender`). Repeating is harmless: the
        second settlement of a delivery changes nothing (`settling.settling`, rule 2).
Rule 3. An entry that another consumer owns now is dropped immediately: it is not renewed, and an ``async`` handler
        is cancelled. A handler that still returns settles the entry if no other has (`settling.settling`, rule 1).
        But if another worker has created the group again, this consumer takes ownership of the entry again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from headwater.groups.membership.member import Member
from headwater.groups.protocol.operation import GroupVanished, Operation
from headwater.groups.protocol.store_errors import Step
from headwater.groups.reading.claiming import Delivered
from headwater.groups.reading.poison import heard
from headwater.groups.reports.early_claims import note_early
from headwater.groups.settling.session import GroupSession
from headwater.groups.settling.settling import (
    Addition,
    How,
    Settlement,
    SettleOutcome,
    current_owners,
    renew,
)
from headwater.worker.declare.outcome import Ending
from headwater.worker.declare.owned import ENDED, SETTLING, Owned, Stop
from headwater.worker.declare.statistics import Counters
from headwater.worker.leases.lease import renewal
from headwater.worker.leases.reader_lease import ReaderLease
from headwater.worker.settle.scope import Scope
from headwater.worker.settle.settle import BATCH, Queued, Settler
from headwater.worker.settle.settlement_sender import SettlementSender
from headwater.worker.store.retrying_client import RetryingClient
from headwater.worker.store.shared_connection import SharedConnection
from headwater.worker.store.waiting import ended

log = logging.getLogger("headwater.worker")

SAID_TOGETHER = 1_000
"""Maximum number of lost entries whose current owners are read at a time."""


class InFlight:
    """Owned entries and their settlement.

    ``reading`` is the lease of an ordered consumer's reader.
    """

    def __init__(
        self, scope: Scope, *, counters: Counters, reading: ReaderLease | None = None
    ) -> None:
        consumer, clock = scope.consumer, scope.clock
        self.changes = scope.changes
        self.counters = counters
        self.reading = reading
        self.owned: dict[bytes, Owned] = {}
        self.session: GroupSession | None = None
        most = BATCH if consumer.batch is None else max(BATCH, consumer.batch.size)
        self.settler = Settler(clock, self._send, self._done, how=consumer.acknowledged, most=most)
        self._hooks = scope.hooks
        self._retrying = RetryingClient(
            f"settler of {scope.name}",
            stream=consumer.stream.name,
            clock=clock,
            connections=scope.connections,
        )
        self._sender = SettlementSender(
            self._retrying, self.ask, lambda *what: self.the_session().settle(*what)
        )
        self._rejoining = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def client(self) -> SharedConnection:
        """The connection for settlements, and for other commands that must not wait for a blocked read."""
        return self._retrying.client

    async def close(self) -> None:
        """Stop using the store."""
        self.abandon()
        await ended(self._tasks)
        self._retrying.close()

    def abandon(self) -> None:
        """Stop sending, as after SIGKILL."""
        for task in self._tasks:
            task.cancel()

    # --- owned entries ----------------------------------------------------------------------------

    def unbegun(self) -> list[Owned]:
        """Return the entries that wait for a handler."""
        return [owned for owned in self.owned.values() if owned.unbegun]

    def unread(self) -> bool:
        """Return whether a large reply with further entries of this consumer is under way."""
        return any(asked() for asked in self._hooks.unread)

    def owns(self, owned: Owned) -> bool:
        """Return whether this consumer still owns this delivery; False after another delivery of the entry."""
        return self.owned.get(owned.id) is owned

    def take(self, found: Sequence[Delivered]) -> list[Owned]:
        """Add the entries of a read and return them. Entries that this process already owns are left out: after a
        long pause a worker can claim its own entries.

        An entry that is delivered again while it is being settled is a new delivery.
        """
        session, owned = self.the_session(), self.owned
        taken = []
        for delivered in found:
            if not delivered.claimed:
                session.seen = delivered.id
            before = owned.get(delivered.id)
            if before is not None and (delivered.from_silent or before.state is not SETTLING):
                continue
            owned[delivered.id] = one = Owned(delivered, session.member)
            taken.append(one)
        return taken

    def acknowledge(self, owned: Owned, additions: Sequence[Addition] = ()) -> None:
        """Acknowledge a delivery whose handler returned, and publish its results, with the next batch, even if
        another consumer owns the entry now."""
        if owned.lost or self.owns(owned):
            owned.enter(SETTLING)
            owned.additions = additions
            self.settler.add(owned)

    def settle(self, entries: Sequence[Owned], settlement: Settlement, ending: Ending) -> None:
        """Settle deliveries in the same way, with the next batch. If they have a result, and one of the entries
        cannot be settled, the others that this consumer still owns are handed back."""
        for one in entries:
            one.enter(SETTLING)
        self.settler.add(Queued(entries, settlement, ending))

    def hand_back(self, entries: Sequence[Owned], *, delay_ms: int = 0) -> None:
        """Hand back entries. The delivery does not count, and the entries can be claimed after ``delay_ms``."""
        for owned in entries:
            back = Settlement(owned.id, How.SILENT, delay_ms=delay_ms)
            self.settle([owned], back, Ending.HANDED_BACK)
        self.settler.hurry()

    def lost(self, entries: Sequence[Owned]) -> None:
        """Process the report of the store that other consumers own these entries. Called in the event loop's
        thread."""
        entries = [owned for owned in entries if self.owns(owned) and owned.state is not SETTLING]
        if entries:
            self._begin(self._drop_unless_remade(entries))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _drop_unless_remade(self, entries: Sequence[Owned]) -> None:
        kept = await self._registered_again()
        doubtful = [owned.id for owned in entries if owned.id not in kept]
        # The report may precede a rejoin by another task, so ask again.
        flags = await self.ask(lambda member: renew(member, doubtful), step=Step.SETTLE)
        lost = {entry_id for entry_id, ours in zip(doubtful, flags, strict=True) if not ours}
        dropped: list[Owned] = []
        for owned in entries:
            mine = self.owns(owned) and owned.state is not SETTLING
            if mine and owned.id in lost:
                self._drop(owned)
                dropped.append(owned)
        if dropped:
            ids = [owned.id for owned in dropped]
            await self.ask(lambda member: note_early(member, ids))
            await self._lost(dropped, "its lease was lost while this worker handled it")

    async def _lost(self, entries: Sequence[Owned], what: str) -> None:
        """Record that this process is alive, although others claimed these entries from it. Log for each entry
        ``what`` happened here, and its current owner."""
        deliveries = [(one.id, one.count, one.record.alone_at == one.count) for one in entries]
        await self.ask(lambda member: heard(member, deliveries))
        ids = [one.id for one in entries]
        for first in range(0, len(ids), SAID_TOGETHER):
            part = ids[first : first + SAID_TOGETHER]
            found = await self.ask(lambda member: current_owners(member, part))  # noqa: B023
            for entry_id, where in zip(part, found, strict=True):
                stream = self.the_member().stream
                log.warning("%s of %s: %s; %s", entry_id.decode(), stream, what, where)

    def _drop(self, owned: Owned) -> None:
        del self.owned[owned.id]
        self.counters.lost += 1
        owned.mark_lost()
        if not (owned.batch or owned).in_thread:
            owned.stop(Stop.LOST)  # a handler in a thread continues, and may finish first
        if owned.unbegun:
            owned.enter(ENDED)
        for dropped in self._hooks.dropped:
            dropped(owned)
        self.changes.notify()

    # --- operations on the store ------------------------------------------------------------------

    async def ask(
        self,
        make: Callable[[Member], Operation[Any]],
        *,
        step: Step = Step.READ,
        losses: int | None = None,
    ) -> Any:
        """Repeat an operation, for which running twice is harmless, until the store has answered, and return its
        result. A vanished group is created again. Raises the other errors of `RetryingClient.answered`."""
        while True:
            mark = self.mark
            try:
                return await self._retrying.answered(
                    lambda: make(self.the_member()), step, losses=losses
                )
            except GroupVanished:
                await self.rejoin(mark)

    async def renew_now(self) -> None:
        """Renew all entries and drop the lost ones, before a step that needs fresh entries. Raises `Refused` if
        this consumer is not permitted to renew."""
        lost = await self.ask(lambda _member: renewal(self), step=Step.SETTLE)
        if self.reading is not None and (lost.reading or not self.reading.held):
            self.reading.lose()
        if lost.entries:
            await self._drop_unless_remade(lost.entries)

    async def rejoin(self, mark: bytes | None) -> None:
        """Create a vanished group again, unless another task of this consumer has done so since ``mark`` was
        read."""
        async with self._rejoining:
            session = self.the_session()
            if session.mark == mark:
                await self._retrying.answered(session.create_again, Step.READ)

    async def _registered_again(self) -> set[bytes]:
        """Take ownership of the unsettled entries again if another worker created the group again. Return their
        ids; empty if it was not created again."""
        found: set[bytes] = await self.ask(
            lambda _member: self.the_session().registered_again(self.unsettled())
        )
        return found

    def unsettled(self) -> list[tuple[bytes, int]]:
        """Return ids and delivery counts of all entries."""
        return [(owned.id, owned.count) for owned in self.owned.values()]

    async def _send(self, settlements: list[Settlement]) -> list[SettleOutcome]:
        """Settle a batch, and log the entries that this consumer did not own."""
        outcomes = await self._sender.send(settlements)
        # Entries of a step with results are left out: next, each is settled by itself or handed back.
        lost = [
            owned
            for settlement, one in zip(settlements, outcomes, strict=True)
            if not (settlement.others and settlement.additions)
            for entry_id in one.missed
            if (owned := self.owned.get(entry_id)) is not None
        ]
        if lost:
            self._begin(self._lost(lost, "it was not settled by this worker"))
        return outcomes

    def _done(self, queued: Queued, outcome: SettleOutcome) -> None:
        if outcome.done:
            self._end(queued, outcome)
        elif queued.shared:
            self.settler.part(queued)
        elif not outcome.missed:
            self._end(queued, outcome)
        elif queued.settlement.additions and len(queued.entries) > 1:
            self.hand_back([owned for owned in queued.entries if self.owns(owned)])
        else:
            missed = set(outcome.missed)
            settled = [owned for owned in queued.entries if owned.id not in missed]
            others = [owned for owned in queued.entries if owned.id in missed]
            if settled:
                self._end(queued._replace(entries=settled), SettleOutcome(done=True))
            self._end(queued._replace(entries=others), outcome)

    def _end(self, queued: Queued, outcome: SettleOutcome) -> None:
        """Remove the entries of a settlement, and report its outcome."""
        if outcome.error is None:
            for one in queued.entries:
                if self.owns(one):
                    del self.owned[one.id]
                if one.state is SETTLING:
                    one.enter(ENDED)
        for settled in self._hooks.settled:
            settled(queued, outcome)
        self.changes.notify()

    @property
    def member(self) -> Member | None:
        """The member of this consumer; None until the group is joined."""
        return None if self.session is None else self.session.member

    @property
    def mark(self) -> bytes | None:
        """The group's mark; see `GroupSession.mark`."""
        return None if self.session is None else self.session.mark

    def the_member(self) -> Member:
        """Return `member`. The group must have been joined."""
        return self.the_session().member

    def the_session(self) -> GroupSession:
        """Return `session`. The group must have been joined."""
        assert self.session is not None, "nothing is owned before the group is joined"
        return self.session
