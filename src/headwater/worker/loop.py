"""One consumer in one process: what is read is handled, what is handled is settled.

    store ──▶ Reading ──▶ accept ──▶ Pool ──▶ execute ──▶ decide ──▶ Custody, Settler ──▶ store
                 ▲                                                        │
                 └───────────────────── room ◀────────────────────────────┘

Rule 1. It never owns more than ``prefetch`` entries.
Rule 2. A stop hands back what was not begun, at once and uncounted; what runs may end; the consumer
        is removed from the group when it owns nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from random import Random

from headwater.groups.claiming import Delivered, recover
from headwater.groups.member import retire
from headwater.groups.operation import Refused, single
from headwater.groups.settling import How, Outcome, Settlement
from headwater.worker.alone import Gate
from headwater.worker.clocks import LoopClock, Timers
from headwater.worker.connections import Connections
from headwater.worker.custody import Custody
from headwater.worker.decide import Policy, decide
from headwater.worker.declaration import Consumer
from headwater.worker.execute import Executor
from headwater.worker.held import Held, State, Stop
from headwater.worker.leases import TaskKeeper, ThreadKeeper
from headwater.worker.outcome import Exhausted, HandlerOutcome, Raised, Stopped, Unrecorded
from headwater.worker.pool import Pool
from headwater.worker.reading import Reading
from headwater.worker.report import report
from headwater.worker.settler import Ending
from headwater.worker.signals import Changes

log = logging.getLogger("headwater.worker")

CANCELLED_SECONDS = 1.0
"""What a cancelled handler has to clean up in."""


class Loop:
    """Runs one `Consumer` under the name ``consumer_name``. Made and used in one event loop.

    ``failed`` gets the error that no waiting mends: a wrong password, another ``claim_after``.
    """

    def __init__(
        self,
        consumer: Consumer,
        *,
        consumer_name: str,
        connections: Connections,
        clock: Timers,
        gate: Gate,
        chance: Random,
        observe: Callable[[Held], None] | None = None,
    ) -> None:
        self.consumer = consumer
        self.consumer_name = consumer_name
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._clock = clock
        self._gate = gate
        self._observe = observe
        self._changes = changes = Changes()
        self.custody = custody = Custody(
            clock=clock, connections=connections, changes=changes, settled=self._settled
        )
        self.executor = Executor(consumer, clock=clock)
        self._policy = Policy(consumer.max_deliveries, consumer.retry, consumer.dead, chance)
        self.pool = Pool(consumer.concurrency, self._run, custody.settler.hurry, changes)
        keeper = ThreadKeeper if isinstance(clock, LoopClock) else TaskKeeper
        self._keeper = keeper(
            custody, lease_ms=consumer.lease_ms, clock=clock, connections=connections
        )
        self.reading = Reading(
            consumer,
            consumer_name=consumer_name,
            connections=connections,
            clock=clock,
            custody=custody,
            keeper=self._keeper,
            changes=changes,
            hungry=lambda: self.pool.hungry,
            accept=self._accept,
        )
        self._tasks: list[asyncio.Task[None]] = []
        gate.loops.append(self)

    # --- life -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to read."""
        name = f"{self.consumer.stream.name}/{self.consumer.group}"
        self._keeper.start()
        self._tasks = [
            asyncio.create_task(self.reading.run(), name=f"{name} reader"),
            asyncio.create_task(self.custody.settler.run(), name=f"{name} settler"),
            *self.pool.start(name),
        ]
        for task in self._tasks:
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not self.failed.done():
            self.failed.set_exception(error)

    async def stop(self, *, grace: float, at_once: asyncio.Event) -> None:
        """End in peace: nothing new is read, what was not begun goes back now, what runs has
        ``grace`` seconds, and less when ``at_once`` is set: then it is handed back too."""
        self.reading.stopping = True
        self._changes.notify()
        await self.reading.quieten()
        self.custody.hand_back(self.custody.unbegun())
        await self._quiet_within(grace, at_once)
        interrupted = list(self.pool.running)
        for held in interrupted:
            held.stop(Stop.STOPPING)
        if interrupted:
            await self._quiet_within(CANCELLED_SECONDS)
        for held in list(self.pool.running):
            # In a thread, or it ignores its cancellation: it is handed back while it runs.
            held.delivery.mark_lost()
            held.stopped = Stop.LOST
            self._end(held, Stopped())
        if self.reading.joined:
            await self._leave_within(max(grace, 1.0))
        await self.close()

    async def _quiet_within(self, seconds: float, hurry: asyncio.Event | None = None) -> None:
        """Wait until nothing runs, until ``seconds`` are over, or until ``hurry``."""
        if not self.pool.running:
            return
        over = asyncio.Event()
        timer = self._clock.call_later(seconds, over.set)
        waits = [
            asyncio.ensure_future(self._changes.until(lambda: not self.pool.running)),
            asyncio.ensure_future(over.wait()),
        ]
        if hurry is not None:
            waits.append(asyncio.ensure_future(hurry.wait()))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            for one in waits:
                one.cancel()

    async def _leave_within(self, seconds: float) -> None:
        """Send the last settlements and leave the group; a store that is away is not waited for."""
        leaving = asyncio.ensure_future(self._leave())
        timer = self._clock.call_later(seconds, leaving.cancel)
        try:
            await asyncio.wait([leaving])
        finally:
            timer.cancel()
        if leaving.cancelled():
            log.warning(
                "the store did not answer before the stop: %d entries stay with %s until they are "
                "claimed",
                len(self.custody.held),
                self.consumer_name,
            )
            return
        log.info(
            "%s of %s stopped%s",
            self.consumer.group,
            self.consumer.stream.name,
            "" if leaving.result() else "; its consumer still owns entries",
        )

    async def _leave(self) -> bool:
        """Settle, hand back what arrived unseen, and remove the consumer if it owns nothing."""
        await self.custody.settler.drained()
        found, gone = await self.custody.ask(lambda who: recover(who, list(self.custody.held)))
        await self._accept(found)
        if gone:
            await self.custody.ask(lambda who: single("XACK", who.stream, who.group, *gone))
        await self.custody.settler.drained()
        return bool(await self.custody.ask(retire))

    def abandon(self) -> None:
        """Vanish, as a process that was killed does: nothing is settled, handed back or renewed."""
        self._keeper.cancel()
        self.custody.abandon()
        self.pool.dismiss()
        for task in self._tasks:
            task.cancel()
        if self in self._gate.loops:
            self._gate.loops.remove(self)

    async def close(self) -> None:
        """Let go of tasks, threads and connections."""
        self.abandon()
        await self._keeper.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.custody.close()
        self.executor.close()
        if not self.failed.cancel() and not self.failed.cancelled():
            self.failed.exception()  # a stop that came first has nobody who asks for it

    # --- what was read ----------------------------------------------------------------------------

    async def _accept(self, found: Sequence[Delivered]) -> None:
        """Hold what was read and pass it on: to the handlers, to the dead letters, or back."""
        fresh = []
        for delivered in found:
            held = self.custody.take(delivered, suspect_from=self.consumer.suspect_from)
            if held is None:
                continue
            if held.count > self.consumer.max_deliveries:
                self._end(held, Exhausted())
            else:
                fresh.append(held)
        if self.reading.stopping or self.reading.paused:
            self.custody.hand_back(fresh)
            return
        suspects = [held for held in fresh if held.suspect]
        if suspects:
            self.custody.hand_back([held for held in fresh if held is not suspects[0]])
            await self._run_alone(suspects[0])
            return
        for held in fresh:
            self.pool.put(held)
        if found and not fresh:
            self.custody.settler.hurry()

    async def _run_alone(self, suspect: Held) -> None:
        """Have it handled while this process owns nothing else that it has not finished."""
        self.custody.hand_back([held for held in self.custody.unbegun() if held is not suspect])
        if not await self._gate.enter(self):
            self.custody.hand_back([suspect])
            return
        try:
            await self._changes.until(lambda: not self.pool.running)
            self.custody.settler.hurry()
            await self._changes.until(
                lambda: len(self.custody.held) == 1 or suspect.state is not State.BUFFERED
            )
            # A stop, or a lost lease, may have ended it while it waited.
            if suspect.state is State.BUFFERED and self.custody.holds(suspect):
                log.warning(
                    "%s of %s runs alone: it was delivered %d times before, and its last owner "
                    "fell silent",
                    suspect.delivery.id,
                    suspect.delivery.stream,
                    suspect.count - 1,
                )
                self.pool.put(suspect)
            await self._changes.until(lambda: not self.custody.holds(suspect))
        finally:
            self._gate.leave(self)

    async def pause(self) -> None:
        """For another consumer's suspect: own nothing, run nothing. See `alone`."""
        self.reading.paused = True
        await self.reading.quieten()
        self.custody.hand_back(self.custody.unbegun())
        await self._changes.until(lambda: not self.pool.running)
        await self.custody.settler.drained()

    def resume(self) -> None:
        """Read again."""
        self.reading.paused = False
        self._changes.notify()

    # --- handling and settling --------------------------------------------------------------------

    async def _run(self, held: Held) -> None:
        """What a slot of the pool does with one entry."""
        if self._observe is not None:
            self._observe(held)
        self._end(held, await self.executor.run(held))

    def _end(self, held: Held, outcome: HandlerOutcome) -> None:
        """Settle the delivery as its outcome and the consumer's policy say."""
        settlement = decide(outcome, self._policy, held.delivery, self._clock.now_ms())
        if settlement is None or not self.custody.holds(held):
            return
        report(outcome, settlement, self.consumer, held.delivery)
        self.custody.settle(held, settlement)

    def _settled(self, ending: Ending, outcome: Outcome) -> None:
        """A settlement's reply has come."""
        held, settlement = ending
        if outcome.error is not None:
            self._could_not_add(held, settlement, outcome.error)
        elif outcome.done and self.reading.reader is not None and settlement.how != How.ACK:
            self.reading.reader.expect(self._clock.monotonic() + settlement.delay_ms / 1000)

    def _could_not_add(self, held: Held, settlement: Settlement, error: Refused) -> None:
        """A result, or a dead letter, that its stream does not take."""
        where = settlement.additions[0].stream
        log.error(
            "%s of %s: %s does not take what is added to it: %s",
            held.delivery.id,
            held.delivery.stream,
            where,
            error,
        )
        refused_record = where == self.consumer.dead
        self._end(held, Unrecorded(error) if refused_record else Raised(error))
