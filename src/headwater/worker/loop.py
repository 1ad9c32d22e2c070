"""One consumer in one process: its parts, its start and its stop.

    store ──▶ Fetcher ──▶ Flow: accept, Pool, execute, decide ──▶ InFlight, Settler ──▶ store
                 ▲                                                      │
                 └───────────────────── room ◀──────────────────────────┘

Rule 1. It never owns more than ``prefetch`` entries, and without that option hardly more than its slots can begin
        to handle at once (`Flow.room`).
Rule 2. If one of its tasks ends without having been stopped, the consumer ends, with an error that names the
        task. So it never seems to run without working.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from headwater.errors import HeadwaterError
from headwater.messages import error_text
from headwater.worker.declare.declaration import Consumer
from headwater.worker.declare.dependencies import Values
from headwater.worker.declare.owned import Owned
from headwater.worker.declare.statistics import ConsumerProgress
from headwater.worker.flow import Flow
from headwater.worker.group_backup_task import BackedUp, GroupBackups
from headwater.worker.leases.freshness import Freshness
from headwater.worker.leases.lease import Leased, TaskRenewer, ThreadRenewer
from headwater.worker.leases.lease_board import LeaseSlot
from headwater.worker.observe.supervisor_pipe import Reports
from headwater.worker.observe.telemetry import Telemetry
from headwater.worker.read.fetch import Fetcher
from headwater.worker.read.ordered_fetch import OrderedFetch, Slots
from headwater.worker.read.quarantine import Quarantine, QuarantineLock, Suspects
from headwater.worker.read.stopping import Stopping
from headwater.worker.run.gate import Gate
from headwater.worker.store.clocks import Timers
from headwater.worker.store.reaping import reap_regularly
from headwater.worker.store.shared_connection import SharedConnections
from headwater.worker.store.waiting import Changes, ended


class TaskEnded(Exception):
    """A part of the worker ended without having been stopped, so the worker ended too. ``headwater work``
    restarts it."""


def _why(error: BaseException | None) -> str:
    if error is None:
        return "without having been stopped"
    return f"with an error: {error_text(error)}"


class ProcessParts(NamedTuple):
    """What all consumers of a process share."""

    connections: SharedConnections
    renewer: ThreadRenewer | TaskRenewer
    backups: GroupBackups


class Loop:
    """Runs one `Consumer` under the name ``consumer_name``. Make and use it in one event loop.

    ``failed`` gets an error that waiting does not resolve, such as a wrong password or another
    ``claim_after``.
    """

    def __init__(
        self,
        consumer: Consumer,
        *,
        consumer_name: str,
        parts: ProcessParts,
        clock: Timers,
        lock: QuarantineLock,
        suspects: Suspects,
        chance: Random,
        reports: Reports,
        telemetry: Telemetry,
        values: Values,
        observe: Callable[[Owned], None] | None = None,
    ) -> None:
        self.consumer = consumer
        self.consumer_name = consumer_name
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._clock = clock
        self._lock = lock
        self._reports = reports
        self._abandoned = False
        self._changes = changes = Changes()
        self._parts = parts
        name = f"{consumer.stream.name}/{consumer.group}"
        self.flow = flow = Flow(
            consumer,
            name=name,
            connections=parts.connections,
            clock=clock,
            changes=changes,
            chance=chance,
            reports=reports,
            telemetry=telemetry,
            values=values,
            observe=observe,
            end_process=self._end_process,
        )
        self.telemetry = telemetry
        self.in_flight, self.pool, self.executor = flow.in_flight, flow.pool, flow.executor
        self._slot = self._report_leases(reports)
        self._fresh = self.pool.fresh = self._make_fresh(name)
        self._leased: Leased | None = None
        self._joining: asyncio.Task[None] | None = None
        self.order = None if consumer.order_by is None else self._make_order()
        if self.order is not None:
            suspects = Suspects.HERE  # a suspect must stay in order
        self.fetcher = self._make_fetcher(suspects)
        self._backed_up = self._make_backed_up()
        self.quarantine = self._make_quarantine(suspects)
        self.in_flight.unread = lambda: bool(self.fetcher.large_reply())
        flow.connect(self.fetcher, self.quarantine, self.order)
        self._add_gate()
        self._tasks: list[asyncio.Task[None]] = []
        lock.loops.append(self)

    def _make_backed_up(self) -> BackedUp:
        flow = self.flow
        return BackedUp(
            connection=lambda: flow.in_flight.client,
            session=lambda: flow.in_flight.session,
            hung=flow.slow.hung,
            transfers=self.transfers,
            expiry=flow.expiry,
            held=None if self.order is None else self.order.ordering.held,
        )

    def _report_leases(self, reports: Reports) -> LeaseSlot:
        """Tell the supervisor which leases this process renews."""
        return reports.holds(
            self.consumer.stream.name,
            self.consumer.group,
            self.consumer_name,
            claim_after_ms=self.consumer.claim_after_ms,
            lease_ms=self.consumer.lease_ms,
            ordered=self.consumer.order_by is not None,
            longest_ms=0 if self.consumer.isolated else self.consumer.timeout_ms,
        )

    def _make_fresh(self, name: str) -> Freshness:
        return Freshness(
            name,
            clock=self._clock,
            lease_ms=self.consumer.lease_ms,
            claim_after_ms=self.consumer.claim_after_ms,
            renew=self.in_flight.renew_now,
            slot=self._slot,
        )

    def _begin_to_renew(self, name: str) -> None:
        consumer, parts = self.consumer, self._parts
        self._leased = Leased(
            name,
            self.in_flight,
            stream=consumer.stream.name,
            lease_ms=consumer.lease_ms,
            clock=self._clock,
            connections=parts.connections,
            fresh=self._fresh,
            ended=self.broken,
        )
        parts.renewer.add(self._leased)

    def _end_for_process(self) -> None:
        """Take this consumer out of what the process does for all."""
        if self._leased is not None:
            self._parts.renewer.remove(self._leased)
            self._leased = None
        self._parts.backups.consumers.pop(self._backed_up, None)
        if self._joining is not None:
            self._joining.cancel()

    async def _back_up_once_joined(self) -> None:
        await self._changes.until(lambda: self.in_flight.session is not None)
        self._parts.backups.add(self._backed_up)

    def _make_fetcher(self, suspects: Suspects) -> Fetcher:
        return Fetcher(
            self.consumer,
            consumer_name=self.consumer_name,
            connections=self._parts.connections,
            clock=self._clock,
            in_flight=self.in_flight,
            fresh=self._fresh,
            changes=self._changes,
            losses=self.telemetry.losses,
            suspects_only=suspects is Suspects.ONLY,
            room=self.flow.room,
            accept=self.flow.accept,
            order=self.order,
        )

    def _make_order(self) -> OrderedFetch:
        order = OrderedFetch(
            self.consumer,
            clock=self._clock,
            in_flight=self.in_flight,
            changes=self._changes,
            gone=self.telemetry.losses.pending,
            slots=Slots(self.pool.put, self._slot_is_free, self.flow.slow.busy_since),
            call_back=self._call_back,
            by_supervisor=self._slot.by_supervisor,
        )
        self.in_flight.reading = order.lease
        self.in_flight.dropped = order.ordering.away
        return order

    def _slot_is_free(self) -> bool:
        """Return whether a slot is free, and no handler runs whose entry this process has lost."""
        running = self.pool.running
        threads = sum(owned.in_thread for owned in running)
        return (
            not self.pool.busy
            and all(map(self.in_flight.owns, running))
            and self.executor.threads_busy <= threads
        )

    def transfers(self) -> str:
        """Return which large reply and results are under way, in a sentence; an empty string if none is."""
        sending = self.in_flight.settler.under_way()
        found = [self.fetcher.large_reply(), f"it sends {sending}" if sending else ""]
        return "; ".join(filter(None, found))

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

    def _add_gate(self) -> None:
        if self.consumer.limits is None:
            return
        self.flow.gate = gate = Gate(
            self.consumer,
            connections=self._parts.connections,
            clock=self._clock,
            in_flight=self.in_flight,
            pool=self.pool,
            expiry=self.flow.expiry,
            slow=self.flow.slow,
            end=self.flow.end,
            expect=self.fetcher.expect,
        )
        self.pool.gate = gate.offer

    # --- start and stop ---------------------------------------------------------------------------

    def start(self) -> None:
        """Start all tasks, and so begin to read."""
        name = f"{self.consumer.stream.name}/{self.consumer.group}"
        self._begin_to_renew(name)
        self._joining = asyncio.create_task(self._back_up_once_joined(), name=f"{name} joining")
        self._tasks = [
            asyncio.create_task(self.fetcher.run(), name=f"{name} reader"),
            asyncio.create_task(self.in_flight.settler.run(), name=f"{name} settler"),
            asyncio.create_task(
                reap_regularly(
                    lambda: self.in_flight.client, lambda: self.in_flight.member, self._clock
                ),
                name=f"{name} reaper",
            ),
            *self._gate_tasks(name),
            *self.pool.start(name),
        ]
        for task in self._tasks:
            task.add_done_callback(self._ended)

    @property
    def started(self) -> bool:
        """Whether `start` was called."""
        return bool(self._tasks)

    def _gate_tasks(self, name: str) -> list[asyncio.Task[None]]:
        gate = self.flow.gate
        return [] if gate is None else [asyncio.create_task(gate.run(), name=f"{name} gate")]

    def _ended(self, task: asyncio.Task[None]) -> None:
        """End this consumer with an error, if the task ended without having been stopped."""
        error = None if task.cancelled() else task.exception()
        stopped = task is self._tasks[0] and self.fetcher.stopping
        finished = stopped and not task.cancelled() and error is None
        if not self._abandoned and not finished:
            self.broken(task.get_name(), error)

    def _settles(self) -> bool:
        """Return whether the settler runs. Without it nothing can be handed back."""
        return bool(self._tasks) and not self._tasks[1].done()

    def broken(self, name: str, error: BaseException | None) -> None:
        """End this consumer with the error of a part that has ended."""
        if self.failed.done():
            return
        if not self.fetcher.joined and isinstance(error, HeadwaterError):
            self._reports.refused(self.consumer.stream.name, self.consumer.group)
        elif not (name.endswith("reader") and isinstance(error, HeadwaterError)):
            ended = TaskEnded(f"{name} of {self.consumer.name} ended {_why(error)}")
            ended.__cause__ = error
            error = ended
        self.failed.set_exception(error)
        self.failed.exception()  # retrieved here: asyncio would log it if the loop closes first

    def _end_process(self, why: Exception) -> None:
        """Have the process end with this error, after a graceful stop."""
        if not self.failed.done():
            self.failed.set_exception(why)
            self.failed.exception()  # as in `_broken`

    def progress(self) -> ConsumerProgress:
        """Return when the parts of this consumer last made progress."""
        now = self._clock.monotonic()
        began = [owned.began for owned in list(self.pool.running)]
        return ConsumerProgress(
            reader_age=self.fetcher.age(now),
            settler_age=self.in_flight.settler.age(now),
            renewer_age=max(0.0, now - self._fresh.renewed_at),
            oldest_handler_age=max(0.0, now - min(began, default=now)),
            running=len(began),
            owned=len(self.in_flight.owned),
            joined=self.flow.joined,
            hung=self.flow.slow.hung(),
        )

    async def stop(self, *, grace: float, at_once: asyncio.Event) -> None:
        """Stop within ``grace`` seconds, or sooner if ``at_once`` is set; see `stopping`."""
        if self._settles():
            stopping = Stopping(
                self.consumer,
                consumer_name=self.consumer_name,
                clock=self._clock,
                changes=self._changes,
                in_flight=self.in_flight,
                pool=self.pool,
                fetcher=self.fetcher,
                accept=self.flow.accept,
                end=self.flow.end,
                forgotten=self.quarantine.forgotten,
                losses=self.telemetry.losses,
            )
            await stopping.run(grace, at_once)
        if self.order is not None:
            await self.order.release()
        await self.close()

    def abandon(self) -> None:
        """Drop all work without settling it, as SIGKILL would."""
        self._abandoned = True
        self._end_for_process()
        self.quarantine.abandon()
        self.in_flight.abandon()
        self.pool.dismiss()
        self.flow.slow.close()
        if self.flow.gate is not None:
            self.flow.gate.close()
        if self.order is not None:
            self.order.close()
        for task in self._tasks:
            task.cancel()
        if self in self._lock.loops:
            self._lock.loops.remove(self)

    async def close(self) -> None:
        """Drop all work, and end tasks and threads. A handler that ignores its cancellation
        is abandoned."""
        self.abandon()
        await ended(self._tasks)
        if self.flow.gate is not None:
            self.flow.gate.disconnect()
        await self.in_flight.close()
        await self.executor.close()
        self.failed.cancel()

    # --- for another consumer's suspect -------------------------------------------------------------

    async def pause(self) -> None:
        """For another consumer's suspect: stop reading, end handlers, and own no entry. See `Quarantine`."""
        self.fetcher.paused = True
        await self.fetcher.quieten()
        self.in_flight.hand_back(self.in_flight.unbegun())
        await self._changes.until(lambda: not self.pool.running)
        await self.in_flight.settler.drained()

    def resume(self) -> None:
        """Continue reading after `pause`."""
        self.fetcher.paused = False
        self._changes.notify()
