"""One consumer in one process: what is read is handled, what is handled is settled.

    store ──▶ Fetcher ──▶ accept ──▶ Pool ──▶ execute ──▶ decide ──▶ InFlight, Settler ──▶ store
                 ▲                                                        │
                 └───────────────────── room ◀────────────────────────────┘

Rule 1. It never owns more than ``prefetch`` entries.
Rule 2. It never looks alive and does nothing: a task of it that ends unasked is its end, with an
        error that names the task.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from random import Random

from headwater.errors import HeadwaterError
from headwater.groups.claiming import Delivered
from headwater.groups.operation import Refused
from headwater.groups.poison import condemnation
from headwater.groups.settling import How, Outcome
from headwater.messages import error_text
from headwater.worker.batch_pool import BatchPool
from headwater.worker.batching import BatchHandler
from headwater.worker.clocks import LoopClock, Timers
from headwater.worker.connections import Connections
from headwater.worker.decide import Policy, decide
from headwater.worker.declaration import Consumer
from headwater.worker.execute import Executor
from headwater.worker.fetch import Fetcher
from headwater.worker.in_flight import InFlight
from headwater.worker.lease import TaskRenewer, ThreadRenewer
from headwater.worker.losses import Losses
from headwater.worker.noting import Noting
from headwater.worker.ordered_fetch import OrderedFetch
from headwater.worker.outcome import (
    Condemned,
    Exhausted,
    HandlerOutcome,
    Raised,
    Returned,
    Stopped,
    Unrecorded,
)
from headwater.worker.owned import Owned, State
from headwater.worker.pool import Pool
from headwater.worker.quarantine import Quarantine, QuarantineLock, Suspects
from headwater.worker.reaping import reap_regularly
from headwater.worker.report import report
from headwater.worker.reports import Reports
from headwater.worker.settle import BATCH, Queued
from headwater.worker.signals import Changes, ended
from headwater.worker.slow import SlowHandlers
from headwater.worker.stopping import Stopping

log = logging.getLogger("headwater.worker")


class TaskEnded(Exception):
    """A part of the worker ended although nothing asked it to. The worker cannot go on: it would
    look alive and do nothing."""


def _why(error: BaseException | None) -> str:
    if error is None:
        return "although nothing asked it to"
    return f"with an error: {error_text(error)}"


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
        lock: QuarantineLock,
        suspects: Suspects,
        chance: Random,
        reports: Reports,
        observe: Callable[[Owned], None] | None = None,
    ) -> None:
        self.consumer = consumer
        self.consumer_name = consumer_name
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._clock = clock
        self._lock = lock
        self._observe = observe
        self._reports = reports
        self._abandoned = self._reported = False
        self._changes = changes = Changes()
        name = f"{consumer.stream.name}/{consumer.group}"
        self.in_flight = in_flight = InFlight(
            name,
            lease_ms=consumer.lease_ms,
            clock=clock,
            connections=connections,
            changes=changes,
            settled=self._settled,
            most=BATCH if consumer.batch is None else max(BATCH, consumer.batch.size),
        )
        self.executor = Executor(consumer, clock=clock)
        self._policy = Policy(consumer.max_deliveries, consumer.retry, consumer.dead, chance)
        self._slow = SlowHandlers(consumer, clock=clock)
        self.pool = self._make_pool()
        renewer = ThreadRenewer if isinstance(clock, LoopClock) else TaskRenewer
        self._renewer = renewer(
            name,
            in_flight,
            lease_ms=consumer.lease_ms,
            clock=clock,
            connections=connections,
            ended=self._broken,
        )
        self.losses = Losses(consumer.stream.name, consumer.group)
        self.order = None if consumer.order_by is None else self._make_order()
        if self.order is not None:
            suspects = Suspects.HERE  # a suspect keeps its place
        self.fetcher = self._make_fetcher(connections, suspects)
        self._noting = Noting(
            clock=clock,
            client=in_flight.client,
            member=lambda: in_flight.member,
            changes=changes,
        )
        self.quarantine = self._make_quarantine(suspects)
        self._tasks: list[asyncio.Task[None]] = []
        lock.loops.append(self)

    def _make_pool(self) -> Pool:
        size, hurry = self.consumer.concurrency, self.in_flight.settler.hurry
        if self.consumer.batch is None:
            return Pool(size, self._run, hurry, self._changes)
        handler = BatchHandler(
            self.consumer,
            executor=self.executor,
            in_flight=self.in_flight,
            policy=self._policy,
            clock=self._clock,
            slow=self._slow,
            end=self._end,
            observe=self._observe,
        )
        return BatchPool(
            size, handler.run, hurry, self._changes, batch=self.consumer.batch, clock=self._clock
        )

    def _make_fetcher(self, connections: Connections, suspects: Suspects) -> Fetcher:
        return Fetcher(
            self.consumer,
            consumer_name=self.consumer_name,
            connections=connections,
            clock=self._clock,
            in_flight=self.in_flight,
            renewer=self._renewer,
            changes=self._changes,
            losses=self.losses,
            suspects_only=suspects is Suspects.ONLY,
            hungry=lambda: self.pool.hungry,
            accept=self._accept,
            order=self.order,
        )

    def _make_order(self) -> OrderedFetch:
        order = OrderedFetch(
            self.consumer,
            clock=self._clock,
            in_flight=self.in_flight,
            changes=self._changes,
            gone=self.losses.pending,
            put=self.pool.put,
            call_back=self._call_back,
            idle=lambda: not self.pool.running and not self.executor.threads_busy,
        )
        self.in_flight.reading = order.lease
        self.in_flight.dropped = order.ordering.away
        return order

    def _call_back(self, due: float) -> None:
        self.fetcher.expect(due)

    def _make_quarantine(self, suspects: Suspects) -> Quarantine:
        return Quarantine(
            self.consumer,
            self,
            suspects=suspects,
            lock=self._lock,
            in_flight=self.in_flight,
            pool=self.pool,
            clock=self._clock,
            changes=self._changes,
        )

    # --- life -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to read."""
        name = f"{self.consumer.stream.name}/{self.consumer.group}"
        self._renewer.start()
        self._tasks = [
            asyncio.create_task(self.fetcher.run(), name=f"{name} reader"),
            asyncio.create_task(self.in_flight.settler.run(), name=f"{name} settler"),
            asyncio.create_task(
                reap_regularly(
                    lambda: self.in_flight.client, lambda: self.in_flight.member, self._clock
                ),
                name=f"{name} reaper",
            ),
            asyncio.create_task(self._noting.run(), name=f"{name} noter"),
            *self.pool.start(name),
        ]
        for task in self._tasks:
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A task has ended. If nothing asked it to, this worker ends with an error."""
        error = None if task.cancelled() else task.exception()
        stopped = task is self._tasks[0] and self.fetcher.stopping
        finished = stopped and not task.cancelled() and error is None
        if not self._abandoned and not finished:
            self._broken(task.get_name(), error)

    def _settles(self) -> bool:
        """Whether the settler runs, without which nothing can be handed back."""
        return bool(self._tasks) and not self._tasks[1].done()

    def _broken(self, name: str, error: BaseException | None) -> None:
        if self.failed.done():
            return
        if not self.fetcher.joined and isinstance(error, HeadwaterError):
            self._reports.refused(self.consumer.stream.name, self.consumer.group)
        elif not (name.endswith("reader") and isinstance(error, HeadwaterError)):
            ended = TaskEnded(f"{name} of {self.consumer.name} ended {_why(error)}")
            ended.__cause__ = error
            error = ended
        self.failed.set_exception(error)
        self.failed.exception()  # asked for here, so that a loop that closes first says nothing

    async def stop(self, *, grace: float, at_once: asyncio.Event) -> None:
        """Stop within ``grace`` seconds, and sooner when ``at_once`` is set; see `stopping`."""
        if self._settles():
            stopping = Stopping(
                self.consumer,
                consumer_name=self.consumer_name,
                clock=self._clock,
                changes=self._changes,
                in_flight=self.in_flight,
                pool=self.pool,
                fetcher=self.fetcher,
                accept=self._accept,
                end=self._end,
                forgotten=self.quarantine.forgotten,
                losses=self.losses,
            )
            await stopping.run(grace, at_once)
        if self.order is not None:
            await self.order.release()
        await self.close()

    def abandon(self) -> None:
        """Drop all work without settling it, as SIGKILL would."""
        self._abandoned = True
        self._renewer.cancel()
        self.quarantine.abandon()
        self.in_flight.abandon()
        self.pool.dismiss()
        self._slow.close()
        if self.order is not None:
            self.order.close()
        for task in self._tasks:
            task.cancel()
        if self in self._lock.loops:
            self._lock.loops.remove(self)

    async def close(self) -> None:
        """Let go of tasks, threads and connections. A handler that ignores its cancellation is left
        behind."""
        self.abandon()
        await self._renewer.close()
        await ended(self._tasks)
        await self.in_flight.close()
        self.executor.close()
        self.failed.cancel()

    # --- what was read ----------------------------------------------------------------------------

    async def _accept(self, found: Sequence[Delivered]) -> None:
        """Hold what was read and pass it on: to the handlers, the dead letters, the quarantine, or
        back."""
        if not self._reported:
            self._reported = True
            self._reports.joined(self.consumer.stream.name, self.consumer.group)
        taken = [owned for one in found if (owned := self.in_flight.take(one)) is not None]
        order = self.order
        wrong = {one: error for one in taken if order and (error := order.ordering.arrived(one))}
        await self.quarantine.judge(taken)
        fresh = []
        for owned in taken:
            if owned.state is not State.BUFFERED or not self.in_flight.owns(owned):
                continue  # a stop handed it back meanwhile, or another has it
            if owned.record.condemned:
                self._end(owned, Condemned(condemnation(owned.record)))
            elif owned.attempts > self.consumer.max_deliveries:
                self._end(owned, Exhausted())
            elif owned in wrong:
                self._end(owned, Raised(wrong[owned]))
            else:
                fresh.append(owned)
        if self.fetcher.stopping or self.fetcher.paused or (order and not order.reads):
            self.in_flight.hand_back(fresh)
            return
        suspects = [owned for owned in fresh if owned.record.suspect]
        if suspects and not self.quarantine.leaves:
            self.in_flight.hand_back([owned for owned in fresh if not owned.record.suspect])
            await self.quarantine.handle(suspects)
            return
        if order:
            order.ordering.advance([owned.id for owned in fresh if not owned.record.suspect])
        for owned in fresh if not order else ():
            if not owned.record.suspect:
                self.pool.put(owned)
        if suspects:
            await self.quarantine.handle(suspects)
        if found and not fresh:
            self.in_flight.settler.hurry()

    async def pause(self) -> None:
        """For another consumer's suspect: own nothing, run nothing. See `Quarantine`."""
        self.fetcher.paused = True
        await self.fetcher.quieten()
        self.in_flight.hand_back(self.in_flight.unbegun())
        await self._changes.until(lambda: not self.pool.running)
        await self.in_flight.settler.drained()

    def resume(self) -> None:
        """Read again."""
        self.fetcher.paused = False
        self._changes.notify()

    # --- handling and settling --------------------------------------------------------------------

    async def _run(self, owned: Owned) -> None:
        """What a slot of the pool does with one entry."""
        if self._observe is not None:
            self._observe(owned)
        self._slow.began(owned)
        outcome = await self.executor.run(owned)
        self._slow.ended(owned, returned=isinstance(outcome, Returned))
        self._end(owned, outcome)

    def _end(self, owned: Owned, outcome: HandlerOutcome) -> None:
        """Settle the delivery as its outcome and the consumer's policy say."""
        settlement = decide(outcome, self._policy, owned.delivery, self._clock.now_ms())
        if settlement is None or not self.in_flight.owns(owned):
            return
        self.in_flight.settle(owned, settlement)
        if isinstance(outcome, Stopped):
            owned.delivery.mark_lost()  # for a handler that goes on in its thread
        report(outcome, settlement, self.consumer, owned.delivery)

    def _settled(self, queued: Queued, outcome: Outcome) -> None:
        """A settlement's reply has come."""
        settlement = queued.settlement
        if self.order is not None:
            self.order.ordering.settled(queued, outcome)
        if outcome.done and settlement.how != How.SILENT:
            self._reports.settled()
        if outcome.error is not None:
            self._could_not_add(queued, outcome.error)
        elif outcome.done and settlement.how in (How.ACK, How.ACKDEL):
            for owned in queued.entries:
                self.quarantine.settled(owned)
        elif outcome.gone:
            self.losses.pending([queued.owned.id])
        elif outcome.done:
            self.fetcher.expect(self._clock.monotonic() + settlement.delay_ms / 1000)

    def _could_not_add(self, queued: Queued, error: Refused) -> None:
        """A result, or a dead letter, that its stream does not take."""
        where = queued.settlement.additions[0].stream
        log.error(
            "%s of %s%s: %s does not take what is added to it: %s",
            queued.owned.delivery.id,
            queued.owned.delivery.stream,
            f" and {len(queued.others)} more" if queued.others else "",
            where,
            error,
        )
        refused_record = where == self.consumer.dead
        for owned in queued.entries:
            self._end(owned, Unrecorded(error) if refused_record else Raised(error))
