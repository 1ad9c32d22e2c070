"""One consumer in one process: what is read is handled, what is handled is settled.

    store ──▶ Reading ──▶ accept ──▶ Pool ──▶ Handling ──▶ Custody, Settler ──▶ store
                 ▲                                              │
                 └──────────────── room ◀───────────────────────┘

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
from headwater.worker.declaration import Consumer
from headwater.worker.handling import Handling
from headwater.worker.held import Held, State, Stop
from headwater.worker.leases import TaskKeeper, ThreadKeeper
from headwater.worker.pool import Pool
from headwater.worker.reading import Reading
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
        self.handling = Handling(consumer, clock=clock, chance=chance)
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
            # In a thread, or deaf to cancellation: it is handed back while it runs.
            held.delivery.mark_lost()
            held.stopped = Stop.LOST
            self.custody.settle(held, Settlement(held.id, How.SILENT))
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
        self.handling.close()
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
                self.custody.settle(held, self.handling.exhausted(held, self.custody.the_member()))
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
        """What a task of the pool does with one entry."""
        if self._observe is not None:
            self._observe(held)
        member = self.custody.the_member()
        try:
            settlement = await self.handling.handle(held, member)
        except Exception as error:
            log.exception("handling %s went wrong", held.delivery.id)
            settlement = self.handling.failed(held, member, error)
        if settlement is not None and self.custody.holds(held):
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
        if where == self.consumer.dead:
            # Nothing is lost: it comes again, is dead again, and the record may be taken then.
            retry = self.consumer.retry
            delay = 60_000 if retry is None else retry.ceiling_ms
            self.custody.settle(held, Settlement(held.id, How.FAIL, delay_ms=delay))
        else:
            member = self.custody.the_member()
            self.custody.settle(held, self.handling.failed(held, member, error))
