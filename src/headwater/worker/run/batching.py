"""Handles a batch: decodes its entries, calls the handler, and settles each entry by its outcome.

Rule 1. `decide` is called for each entry with its delivery, so that each has its own attempts and dead letter.
Rule 2. If the handler returned a result, the entries to acknowledge are settled in one step with it (`settling`,
        rule 4). If another worker has settled one of them, the others are handed back.
Rule 3. Entries that fail together wait for the same time, so that they are a batch again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from random import Random

from headwater.groups.settling.settling import Settlement
from headwater.messages.keys import EXPIRES_FIELD
from headwater.worker.declare.batches import BatchRun
from headwater.worker.declare.decide import decide
from headwater.worker.declare.outcome import (
    Crashed,
    Ending,
    HandlerOutcome,
    Returned,
    Stopped,
)
from headwater.worker.declare.owned import Owned
from headwater.worker.observe.delivery_log import Ended, report_batch
from headwater.worker.run.handling import Handling

log = logging.getLogger("headwater.worker")


class _OneDraw(Random):
    """Draws the same number for all entries of a batch."""

    def __init__(self, drawn: float) -> None:
        super().__init__(0)
        self._drawn = drawn

    def random(self) -> float:
        return self._drawn


class BatchHandling(Handling):
    """Handles one consumer's batches."""

    async def run_batch(self, taken: list[Owned]) -> None:
        """Handle a batch in a slot of the pool, without the entries that have expired."""
        if self.expiry.always or any(EXPIRES_FIELD in owned.delivered.fields for owned in taken):
            taken = [owned for owned in taken if await self.in_time(owned)]
        entries, items = [], []
        now = self.clock.monotonic()
        for owned in taken:
            message, wrong = self.executor.decode(owned)
            if wrong is not None:
                self.endings.end(owned, wrong)
                continue
            entries.append(owned)
            items.append(message)
            owned.began = now
            if self.observe is not None:
                self.observe(owned)
        if not entries:
            return
        run = BatchRun(entries, items, whole=self.consumer.into is not None)
        run.task = asyncio.current_task()
        self.slow.began(entries[0])
        outcome = await self.executor.call(run.rows, run)
        self.slow.ended(entries[0], returned=isinstance(outcome, Returned))
        if isinstance(outcome, Crashed):
            outcome = await self.crashed(entries, outcome)
        self._settle(run, outcome)

    def _settle(self, run: BatchRun, outcome: HandlerOutcome) -> None:
        policy, telemetry = self.endings.policy, self.endings.telemetry
        policy = policy._replace(chance=_OneDraw(policy.chance.random()))
        now = self.clock.now_ms()
        ended: list[Ended] = []
        returned: list[Owned] = []
        for owned, one in run.endings(outcome, self.in_flight.owns):
            if isinstance(one, Returned):
                returned.append(owned)
                continue
            settlement = decide(one, policy, owned.delivery, now)
            if settlement is None:
                continue
            ending = telemetry.ends(owned, one, settlement)
            self.in_flight.settle([owned], settlement, ending)
            if isinstance(one, Stopped):
                owned.mark_lost()  # for a handler that still runs in its thread
            ended.append(Ended(one, settlement, owned.delivery))
        self._acknowledge(returned, outcome)
        report_batch(ended, self.consumer)

    def _acknowledge(self, returned: Sequence[Owned], outcome: HandlerOutcome) -> None:
        """Acknowledge the entries for which the handler returned, in one step with its results."""
        additions = outcome.additions if isinstance(outcome, Returned) else ()
        if not additions:
            for owned in returned:
                self.endings.returned(owned)
        elif returned:
            telemetry = self.endings.telemetry
            for owned in returned if telemetry.chain.before_settle else ():
                telemetry.returned(owned)
            first, *others = (owned.id for owned in returned)
            settlement = Settlement(
                first, self.consumer.acknowledged, 0, additions, others, any_owner=True
            )
            self.in_flight.settle(returned, settlement, Ending.ACKNOWLEDGED)
        else:
            log.warning(
                "%s acknowledged no entry of its batch: its %d results are not published",
                self.consumer.name,
                len(additions),
            )
