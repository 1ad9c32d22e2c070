"""The stages of one consumer after a read: accept entries, handle them, settle them.

fetcher ──▶ accept ──▶ Pool ──▶ run: execute ──▶ end: decide ──▶ InFlight ──▶ settled
               └─▶ dead letters, quarantine, back to the group
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from random import Random

from headwater.groups.protocol.operation import Refused
from headwater.groups.reading.claiming import Delivered, claim_interval_ms
from headwater.groups.reading.poison import NO_RECORD, condemnation
from headwater.groups.settling.settling import FINAL, How, SettleOutcome
from headwater.messages import EXPIRES_FIELD
from headwater.worker.declare.decide import Policy, decide
from headwater.worker.declare.declaration import Consumer
from headwater.worker.declare.dependencies import Values
from headwater.worker.declare.outcome import (
    Condemned,
    Crashed,
    Exhausted,
    NotReturned,
    Raised,
    Returned,
    Stopped,
    Unrecorded,
)
from headwater.worker.declare.owned import Owned, State
from headwater.worker.observe.delivery_log import report
from headwater.worker.observe.supervisor_pipe import Reports
from headwater.worker.observe.telemetry import Telemetry
from headwater.worker.read.fetch import Fetcher
from headwater.worker.read.ordered_fetch import OrderedFetch
from headwater.worker.read.quarantine import Quarantine
from headwater.worker.run.batch_pool import BatchPool
from headwater.worker.run.batching import BatchHandler
from headwater.worker.run.execute import Executor
from headwater.worker.run.expiry import Expiry
from headwater.worker.run.gate import Gate
from headwater.worker.run.pool import HandBack, Pool
from headwater.worker.run.slow import SlowHandlers
from headwater.worker.settle.in_flight import InFlight
from headwater.worker.settle.settle import BATCH, Queued
from headwater.worker.store.clocks import Timers
from headwater.worker.store.shared_connection import SharedConnections
from headwater.worker.store.waiting import Changes

log = logging.getLogger("headwater.worker")

AHEAD_SECONDS = 0.05
"""For how long the slots should have work beyond what runs: longer than a read takes."""


def _settled_how(consumer: Consumer) -> How:
    return How.ACKED if consumer.delete else How.ACK


def _policy(consumer: Consumer, chance: Random) -> Policy:
    how = _settled_how(consumer)
    return Policy(consumer.max_deliveries, consumer.retry, consumer.dead, chance, how)


class Flow:
    """The stages of one consumer between the read and the settlement. Call `connect` before the first
    entry."""

    def __init__(
        self,
        consumer: Consumer,
        *,
        name: str,
        connections: SharedConnections,
        clock: Timers,
        changes: Changes,
        chance: Random,
        reports: Reports,
        telemetry: Telemetry,
        values: Values,
        observe: Callable[[Owned], None] | None,
        end_process: Callable[[Exception], None],
    ) -> None:
        self.consumer = consumer
        self.joined = False
        """Whether it was reported to the supervisor that this consumer has joined its group."""
        self.telemetry = telemetry
        self.in_flight = InFlight(
            name,
            stream=consumer.stream.name,
            clock=clock,
            connections=connections,
            changes=changes,
            counters=telemetry.counters,
            settled=self._settled,
            how=_settled_how(consumer),
            most=BATCH if consumer.batch is None else max(BATCH, consumer.batch.size),
        )
        self.executor = Executor(
            consumer,
            clock=clock,
            chain=telemetry.chain,
            values=values,
            end_process=end_process,
        )
        self.slow = SlowHandlers(
            consumer, clock=clock, busy=lambda: self.pool.busy, stack=self.executor.stack
        )
        self._clock = clock
        self._changes = changes
        self._reports = reports
        self._observe = observe
        self._policy = _policy(consumer, chance)
        self._watched = bool(telemetry.chain.before_settle)
        self.expiry = Expiry(consumer, clock=clock, ask=self.in_flight.ask)
        self._run_in_time: Callable[[list[Owned]], Awaitable[None]]
        """Handles a batch."""
        self.pool = self._make_pool()
        self.fetcher: Fetcher
        self.quarantine: Quarantine
        self.order: OrderedFetch | None = None
        self.gate: Gate | None = None
        """Before the slots, if the consumer has limits."""

    def connect(self, fetcher: Fetcher, quarantine: Quarantine, order: OrderedFetch | None) -> None:
        """Set the parts with which this one works."""
        self.fetcher = fetcher
        self.quarantine = quarantine
        self.order = order

    def _make_pool(self) -> Pool:
        size, hurry = self.consumer.concurrency, self.in_flight.settler.hurry
        hold = None
        if (
            self.consumer.order_by is None
        ):  # no other process may run what an ordered consumer has read
            hold = HandBack(self._clock, self._others_look_s, self.in_flight.hand_back)
        if self.consumer.batch is None:
            return Pool(size, self._run, hurry, self._changes, hold)
        handler = BatchHandler(
            self.consumer,
            executor=self.executor,
            in_flight=self.in_flight,
            policy=self._policy,
            clock=self._clock,
            slow=self.slow,
            telemetry=self.telemetry,
            end=self.end,
            crashed=self._crashed,
            observe=self._observe,
        )
        self._run_in_time = handler.run
        assert hold is not None, "a batch has no order_by"
        return BatchPool(size, self._run_batch, hurry, self._changes, hold, consumer=self.consumer)

    def _others_look_s(self) -> float:
        """Return how long it takes at most until another process looks for an entry that is handed back."""
        member = self.in_flight.member
        if member is None or member.able.verbs:
            return 0.0
        return claim_interval_ms(member) / 1000

    # --- before a read ----------------------------------------------------------------------------

    def room(self) -> int:
        """Return how many entries to read next; 0 if it is better to wait until there is more room."""
        capacity = self.pool.capacity
        most = self._most(capacity)
        free = most - len(self.in_flight.owned)
        if self.order is not None:
            self.order.make_room(full=free <= 0 and self.pool.hungry)
            self.order.yield_if_busy()
        enough = max(1, (most - capacity) // 2)
        return free if free >= enough or (free > 0 and self.pool.hungry) else 0

    def _most(self, capacity: int) -> int:
        """Return how many entries this consumer may own now: what runs, and what its slots handle in
        `AHEAD_SECONDS`, at least one entry or batch."""
        consumer = self.consumer
        if self.gate is not None and self.order is None:
            return min(consumer.prefetch, capacity + self.gate.ahead())
        if self.pool.overfull:
            return min(consumer.prefetch, capacity)
        if not consumer.measured:
            return consumer.prefetch
        usual = self.slow.usual()
        runs = 1 if usual is None else int(consumer.concurrency * AHEAD_SECONDS / max(usual, 1e-6))
        together = 1 if consumer.batch is None else consumer.batch.size
        return min(consumer.prefetch, capacity + max(1, runs) * together)

    # --- after a read -----------------------------------------------------------------------------

    async def accept(self, found: Sequence[Delivered]) -> None:
        """Own the entries of a read, and pass each on: to the handlers, the dead letters, the quarantine, or
        back to the group."""
        if not self.joined:
            self.joined = True
            self._reports.joined(self.consumer.stream.name, self.consumer.group)
        taken = self.in_flight.take(found)
        claimed = [owned for owned in taken if owned.delivered.claimed]
        self.telemetry.received(taken, claimed)
        order = self.order
        fresh = taken
        if claimed or order:
            wrong = {o: error for o in taken if order and (error := order.ordering.arrived(o))}
            await self.quarantine.judge(claimed)
            fresh = [owned for owned in taken if self._admits(owned, wrong.get(owned))]
        if self.fetcher.stopping or self.fetcher.paused or (order and not order.reads):
            self.in_flight.hand_back(fresh)
            return
        suspects = [owned for owned in fresh if self._suspects(owned)] if claimed else []
        others = [owned for owned in fresh if owned not in suspects] if suspects else fresh
        if suspects and not self.quarantine.hands_back:
            self.in_flight.hand_back(others)
            await self.quarantine.handle(suspects)
            return
        if order:
            order.ordering.advance([owned.id for owned in others])
        else:
            self.pool.put(*others)
        if suspects:
            await self.quarantine.handle(suspects)
        if found and not fresh:
            self.in_flight.settler.hurry()

    def _suspects(self, owned: Owned) -> bool:
        return owned.record.suspected(isolated=self.consumer.isolated)

    def _admits(self, owned: Owned, wrong: BaseException | None) -> bool:
        """Return whether an entry may be handled. If not, it was settled in another way, or this consumer has lost
        it."""
        if owned.state is not State.BUFFERED or not self.in_flight.owns(owned):
            return False  # a stop handed it back meanwhile, or another consumer owns it
        if owned.record is not NO_RECORD and owned.record.condemned(self.consumer.max_crashes):
            self.end(owned, Condemned(condemnation(owned.record)))
        elif owned.attempts > self.consumer.max_deliveries + owned.record.unjudged:
            self.end(owned, Exhausted())
        elif wrong is not None:
            self.end(owned, Raised(wrong))
        else:
            return True
        return False

    # --- handling and settling --------------------------------------------------------------------

    async def _run(self, owned: Owned) -> None:
        """Handle one entry, in a slot of the pool."""
        if self.gate is not None and self.gate.too_late(owned):
            return
        fields = owned.delivered.fields
        # One field is the message.
        expires = self.expiry.always or (len(fields) > 2 and EXPIRES_FIELD in fields)
        if expires and not await self._in_time(owned):
            return
        if self._observe is not None:
            self._observe(owned)
        self.slow.began(owned)
        message, wrong = self.executor.decode(owned)
        outcome = await self.executor.call(message, owned) if wrong is None else wrong
        if isinstance(outcome, Returned):
            self.slow.ended(owned, returned=True)
            if self._watched:
                self.telemetry.returned(owned)
            self.in_flight.acknowledge(owned, outcome.additions)
            return
        self.slow.ended(owned, returned=False)
        if isinstance(outcome, Crashed):
            outcome = await self._crashed([owned], outcome)
        self.end(owned, outcome)

    async def _crashed(self, entries: Sequence[Owned], outcome: Crashed) -> Crashed:
        return await self.quarantine.crashed(entries, outcome)

    async def _run_batch(self, taken: list[Owned]) -> None:
        """Handle those entries of a batch that have not expired, in a slot of the pool."""
        if self.expiry.always or any(EXPIRES_FIELD in owned.delivered.fields for owned in taken):
            taken = [owned for owned in taken if await self._in_time(owned)]
        await self._run_in_time(taken)

    async def _in_time(self, owned: Owned) -> bool:
        """Return whether an entry may start. If not, it has expired and is settled, or it was lost or handed back
        while the server was asked for the time."""
        expired = await self.expiry.expired(owned)
        if owned.state is not State.RUNNING or not self.in_flight.owns(owned):
            return False
        if expired is not None:
            self.end(owned, expired)
        return expired is None

    def end(self, owned: Owned, outcome: NotReturned) -> None:
        """Settle the delivery by its outcome and the consumer's policy."""
        settlement = decide(outcome, self._policy, owned.delivery, self._clock.now_ms())
        if settlement is None or not self.in_flight.owns(owned):
            return
        ending = self.telemetry.ends(owned, outcome, settlement)
        self.in_flight.settle([owned], settlement, ending)
        if isinstance(outcome, Stopped):
            owned.mark_lost()  # for a handler that still runs in its thread
        report(outcome, settlement, self.consumer, owned.delivery)

    def _settled(self, queued: Queued, outcome: SettleOutcome) -> None:
        """Process the reply to a settlement."""
        settlement = queued.settlement
        self.telemetry.settled(queued, outcome)
        if self.order is not None:
            self.order.ordering.settled(queued, outcome)
        if self.gate is not None:
            self.gate.settled(queued.entries)
        if outcome.done and settlement.how != How.SILENT:
            self._reports.settled()
        if outcome.error is not None:
            self._could_not_add(queued, outcome.error)
        elif outcome.done and settlement.how in FINAL:
            for owned in queued.entries:
                if owned.record is not NO_RECORD:
                    self.quarantine.settled(owned)
        elif outcome.gone:
            self.telemetry.losses.pending([owned.id for owned in queued.entries])
        elif outcome.done:
            self.fetcher.expect(self._clock.monotonic() + settlement.delay_ms / 1000)

    def _could_not_add(self, queued: Queued, error: Refused) -> None:
        """Fail the deliveries whose result or dead letter was refused by its stream."""
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
        refused_record = where == self.consumer.dead
        for owned in queued.entries:
            self.end(owned, Unrecorded(error) if refused_record else Raised(error))
