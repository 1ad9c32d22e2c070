"""Ends deliveries: decides each settlement by the outcome and the policy, and reports the store's reply."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from random import Random

from headwater.groups.protocol.operation import Refused
from headwater.groups.settling.settling import FINAL, Addition, How, SettleOutcome
from headwater.worker.declare.decide import Policy, decide
from headwater.worker.declare.outcome import NotReturned, Raised, Stopped, Unrecorded
from headwater.worker.declare.owned import Owned
from headwater.worker.observe.delivery_log import report
from headwater.worker.observe.supervisor_pipe import Reports
from headwater.worker.observe.telemetry import Telemetry
from headwater.worker.settle.in_flight import InFlight
from headwater.worker.settle.scope import Scope
from headwater.worker.settle.settle import Queued

log = logging.getLogger("headwater.worker")


class Endings:
    """Ends the deliveries of one consumer."""

    def __init__(
        self,
        scope: Scope,
        *,
        in_flight: InFlight,
        telemetry: Telemetry,
        reports: Reports,
        chance: Random,
    ) -> None:
        consumer = scope.consumer
        self.telemetry = telemetry
        self.policy = Policy(
            consumer.max_deliveries, consumer.retry, consumer.dead, chance, consumer.acknowledged
        )
        self._consumer = consumer
        self._hooks = scope.hooks
        self._clock = scope.clock
        self._in_flight = in_flight
        self._reports = reports
        self._watched = bool(telemetry.chain.before_settle)
        scope.hooks.settled.append(self._settled)

    def returned(self, owned: Owned, additions: Sequence[Addition] = ()) -> None:
        """Acknowledge a delivery whose handler returned, and publish its results in the same step."""
        if self._watched:
            self.telemetry.returned(owned)
        self._in_flight.acknowledge(owned, additions)

    def end(self, owned: Owned, outcome: NotReturned) -> None:
        """Settle a delivery whose handler did not return, or did not begin."""
        settlement = decide(outcome, self.policy, owned.delivery, self._clock.now_ms())
        if settlement is None or not self._in_flight.owns(owned):
            return
        ending = self.telemetry.ends(owned, outcome, settlement)
        self._in_flight.settle([owned], settlement, ending)
        if isinstance(outcome, Stopped):
            owned.mark_lost()  # for a handler that still runs in its thread
        report(outcome, settlement, self._consumer, owned.delivery)

    def _settled(self, queued: Queued, outcome: SettleOutcome) -> None:
        """Process the reply to a settlement."""
        settlement = queued.settlement
        self.telemetry.settled(queued, outcome)
        if outcome.done and settlement.how != How.SILENT:
            self._reports.settled()
        if outcome.error is not None:
            self._could_not_add(queued, outcome.error)
        elif outcome.gone:
            self.telemetry.losses.pending([owned.id for owned in queued.entries])
        elif outcome.done and settlement.how not in FINAL:
            self._hooks.expect(self._clock.monotonic() + settlement.delay_ms / 1000)

    def _could_not_add(self, queued: Queued, error: Refused) -> None:
        """Fail the deliveries whose result or dead letter the stream refused."""
        where = queued.settlement.additions[0].stream
        first, *others = queued.entries
        log.error(
            "%s of %s%s: stream %s refuses the addition: %s",
            first.delivery.id,
            first.delivery.stream,
            f" and {len(others)} more" if others else "",
            where,
            error,
        )
        refused_record = where == self._consumer.dead
        for owned in queued.entries:
            self.end(owned, Unrecorded(error) if refused_record else Raised(error))
