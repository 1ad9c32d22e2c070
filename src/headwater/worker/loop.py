"""One consumer in one process: its parts, its start and its stop.

    store ──▶ Fetcher ──▶ Admission ──▶ Pool ──▶ Handling ──▶ Endings ──▶ InFlight, Settler ──▶ store
                                └─ Gate ─┘

Each stage is made after the next one, which it gets in its constructor. Parts that follow an entry in other stages
use hooks (`settle/scope.py`).

Rule 1. A consumer reads new entries only while it owns fewer than ``prefetch``. Without that option it owns only a
        few more than its slots can begin to handle immediately (`Room`).
Rule 2. If one of its tasks ends without having been stopped, the consumer ends with an error that names the task.
        So a consumer never seems to run without working.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from headwater.errors import HeadwaterError
from headwater.groups.reading.claiming import claim_interval_ms
from headwater.messages.dead import error_text
from headwater.worker.declare.declaration import Consumer
from headwater.worker.declare.dependencies import Values
from headwater.worker.declare.owned import Owned
from headwater.worker.declare.statistics import ConsumerProgress
from headwater.worker.group_backup_task import BackedUp, GroupBackups
from headwater.worker.leases.freshness import Freshness
from headwater.worker.leases.lease import Leased, TaskRenewer, ThreadRenewer
from headwater.worker.leases.lease_board import LeaseSlot
from headwater.worker.leases.reader_lease import ReaderLease
from headwater.worker.observe.supervisor_pipe import Reports
from headwater.worker.observe.telemetry import Telemetry
from headwater.worker.read.admission import Admission
from headwater.worker.read.fetch import Fetcher
from headwater.worker.read.ordered_fetch import OrderedFetch, Slots
from headwater.worker.read.quarantine import Quarantine, QuarantineLock, Suspects
from headwater.worker.read.room import Room
from headwater.worker.read.stopping import Stopping
from headwater.worker.run.batch_pool import BatchPool
from headwater.worker.run.batching import BatchHandling
from headwater.worker.run.endings import Endings
from headwater.worker.run.execute import Executor
from headwater.worker.run.expiry import Expiry
from headwater.worker.run.gate import Gate
from headwater.worker.run.handling import Handling
from headwater.worker.run.pool import HandBack, Pool
from headwater.worker.run.slow import SlowHandlers
from headwater.worker.settle.in_flight import InFlight
from headwater.worker.settle.scope import EntryHooks, Scope
from headwater.worker.store.clocks import Timers
from headwater.worker.store.reaping import Reaping
from headwater.worker.store.shared_connection import SharedConnections
from headwater.worker.store.waiting import Changes, ended

Offer = Callable[[Sequence[Owned]], None]
"""Function that gives entries to the slots, or to the gate before them."""


class TaskEnded(Exception):
    """A part of the worker ended without having been stopped, so the worker ended too. ``headwater work``
    restarts it."""


def _why(error: BaseException | None) -> str:
    if error is None:
        return "without having been stopped"
    return f"with an error: {error_text(error)}"


class ProcessParts(NamedTuple):
    """The parts that all consumers of a process share."""

    connections: SharedConnections
    renewer: ThreadRenewer | TaskRenewer
    backups: GroupBackups
    clock: Timers
    chance: Random
    lock: QuarantineLock
    suspects: Suspects
    reports: Reports


class Loop:
    """Runs one `Consumer` under the name ``consumer_name``. It must be made and used in one event loop.

    ``failed`` gets an error that waiting does not resolve, such as a wrong password or a different
    ``claim_after`` in the group.
    """

    def __init__(
        self,
        consumer: Consumer,
        *,
        consumer_name: str,
        parts: ProcessParts,
        telemetry: Telemetry,
        values: Values,
        observe: Callable[[Owned], None] | None = None,
    ) -> None:
        self.consumer = consumer
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._parts = parts
        self._abandoned = False
        self._tasks: list[asyncio.Task[None]] = []
        self._joining: asyncio.Task[None] | None = None
        self._leased: Leased | None = None
        self.scope = scope = Scope(
            consumer, consumer_name, parts.clock, Changes(), parts.connections, EntryHooks()
        )
        slot = LeaseSlot()
        lease = self._reader_lease(slot)
        self.in_flight = InFlight(scope, counters=telemetry.counters, reading=lease)
        self._fresh = self._make_fresh(slot)
        self.endings = Endings(
            scope,
            in_flight=self.in_flight,
            telemetry=telemetry,
            reports=parts.reports,
            chance=parts.chance,
        )
        self.executor = Executor(
            consumer,
            clock=parts.clock,
            chain=telemetry.chain,
            values=values,
            end_process=self._end_process,
        )
        self.slow = SlowHandlers(consumer, clock=parts.clock, stack=self.executor.stack)
        expiry = Expiry(consumer, clock=parts.clock, ask=self.in_flight.ask)
        self.pool = self._make_pool(expiry, observe)
        self.gate = self._make_gate(expiry)
        offer = self.pool.offer if self.gate is None else self.gate.offer
        self.order = None if lease is None else self._make_order(lease, offer)
        # A suspect of an ordered consumer must stay in order.
        suspects = parts.suspects if self.order is None else Suspects.HERE
        self.quarantine = self._make_quarantine(suspects, offer)
        self.admission = self._make_admission(offer)
        self.fetcher = self._make_fetcher(suspects)
        self._backed_up = self._make_backed_up(expiry)
        parts.lock.loops.append(self)

    # --- its parts --------------------------------------------------------------------------------

    def _reader_lease(self, slot: LeaseSlot) -> ReaderLease | None:
        if self.consumer.order_by is None:
            return None
        return ReaderLease(
            self.consumer.claim_after_ms,
            clock=self._parts.clock,
            lost=self.scope.hooks.overtake,
            by_supervisor=slot.by_supervisor,
        )

    def _make_fresh(self, slot: LeaseSlot) -> Freshness:
        return Freshness(
            self.scope.name,
            clock=self._parts.clock,
            lease_ms=self.consumer.lease_ms,
            claim_after_ms=self.consumer.claim_after_ms,
            renew=self.in_flight.renew_now,
            slot=slot,
        )

    def _make_pool(self, expiry: Expiry, observe: Callable[[Owned], None] | None) -> Pool:
        consumer, hurry, changes = self.consumer, self.in_flight.settler.hurry, self.scope.changes
        kind = Handling if consumer.batch is None else BatchHandling
        handling = kind(
            self.scope,
            in_flight=self.in_flight,
            executor=self.executor,
            slow=self.slow,
            expiry=expiry,
            endings=self.endings,
            observe=observe,
        )
        hold = HandBack(self._parts.clock, self._others_look_s, self.in_flight.hand_back)
        size, fresh = consumer.concurrency, self._fresh
        if isinstance(handling, BatchHandling):
            run = handling.run_batch
            return BatchPool(size, run, hurry, changes, fresh, hold, consumer=consumer)
        # Another process must not run an entry that an ordered consumer has read.
        held = hold if consumer.order_by is None else None
        return Pool(size, handling.run, hurry, changes, fresh, held)

    def _others_look_s(self) -> float:
        """Return the maximum seconds until another process looks for an entry that is handed back."""
        member = self.in_flight.member
        if member is None or member.able.verbs:
            return 0.0
        return claim_interval_ms(member) / 1000

    def _make_gate(self, expiry: Expiry) -> Gate | None:
        if self.consumer.limits is None:
            return None
        return Gate(
            self.scope,
            in_flight=self.in_flight,
            pool=self.pool,
            expiry=expiry,
            slow=self.slow,
            endings=self.endings,
        )

    def _make_order(self, lease: ReaderLease, offer: Offer) -> OrderedFetch:
        return OrderedFetch(
            self.scope,
            in_flight=self.in_flight,
            lease=lease,
            slots=Slots(offer, self._slot_is_free, self.slow.busy_since),
            gone=self.endings.telemetry.losses.pending,
        )

    def _make_quarantine(self, suspects: Suspects, offer: Offer) -> Quarantine:
        return Quarantine(
            self.scope,
            self,
            suspects=suspects,
            lock=self._parts.lock,
            in_flight=self.in_flight,
            pool=self.pool,
            offer=offer,
        )

    def _make_admission(self, offer: Offer) -> Admission:
        return Admission(
            self.scope,
            in_flight=self.in_flight,
            endings=self.endings,
            reports=self._parts.reports,
            quarantine=self.quarantine,
            offer=offer,
            order=self.order,
        )

    def _slot_is_free(self) -> bool:
        """Return whether a slot is free and this process still owns the entry of every running handler."""
        running = self.pool.running
        threads = sum(owned.in_thread for owned in running)
        return (
            not self.pool.busy
            and all(map(self.in_flight.owns, running))
            and self.executor.threads_busy <= threads
        )

    def _make_fetcher(self, suspects: Suspects) -> Fetcher:
        room = Room(
            self.scope,
            in_flight=self.in_flight,
            pool=self.pool,
            slow=self.slow,
            gate=self.gate,
            order=self.order,
        )
        return Fetcher(
            self.scope,
            in_flight=self.in_flight,
            fresh=self._fresh,
            losses=self.endings.telemetry.losses,
            room=room,
            admission=self.admission,
            order=self.order,
            suspects_only=suspects is Suspects.ONLY,
        )

    def _make_backed_up(self, expiry: Expiry) -> BackedUp:
        in_flight = self.in_flight
        return BackedUp(
            connection=lambda: in_flight.client,
            session=lambda: in_flight.session,
            hung=self.slow.hung,
            transfers=self.transfers,
            expiry=expiry,
            reaping=Reaping(self._parts.clock),
            held=None if self.order is None else self.order.ordering.held,
        )

    def transfers(self) -> str:
        """Return text about the large replies and results that are under way; empty if there are none."""
        sending = self.in_flight.settler.under_way()
        found = [self.fetcher.large_reply(), f"it sends {sending}" if sending else ""]
        return "; ".join(filter(None, found))

    # --- what the process does for all its consumers ----------------------------------------------

    def _begin_to_renew(self) -> None:
        consumer, parts = self.consumer, self._parts
        # Not earlier: the supervisor takes a consumer that it knows and that is not renewed for one that is stuck.
        parts.reports.holds(
            self._fresh.slot,
            consumer.stream.name,
            consumer.group,
            self.scope.consumer_name,
            claim_after_ms=consumer.claim_after_ms,
            lease_ms=consumer.lease_ms,
            ordered=consumer.order_by is not None,
            longest_ms=0 if consumer.isolated else consumer.timeout_ms,
        )
        self._leased = Leased(
            self.scope.name,
            self.in_flight,
            stream=consumer.stream.name,
            lease_ms=consumer.lease_ms,
            clock=parts.clock,
            connections=parts.connections,
            fresh=self._fresh,
            ended=self.broken,
        )
        parts.renewer.add(self._leased)

    async def _back_up_once_joined(self) -> None:
        await self.scope.changes.until(lambda: self.in_flight.session is not None)
        self._parts.backups.add(self._backed_up)

    def _end_for_process(self) -> None:
        """Remove this consumer from the renewals and backups that the process does for all consumers."""
        if self._leased is not None:
            self._parts.renewer.remove(self._leased)
            self._parts.reports.gives_back(self._fresh.slot)
            self._leased = None
        self._parts.backups.consumers.pop(self._backed_up, None)
        if self._joining is not None:
            self._joining.cancel()

    # --- start and stop ---------------------------------------------------------------------------

    def start(self) -> None:
        """Start all tasks, including the one that reads."""
        name = self.scope.name
        self._begin_to_renew()
        self._joining = asyncio.create_task(self._back_up_once_joined(), name=f"{name} joining")
        self._tasks = [
            asyncio.create_task(self.fetcher.run(), name=f"{name} reader"),
            asyncio.create_task(self.in_flight.settler.run(), name=f"{name} settler"),
            *self._gate_tasks(name),
            *self.pool.start(name),
        ]
        for task in self._tasks:
            task.add_done_callback(self._ended)

    @property
    def started(self) -> bool:
        """True after `start` was called."""
        return bool(self._tasks)

    def _gate_tasks(self, name: str) -> list[asyncio.Task[None]]:
        gate = self.gate
        return [] if gate is None else [asyncio.create_task(gate.run(), name=f"{name} gate")]

    def _ended(self, task: asyncio.Task[None]) -> None:
        """End this consumer with an error if the task ended without having been stopped."""
        error = None if task.cancelled() else task.exception()
        stopped = task is self._tasks[0] and self.admission.stopping
        finished = stopped and not task.cancelled() and error is None
        if not self._abandoned and not finished:
            self.broken(task.get_name(), error)

    def _settles(self) -> bool:
        """Return whether the settler runs. Without it, no entry can be handed back."""
        return bool(self._tasks) and not self._tasks[1].done()

    def broken(self, name: str, error: BaseException | None) -> None:
        """End this consumer with the error of a part that has ended."""
        if self.failed.done():
            return
        if not self.fetcher.joined and isinstance(error, HeadwaterError):
            self._parts.reports.refused(self.consumer.stream.name, self.consumer.group)
        elif not (name.endswith("reader") and isinstance(error, HeadwaterError)):
            ended = TaskEnded(f"{name} of {self.consumer.name} ended {_why(error)}")
            ended.__cause__ = error
            error = ended
        self.failed.set_exception(error)
        self.failed.exception()  # retrieved here, because asyncio would log it if the loop closed first

    def _end_process(self, why: Exception) -> None:
        """Make the process stop gracefully and then end with this error."""
        if not self.failed.done():
            self.failed.set_exception(why)
            self.failed.exception()  # as in `broken`

    def progress(self) -> ConsumerProgress:
        """Return the progress of the parts of this consumer."""
        now = self._parts.clock.monotonic()
        began = [owned.began for owned in list(self.pool.running)]
        return ConsumerProgress(
            reader_age=self.fetcher.age(now),
            settler_age=self.in_flight.settler.age(now),
            renewer_age=max(0.0, now - self._fresh.renewed_at),
            oldest_handler_age=max(0.0, now - min(began, default=now)),
            running=len(began),
            owned=len(self.in_flight.owned),
            joined=self.admission.joined,
            hung=self.slow.hung(),
        )

    async def stop(self, *, grace: float, at_once: asyncio.Event) -> None:
        """Stop within ``grace`` seconds, or sooner if ``at_once`` is set; see `stopping`."""
        if self._settles():
            stopping = Stopping(
                self.scope,
                in_flight=self.in_flight,
                pool=self.pool,
                endings=self.endings,
                admission=self.admission,
                quarantine=self.quarantine,
                fetcher=self.fetcher,
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
        self.slow.close()
        if self.gate is not None:
            self.gate.close()
        if self.order is not None:
            self.order.close()
        for task in self._tasks:
            task.cancel()
        if self in self._parts.lock.loops:
            self._parts.lock.loops.remove(self)

    async def close(self) -> None:
        """Drop all work, and end tasks and threads. A handler that ignores its cancellation
        is abandoned."""
        self.abandon()
        await ended(self._tasks)
        if self.gate is not None:
            self.gate.disconnect()
        await self.in_flight.close()
        await self.executor.close()
        self.failed.cancel()

    # --- for another consumer's suspect -------------------------------------------------------------

    async def pause(self) -> None:
        """Stop reading, and return when no handler runs and no entry is owned. For another consumer's suspect."""
        self.admission.paused = True
        await self.fetcher.quieten()
        self.in_flight.hand_back(self.in_flight.unbegun())
        await self.scope.changes.until(lambda: not self.pool.running)
        await self.in_flight.settler.drained()

    def resume(self) -> None:
        """Continue reading after `pause`."""
        self.admission.paused = False
        self.scope.changes.notify()
