"""What is counted of one consumer's deliveries, and told to the middleware of its app."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.groups.settling import Outcome, Settlement
from headwater.worker.losses import Losses
from headwater.worker.middleware import Chain, call
from headwater.worker.outcome import Ending, HandlerOutcome, Returned, ending_of, failed
from headwater.worker.owned import Owned
from headwater.worker.settle import Queued
from headwater.worker.statistics import Counters


class Telemetry:
    """Follows one consumer of one process."""

    def __init__(self, stream: str, group: str, counters: Counters, chain: Chain) -> None:
        self.counters = counters
        self.chain = chain
        self.losses = Losses(stream, group, counters)

    def received(self, taken: Sequence[Owned]) -> None:
        """These were read."""
        self.counters.received += len(taken)
        for owned in taken:
            if owned.delivered.claimed:
                self.counters.claimed += 1
                self.counters.duplicates += owned.delivered.from_silent
        if self.chain.receive:
            for owned in taken:
                for method in self.chain.receive:
                    call(method, owned.delivery)

    def ends(self, owned: Owned, outcome: HandlerOutcome, settlement: Settlement) -> None:
        """It is decided how the delivery ends."""
        if isinstance(outcome, Returned):
            owned.ending = Ending.ACKNOWLEDGED
        else:
            owned.ending = ending_of(outcome, settlement)
            self.counters.failed += failed(outcome)
        for method in self.chain.before_settle:
            call(method, owned.delivery, owned.ending)

    def settled(self, queued: Queued, outcome: Outcome) -> None:
        """The store has answered the settlement."""
        additions = queued.settlement.additions
        if not outcome.done:
            if outcome.error is None and not outcome.gone:
                self.counters.lost += 1 + len(queued.others)
            return
        self.counters.settled(queued.owned.ending, published=len(additions))
        for owned in queued.others:
            self.counters.settled(owned.ending, published=0)
        if self.chain.empty:
            return
        for owned in queued.entries:
            for method in self.chain.after_settle:
                call(method, owned.delivery, owned.ending)
        if queued.owned.ending is Ending.ACKNOWLEDGED:
            self.chain.published(additions, outcome.added)
