"""Handles a batch: decodes its entries, calls the handler, and settles each entry by its outcome.

Rule 1. `decide` is called for every entry, with its own delivery: its own attempts, its own dead letter.
Rule 2. All settlements of a batch are sent together. With a result, the acknowledged entries are one step with
        it (`groups.settling`, rule 4): if another worker has settled one of them, the others are handed back.
Rule 3. Entries that fail together wait equally long, so that they are a batch again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from random import Random

from headwater.groups.settling.settling import Settlement
from headwater.worker.declare.batches import BatchRun
from headwater.worker.declare.decide import Policy, decide
from headwater.worker.declare.declaration import Consumer
from headwater.worker.declare.outcome import (
    Crashed,
    Ending,
    HandlerOutcome,
    NotReturned,
    Returned,
    Stopped,
)
from headwater.worker.declare.owned import Owned
from headwater.worker.observe.delivery_log import Ended, report_batch
from headwater.worker.observe.telemetry import Telemetry
from headwater.worker.run.execute import Executor
from headwater.worker.run.slow import SlowHandlers
from headwater.worker.settle.in_flight import InFlight
from headwater.worker.store.clocks import Timers

log = logging.getLogger("headwater.worker")


class _OneDraw(Random):
    """Draws the same number for all entries of a batch."""

    def __init__(self, drawn: float) -> None:
        super().__init__(0)
        self._drawn = drawn

    def random(self) -> float:
        return self._drawn


class BatchHandler:
    """Runs one consumer's batch handler. ``end`` settles a single entry, as the loop does; ``crashed`` counts the death
    of a pool process (`Quarantine.crashed`)."""

    def __init__(
        self,
        consumer: Consumer,
        *,
        executor: Executor,
        in_flight: InFlight,
        policy: Policy,
        clock: Timers,
        slow: SlowHandlers,
        telemetry: Telemetry,
        end: Callable[[Owned, NotReturned], None],
        crashed: Callable[[Sequence[Owned], Crashed], Awaitable[Crashed]],
        observe: Callable[[Owned], None] | None,
    ) -> None:
        self._consumer = consumer
        self._executor = executor
        self._in_flight = in_flight
        self._policy = policy
        self._clock = clock
        self._slow = slow
        self._telemetry = telemetry
        self._end = end
        self._crashed = crashed
        self._observe = observe

    async def run(self, taken: list[Owned]) -> None:
        """Handle a batch, in a slot of the pool."""
        entries, items = [], []
        now = self._clock.monotonic()
        for owned in taken:
            message, wrong = self._executor.decode(owned)
            if wrong is not None:
                self._end(owned, wrong)
                continue
            entries.append(owned)
            items.append(message)
            owned.began = now
            if self._observe is not None:
                self._observe(owned)
        if not entries:
            return
        run = BatchRun(entries, items, whole=self._consumer.into is not None)
        run.task = asyncio.current_task()
        self._slow.began(entries[0])
        outcome = await self._executor.call(run.rows, run)
        self._slow.ended(entries[0], returned=isinstance(outcome, Returned))
        if isinstance(outcome, Crashed):
            outcome = await self._crashed(entries, outcome)
        self._settle(run, outcome)

    def _settle(self, run: BatchRun, outcome: HandlerOutcome) -> None:
        policy = self._policy._replace(chance=_OneDraw(self._policy.chance.random()))
        now = self._clock.now_ms()
        ended: list[Ended] = []
        returned: list[Owned] = []
        for owned, one in run.endings(outcome, self._in_flight.owns):
            if isinstance(one, Returned):
                returned.append(owned)
                continue
            settlement = decide(one, policy, owned.delivery, now)
            if settlement is None:
                continue
            ending = self._telemetry.ends(owned, one, settlement)
            self._in_flight.settle([owned], settlement, ending)
            if isinstance(one, Stopped):
                owned.mark_lost()  # for a handler that still runs in its thread
            ended.append(Ended(one, settlement, owned.delivery))
        self._acknowledge(returned, outcome)
        report_batch(ended, self._consumer)

    def _acknowledge(self, returned: Sequence[Owned], outcome: HandlerOutcome) -> None:
        """Acknowledge the entries for which the handler returned, in one step with its results."""
        additions = outcome.additions if isinstance(outcome, Returned) else ()
        for owned in returned if self._telemetry.chain.before_settle else ():
            self._telemetry.returned(owned)
        if not additions:
            for owned in returned:
                self._in_flight.acknowledge(owned)
        elif returned:
            first, *others = (owned.id for owned in returned)
            settlement = Settlement(
                first, self._policy.settled, 0, additions, others, any_owner=True
            )
            self._in_flight.settle(returned, settlement, Ending.ACKNOWLEDGED)
        else:
            log.warning(
                "%s acknowledged no entry of its batch: its %d results are not published",
                self._consumer.name,
                len(additions),
            )
