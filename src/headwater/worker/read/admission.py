"""Admits the entries of a read: to the slots, the dead letters, the quarantine, or back to the group.

Fetcher ──▶ Admission ──▶ Gate, if there are limits ──▶ Pool
                └──▶ dead letters, quarantine, back to the group
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from headwater.groups.reading.claiming import Delivered
from headwater.groups.reading.poison import NO_RECORD, condemnation
from headwater.worker.declare.outcome import Condemned, Exhausted, Raised
from headwater.worker.declare.owned import WAITING, Owned
from headwater.worker.observe.supervisor_pipe import Reports
from headwater.worker.read.ordered_fetch import OrderedFetch
from headwater.worker.read.quarantine import Quarantine
from headwater.worker.run.endings import Endings
from headwater.worker.settle.in_flight import InFlight
from headwater.worker.settle.scope import Scope

log = logging.getLogger("headwater.worker")

DOUBT = 3
"""How many times ``claim_after`` a condemned message waits before it is a dead letter. Its owner was only silent: if it is
alive, it says so when it is able to, and the message is not condemned any more (`reading.poison`, rule 4)."""


class Admission:
    """Admits one consumer's entries. ``offer`` gives them to the slots."""

    def __init__(
        self,
        scope: Scope,
        *,
        in_flight: InFlight,
        endings: Endings,
        reports: Reports,
        quarantine: Quarantine,
        offer: Callable[[Sequence[Owned]], None],
        order: OrderedFetch | None,
    ) -> None:
        self.joined = False
        """True once this consumer has joined its group, and the supervisor, if any, was told."""
        self.stopping = False
        self.paused = False
        """True while nothing is read, and entries that were read go back to the group."""
        self._consumer = scope.consumer
        self._in_flight = in_flight
        self._endings = endings
        self._reports = reports
        self._quarantine = quarantine
        self._offer = offer
        self._order = order

    async def accept(self, found: Sequence[Delivered]) -> None:
        """Record the entries of a read as owned, and pass each to the next stage."""
        if not self.joined:
            self.joined = True
            self._reports.joined(self._consumer.stream.name, self._consumer.group)
        in_flight, order = self._in_flight, self._order
        taken = in_flight.take(found)
        claimed = [owned for owned in taken if owned.delivered.claimed]
        self._endings.telemetry.received(taken, claimed)
        fresh = taken
        if claimed or order:
            wrong = {o: error for o in taken if order and (error := order.ordering.arrived(o))}
            await self._quarantine.judge(claimed)
            fresh = [owned for owned in taken if self._admits(owned, wrong.get(owned))]
        if self.stopping or self.paused or (order and not order.reads):
            in_flight.hand_back(fresh)
            return
        for owned in fresh:
            owned.enter(WAITING)
        suspects = [owned for owned in fresh if self._suspects(owned)] if claimed else []
        others = [owned for owned in fresh if owned not in suspects] if suspects else fresh
        if suspects and not self._quarantine.hands_back:
            in_flight.hand_back(others)
            await self._quarantine.handle(suspects)
            return
        if order:
            order.ordering.advance([owned.id for owned in others])
        else:
            self._offer(others)
        if suspects:
            await self._quarantine.handle(suspects)
        if found and not fresh:
            in_flight.settler.hurry()

    def _suspects(self, owned: Owned) -> bool:
        return owned.record.suspected(isolated=self._consumer.isolated)

    def _admits(self, owned: Owned, wrong: BaseException | None) -> bool:
        """Return whether an entry may be handled. If not, the entry was settled in another way, or this consumer
        has lost it."""
        if not owned.unbegun or not self._in_flight.owns(owned):
            return False  # a stop has handed it back, or another consumer owns it
        if owned.record is not NO_RECORD and owned.record.condemned(self._consumer.max_crashes):
            if owned.delivered.from_silent:
                self._put_off(owned)
            else:
                self._endings.end(owned, Condemned(condemnation(owned.record)))
        elif owned.attempts > self._consumer.max_deliveries + owned.record.unjudged:
            self._endings.end(owned, Exhausted())
        elif wrong is not None:
            self._endings.end(owned, Raised(wrong))
        else:
            return True
        return False

    def _put_off(self, owned: Owned) -> None:
        """Hand back a condemned message that was claimed from a silent owner, which may be heard of again."""
        delay_ms = DOUBT * self._consumer.claim_after_ms
        log.warning(
            "%s of %s is suspected of having killed %d processes: unless one of them is heard of in %g s, it becomes a "
            "dead letter",
            owned.delivery.id,
            owned.delivery.stream,
            owned.record.crashes,
            delay_ms / 1000,
        )
        self._in_flight.hand_back([owned], delay_ms=delay_ms)
