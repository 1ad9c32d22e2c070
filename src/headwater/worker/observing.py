"""What is counted of one consumer's deliveries, and told to the middleware of its app."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.groups.settling import Outcome, Settlement
from headwater.worker.middleware import Chain, call
from headwater.worker.outcome import Ending, HandlerOutcome, ending_of, failed
from headwater.worker.owned import Owned
from headwater.worker.settle import Queued
from headwater.worker.statistics import Counters


class Observer:
    """Follows one consumer."""

    def __init__(self, counters: Counters, chain: Chain) -> None:
        self.counters = counters
        self._chain = chain

    def received(self, taken: Sequence[Owned]) -> None:
        """These were read."""
        self.counters.received += len(taken)
        for owned in taken:
            self.counters.claimed += owned.delivered.claimed
            self.counters.duplicates += owned.delivered.from_silent
            for method in self._chain.receive:
                call(method, owned.delivery)

    def ends(self, owned: Owned, outcome: HandlerOutcome, settlement: Settlement) -> None:
        """It is decided how the delivery ends."""
        owned.ending = ending_of(outcome, settlement)
        self.counters.failed += failed(outcome)
        for method in self._chain.before_settle:
            call(method, owned.delivery, owned.ending)

    def settled(self, queued: Queued, outcome: Outcome) -> None:
        """The store has answered the settlement."""
        additions = queued.settlement.additions
        for owned in queued.entries:
            if outcome.done:
                made = len(additions) if owned is queued.owned else 0
                self.counters.settled(owned.ending, published=made)
                for method in self._chain.after_settle:
                    call(method, owned.delivery, owned.ending)
            elif outcome.error is None and not outcome.gone:
                self.counters.lost += 1
        if outcome.done and queued.owned.ending is Ending.ACKNOWLEDGED:
            self._chain.published(additions, outcome.added)
