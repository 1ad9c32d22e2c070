"""Counts one consumer's deliveries, and calls the middleware of its app."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.groups.settling.settling import Settlement, SettleOutcome
from headwater.worker.declare.middleware import Chain, call
from headwater.worker.declare.outcome import Ending, Expired, HandlerOutcome, ending_of, failed
from headwater.worker.declare.owned import Owned
from headwater.worker.declare.statistics import Counters
from headwater.worker.observe.lost_entries import Losses
from headwater.worker.settle.settle import Queued


class Telemetry:
    """Counters and middleware calls of one consumer in one process."""

    def __init__(self, stream: str, group: str, counters: Counters, chain: Chain) -> None:
        self.counters = counters
        self.chain = chain
        self.losses = Losses(stream, group, counters)

    def received(self, taken: Sequence[Owned], claimed: Sequence[Owned]) -> None:
        """Count entries that were read. ``claimed`` are those of ``taken`` that were claimed."""
        self.counters.received += len(taken)
        self.counters.claimed += len(claimed)
        self.counters.duplicates += sum(owned.delivered.from_silent for owned in claimed)
        if self.chain.receive:
            for owned in taken:
                for method in self.chain.receive:
                    call(method, owned.delivery)

    def ends(self, owned: Owned, outcome: HandlerOutcome, settlement: Settlement) -> Ending:
        """Count a settlement that was decided. Return how the delivery ends."""
        ending = ending_of(outcome, settlement)
        self.counters.failed += failed(outcome)
        self.counters.expired += isinstance(outcome, Expired)
        self._decided(owned, ending)
        return ending

    def returned(self, owned: Owned) -> None:
        """Note that the handler returned, so that the delivery will be acknowledged."""
        self._decided(owned, Ending.ACKNOWLEDGED)

    def _decided(self, owned: Owned, ending: Ending) -> None:
        for method in self.chain.before_settle:
            call(method, owned.delivery, ending)

    def settled(self, queued: Queued, outcome: SettleOutcome) -> None:
        """Count a settlement to which the store has replied."""
        additions = queued.settlement.additions
        if not outcome.done:
            if outcome.error is None and not outcome.gone:
                self.counters.lost += sum(not owned.lost for owned in queued.entries)
                if queued.ending is Ending.ACKNOWLEDGED:
                    self.counters.overtaken += len(queued.entries)
            return
        self.counters.settled(queued.ending, len(queued.entries), published=len(additions))
        if self.chain.after_settle:
            for owned in queued.entries:
                for method in self.chain.after_settle:
                    call(method, owned.delivery, queued.ending)
        if queued.ending is Ending.ACKNOWLEDGED and not self.chain.empty:
            self.chain.published(additions, outcome.added)
