"""All consumers of an app in one process: started together, stopped together."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from headwater.client.redaction import redacted
from headwater.worker.clocks import LoopClock, Timers
from headwater.worker.connections import Connections
from headwater.worker.declaration import Consumer
from headwater.worker.delays import ProcessDelays
from headwater.worker.extensions import Extensions
from headwater.worker.lifespan import Lifespan
from headwater.worker.loop import Loop, TaskEnded
from headwater.worker.owned import Owned
from headwater.worker.quarantine import QuarantineLock, Suspects
from headwater.worker.scheduler import Scheduler, served_streams
from headwater.worker.supervisor_pipe import Reports
from headwater.worker.telemetry import Telemetry

log = logging.getLogger("headwater.worker")


def unique_name() -> str:
    """Return a consumer name that no other process has or had: host, pid, and a random word.

    If a name were reused after a crash, the new process would count as the owner of the crashed one's entries,
    and nothing would claim them.
    """
    host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())
    return f"{host}-{os.getpid()}-{secrets.token_hex(4)}"


class Running:
    """The loops of one process. Make and use it in one event loop."""

    def __init__(
        self,
        consumers: Sequence[Consumer],
        *,
        connections: Connections,
        clock: Timers,
        chance: Random,
        suspects: Suspects = Suspects.HERE,
        observe: Callable[[Consumer, Owned], None] | None = None,
        reports: Reports | None = None,
        extensions: Extensions | None = None,
        given: Mapping[Any, Any] | None = None,
    ) -> None:
        self._connections = connections
        self._clock = clock
        self._chance = chance
        self._suspects = suspects
        self._observe = observe
        self._reports = reports or Reports()
        self._extensions = extensions or Extensions()
        self._lifespan = Lifespan(consumers, self._extensions.hooks, given)
        self._lock = QuarantineLock()
        self._at_once = asyncio.Event()
        self.delays: ProcessDelays | None = None
        """How late this process runs, once it has started on the machine's clock."""
        self._wanted = asyncio.Event()
        # Suspects of an ordered consumer run in the process that reads, so that they stay in order.
        left_out = suspects is Suspects.ONLY
        self.loops = {
            consumer: self._loop(consumer)
            for consumer in consumers
            if not (left_out and consumer.order_by is not None)
        }
        self.scheduler = Scheduler(
            # The quarantine process handles suspects only.
            [] if suspects is Suspects.ONLY else served_streams(consumers),
            consumer_name=unique_name(),
            connections=connections,
            clock=clock,
            schedules=[
                one.schedule
                for one in consumers
                if one.schedule is not None and suspects is not Suspects.ONLY
            ],
        )

    def _loop(self, consumer: Consumer) -> Loop:
        watch = self._observe
        return Loop(
            consumer,
            consumer_name=unique_name(),
            connections=self._connections,
            clock=self._clock,
            lock=self._lock,
            suspects=self._suspects,
            chance=self._chance,
            reports=self._reports,
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
        """Open the dependencies and run ``on_start``. Return False if a stop was requested meanwhile. Raises
        `StartFailed`."""
        opening = asyncio.ensure_future(self._lifespan.open())
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
        if not opening.cancelled():
            opening.result()
        return False

    def start(self) -> None:
        """Start all consumers."""
        count = len(self.loops)
        consumers = "consumer" if count == 1 else "consumers"
        log.info("%d %s on %s", count, consumers, redacted(self._connections.url))
        self._reports.store(self._connections.place())
        if isinstance(self._clock, LoopClock):
            self.delays = ProcessDelays(self._handlers, self._reports.blocked)
            self._connections.availability.local_cause = self.delays.cause
            self.delays.start()
        for loop in self.loops.values():
            loop.start()
        self.scheduler.start()

    def _handlers(self) -> list[tuple[str, Owned]]:
        """Return the handlers that run, or have just ended, by name."""
        return [
            (loop.consumer.name, owned)
            for loop in [*self.loops.values()]
            for owned in [*loop.pool.running, *loop.flow.slow.lately()]
        ]

    def replace(self, consumer: Consumer) -> Loop:
        """Abandon the consumer's loop as a crash would, and start another one. Return the abandoned one."""
        abandoned = self.loops[consumer]
        abandoned.abandon()
        self.loops[consumer] = self._loop(consumer)
        self.loops[consumer].start()
        return abandoned

    def ask_to_stop(self) -> None:
        """Request a stop: `until_stopped` returns. A second request ends the waiting for handlers."""
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
        try:
            await asyncio.gather(
                self.scheduler.stop(),
                *(loop.stop(grace=grace, at_once=self._at_once) for loop in self.loops.values()),
            )
        finally:
            if self.delays is not None:
                self.delays.stop()
            await self._lifespan.close(self._at_once)
