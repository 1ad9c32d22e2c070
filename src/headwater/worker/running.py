"""Runs all consumers of an app in one process. They are started and stopped together."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, NamedTuple

from headwater.client.redaction import redacted
from headwater.worker.declare.declaration import Consumer
from headwater.worker.declare.extensions import Extensions
from headwater.worker.declare.lifespan import Lifespan
from headwater.worker.declare.owned import Owned
from headwater.worker.group_backup_task import GroupBackups
from headwater.worker.leases.lease import TaskRenewer, ThreadRenewer
from headwater.worker.loop import Loop, ProcessParts, TaskEnded
from headwater.worker.observe.delays import ProcessDelays
from headwater.worker.observe.logs import enable_loggers
from headwater.worker.observe.supervisor_pipe import Reports, reported
from headwater.worker.observe.telemetry import Telemetry
from headwater.worker.read.quarantine import QuarantineLock, Suspects
from headwater.worker.run.execute import HandlerOverran, runs_in_pool
from headwater.worker.scheduler import Scheduler, served_streams
from headwater.worker.store.clocks import LoopClock, Timers
from headwater.worker.store.connections import Connections, deadline_s
from headwater.worker.store.shared_connection import SharedConnections
from headwater.worker.store.waiting import ended

log = logging.getLogger("headwater.worker")


OVERRUN_SECONDS = 2.0
"""Maximum time for other handlers to end after one in a thread ran longer than its ``timeout``, in seconds."""


def unique_name() -> str:
    """Return a consumer name that no other process has or had: host, pid, and a random word.

    If a name were reused after a crash, the new process would count as the owner of the crashed process's
    entries, and other workers would not claim them.
    """
    host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())
    return f"{host}-{os.getpid()}-{secrets.token_hex(4)}"


def _error(future: asyncio.Future[None]) -> BaseException | None:
    return future.exception() if future.done() and not future.cancelled() else None


class Surroundings(NamedTuple):
    """The store, the clock and the source of chance for the consumers of a process."""

    connections: Connections
    clock: Timers
    chance: Random
    """The source of the jitter of retries."""


class Running:
    """The loops of one process. It must be made and used in one event loop."""

    def __init__(
        self,
        consumers: Sequence[Consumer],
        *,
        around: Surroundings,
        suspects: Suspects = Suspects.HERE,
        observe: Callable[[Consumer, Owned], None] | None = None,
        reports: Reports | None = None,
        extensions: Extensions | None = None,
        given: Mapping[Any, Any] | None = None,
    ) -> None:
        clock = around.clock
        self._around = around
        self._suspects = suspects
        self._observe = observe
        self._reports = reports or Reports()
        self._extensions = extensions or Extensions()
        # Pool processes open the dependencies of their handlers themselves.
        here = [one for one in consumers if not runs_in_pool(one, clock)]
        self._lifespan = Lifespan(here, self._extensions.hooks, given)
        self._at_once = asyncio.Event()
        self.delays: ProcessDelays | None = None
        """The delays of this process, once it has started on the machine's clock; otherwise None."""
        self._wanted = asyncio.Event()
        self._name = unique_name()
        self._named: set[tuple[str, str]] = set()
        """The groups in which a consumer has the process's name."""
        self._parts = self._make_parts(min((one.lease_ms for one in consumers), default=1000))
        self._backing_up: asyncio.Task[None] | None = None
        # Suspects of an ordered consumer run in the process that reads, so that they stay in order.
        left_out = suspects is Suspects.ONLY
        self.loops = {
            consumer: self._loop(consumer)
            for consumer in consumers
            if not (left_out and consumer.order_by is not None)
        }
        self.scheduler = Scheduler(
            # The quarantine process handles only suspects.
            [] if suspects is Suspects.ONLY else served_streams(consumers),
            consumer_name=self._name,
            connections=around.connections,
            shared=self._parts.connections,
            clock=clock,
            schedules=[
                one.schedule
                for one in consumers
                if one.schedule is not None and suspects is not Suspects.ONLY
            ],
        )

    def _make_parts(self, lease_ms: int) -> ProcessParts:
        around, deadline = self._around, deadline_s(lease_ms)
        clock, connections = around.clock, around.connections
        renewer: ThreadRenewer | TaskRenewer
        if isinstance(clock, LoopClock):
            renewer = ThreadRenewer(clock=clock, connections=connections, deadline_s=deadline)
        else:
            renewer = TaskRenewer(clock=clock, connections=connections)
        return ProcessParts(
            connections=SharedConnections(connections, clock=clock, deadline_s=deadline),
            renewer=renewer,
            backups=GroupBackups(clock),
            clock=clock,
            chance=around.chance,
            lock=QuarantineLock(self._reports.suspect),
            suspects=self._suspects,
            reports=self._reports,
        )

    def _consumer_name(self, consumer: Consumer) -> str:
        """Return the consumer name of the process. Its consumers share the name, so that one command can read
        several streams. A second consumer of a group in this process, as after `replace`, gets another name."""
        group = (consumer.stream.name, consumer.group)
        if group in self._named:
            return unique_name()
        self._named.add(group)
        return self._name

    def _loop(self, consumer: Consumer) -> Loop:
        watch = self._observe
        return Loop(
            consumer,
            consumer_name=self._consumer_name(consumer),
            parts=self._parts,
            telemetry=Telemetry(
                consumer.stream.name,
                consumer.group,
                self._extensions.counters(consumer),
                self._extensions.chain,
            ),
            values=self._lifespan.values,
            observe=None if watch is None else lambda owned: watch(consumer, owned),
        )

    async def open(self) -> bool:
        """Open the dependencies and run ``on_start``. Return False if a stop was requested. Raises
        `StartFailed`."""
        opening = asyncio.ensure_future(self._open())
        wanted = asyncio.ensure_future(self._wanted.wait())
        try:
            await asyncio.wait([opening, wanted], return_when=asyncio.FIRST_COMPLETED)
        finally:
            wanted.cancel()
            if not opening.done():
                opening.cancel()
                await asyncio.wait([opening])
        if not opening.cancelled() and opening.exception() is None:
            return True
        await asyncio.gather(*(loop.close() for loop in self.loops.values()))
        await self._parts.connections.close()
        if not opening.cancelled():
            opening.result()
        return False

    async def _open(self) -> None:
        await self._lifespan.open()
        enable_loggers()  # a function of `on_start` may have configured logging
        if self._suspects is not Suspects.ONLY:
            first = {loop.consumer.handler: loop for loop in reversed([*self.loops.values()])}
            await asyncio.gather(*(loop.executor.prepare() for loop in first.values()))

    def start(self) -> None:
        """Start all consumers."""
        count = len(self.loops)
        consumers = "consumer" if count == 1 else "consumers"
        log.info("%d %s on %s", count, consumers, redacted(self._around.connections.url))
        self._reports.store(self._around.connections.place())
        if isinstance(self._around.clock, LoopClock):
            self.delays = ProcessDelays(self._handlers, self._reports.blocked, self._reports.ticked)
            self._around.connections.availability.local_cause = partial(self._cause, self.delays)
            self.delays.start()
        if self._suspects is Suspects.ONLY and self._reports.supervised:
            self._reports.new_suspects = self._start_for_suspects
            self._start_for_suspects()
        else:
            for loop in self.loops.values():
                loop.start()
        self._start_parts()
        self.scheduler.start()

    def _start_parts(self) -> None:
        """Start the parts that this process has for all its consumers."""
        self._parts.renewer.start()
        self._backing_up = asyncio.create_task(self._parts.backups.run(), name="group backups")
        self._backing_up.add_done_callback(self._backups_ended)

    def abandon(self) -> None:
        """Drop all work without settling it, as SIGKILL would. `close` must follow."""
        self.scheduler.abandon()
        for loop in self.loops.values():
            loop.abandon()
        backing_up, self._backing_up = self._backing_up, None
        if backing_up is not None:
            backing_up.cancel()

    async def close(self) -> None:
        """Close the connections after `abandon`."""
        await self.scheduler.close()
        for loop in self.loops.values():
            await loop.close()
        await self._parts.renewer.close()
        await self._parts.connections.close()

    def _start_for_suspects(self) -> None:
        """Start the consumers of groups that have a suspect, in the quarantine process. Others do not connect."""
        for consumer, loop in self.loops.items():
            group = (reported(consumer.stream.name), reported(consumer.group))
            if (
                group in self._reports.suspected_in
                and not loop.started
                and not self._wanted.is_set()
            ):
                loop.start()

    def _backups_ended(self, task: asyncio.Task[None]) -> None:
        """End all consumers with an error if the backup task ended without having been stopped."""
        if self._backing_up is task:
            for loop in self.loops.values():
                loop.broken(task.get_name(), None if task.cancelled() else task.exception())

    async def _close_parts(self) -> None:
        backing_up, self._backing_up = self._backing_up, None
        if backing_up is not None:
            backing_up.cancel()
            await ended([backing_up])
            await self._parts.renewer.close()
        await self._parts.connections.close()

    def _cause(self, delays: ProcessDelays) -> str | None:
        """Return a sentence that says why answers may be late although the store answers; None if unknown."""
        transfers = (loop.transfers() for loop in [*self.loops.values()])
        return delays.cause() or next(filter(None, transfers), None)

    def _handlers(self) -> list[tuple[str, Owned]]:
        """Return the name and the entry of each handler that runs or has just ended."""
        return [
            (loop.consumer.name, owned)
            for loop in [*self.loops.values()]
            for owned in [*loop.pool.running, *loop.slow.lately()]
        ]

    def replace(self, consumer: Consumer) -> Loop:
        """Abandon the consumer's loop as a crash would, and start a new loop. Return the abandoned loop."""
        abandoned = self.loops[consumer]
        abandoned.abandon()
        self.loops[consumer] = self._loop(consumer)
        self.loops[consumer].start()
        return abandoned

    def ask_to_stop(self) -> None:
        """Request a stop, so that `until_stopped` returns. A second request also ends the wait for handlers."""
        if self._wanted.is_set():
            self._at_once.set()
        self._wanted.set()

    async def until_stopped(self) -> None:
        """Wait until a stop is requested. Raises the first error that ends a consumer."""
        wanted = asyncio.ensure_future(self._wanted.wait())
        failures = self.failures()
        ends: list[asyncio.Future[Any]] = [wanted, *failures]
        lifespan = self._lifespan.task
        if lifespan is not None:
            ends.append(lifespan)
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            wanted.cancel()
        for failure in failures:
            if failure.done() and not failure.cancelled():
                failure.result()
        if lifespan is not None and lifespan.done():
            raise TaskEnded(f"{lifespan.get_name()} ended without having been stopped")

    def failures(self) -> list[asyncio.Future[None]]:
        """Return the futures that get errors which waiting does not resolve."""
        return [*(loop.failed for loop in self.loops.values()), self.scheduler.failed]

    async def stop(self, grace: float) -> None:
        """Stop all consumers (`Loop.stop`), then run ``on_stop`` and close the dependencies."""
        if any(isinstance(_error(one), HandlerOverran) for one in self.failures()):
            grace = min(grace, OVERRUN_SECONDS)
        try:
            await asyncio.gather(
                self.scheduler.stop(),
                *(loop.stop(grace=grace, at_once=self._at_once) for loop in self.loops.values()),
            )
        finally:
            await self._close_parts()
            if self.delays is not None:
                self.delays.stop()
            await self._lifespan.close(self._at_once)
