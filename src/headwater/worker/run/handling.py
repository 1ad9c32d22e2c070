"""Handles entries in a slot: checks that they may start, calls the handler, and ends the delivery.

Pool ──▶ Handling ──▶ Executor ──▶ Endings
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headwater.groups.reading.poison import Record, write
from headwater.messages.keys import EXPIRES_FIELD
from headwater.worker.declare.outcome import Crashed, Returned
from headwater.worker.declare.owned import RUNNING, Owned
from headwater.worker.run.endings import Endings
from headwater.worker.run.execute import Executor
from headwater.worker.run.expiry import Expiry
from headwater.worker.run.slow import SlowHandlers
from headwater.worker.settle.in_flight import InFlight
from headwater.worker.settle.scope import Scope


class Handling:
    """Handles the entries of one consumer one by one. ``observe`` is called with each entry that starts."""

    def __init__(
        self,
        scope: Scope,
        *,
        in_flight: InFlight,
        executor: Executor,
        slow: SlowHandlers,
        expiry: Expiry,
        endings: Endings,
        observe: Callable[[Owned], None] | None = None,
    ) -> None:
        self.consumer = scope.consumer
        self.clock = scope.clock
        self.in_flight = in_flight
        self.executor = executor
        self.slow = slow
        self.expiry = expiry
        self.endings = endings
        self.observe = observe
        self._starting = scope.hooks.starting

    async def run(self, owned: Owned) -> None:
        """Handle one entry, in a slot of the pool."""
        for starts in self._starting:
            if not starts(owned):
                return
        fields = owned.delivered.fields
        # An entry with one field has only the message.
        expires = self.expiry.always or (len(fields) > 2 and EXPIRES_FIELD in fields)
        if expires and not await self.in_time(owned):
            return
        if self.observe is not None:
            self.observe(owned)
        self.slow.began(owned)
        message, wrong = self.executor.decode(owned)
        outcome = await self.executor.call(message, owned) if wrong is None else wrong
        if isinstance(outcome, Returned):
            self.slow.ended(owned, returned=True)
            self.endings.returned(owned, outcome.additions)
            return
        self.slow.ended(owned, returned=False)
        if isinstance(outcome, Crashed):
            outcome = await self.crashed([owned], outcome)
        self.endings.end(owned, outcome)

    async def in_time(self, owned: Owned) -> bool:
        """Return whether an entry may start. If not, the entry has expired and is settled, or it was lost or
        handed back while the server was asked for the time."""
        expired = await self.expiry.expired(owned)
        if owned.state is not RUNNING or not self.in_flight.owns(owned):
            return False
        if expired is not None:
            self.endings.end(owned, expired)
        return expired is None

    async def crashed(self, entries: Sequence[Owned], outcome: Crashed) -> Crashed:
        """Count the death of the pool process in which these entries ran, and return the outcome of each. If
        one entry ran, the death is its crash. If several ran, the cause is unknown, and each runs alone next."""
        records: dict[bytes, Record] = {}
        for owned in entries:
            record = owned.record
            if len(entries) == 1:
                record = record._replace(crashes=record.crashes + 1)
                condemned = record.condemned(self.consumer.max_crashes)
                outcome = outcome._replace(crashes=record.crashes, condemned=condemned)
            else:
                record = record._replace(excused=record.excused + 1)
            if self.in_flight.owns(owned):
                owned.judged(record)
                records[owned.id] = record
        if records:
            await self.in_flight.ask(lambda member: write(member, records))
        return outcome
