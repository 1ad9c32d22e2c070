"""An app under test: the real worker on a store in memory, with a clock that the test advances.

    async with app.test() as t:
        await t.send(orders, Order(id=17))
        t.crash(bill)                       # as SIGKILL would
        await t.advance("31s")
        assert t.deliveries(bill) == [1, 2]

Nothing is mocked: the loop, its settlements and leases are the ones used in production, and the store is
Headwater's engine without a socket. Only the clock belongs to the test.

Rule 1. Each awaited call returns when the worker is idle: it does nothing more until time passes.
Rule 2. Time passes only in `advance`, and everything that becomes due happens in order. ``asyncio.sleep`` in
        a handler uses another clock, which tests do not advance.
Rule 3. A crash differs from a killed process only in this: the handler's ``finally`` blocks run.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from math import inf
from random import Random
from typing import TYPE_CHECKING, Any, Self

from headwater.common.durations import milliseconds
from headwater.errors import HeadwaterError
from headwater.groups.protocol.operation import Operation, run, single
from headwater.groups.settling.dead_letters import page
from headwater.messages.dead import DeadLetter
from headwater.messages.keys import dead_letter_stream
from headwater.testing.clock import ManualClock
from headwater.worker.app_declaring import AppDeclaring
from headwater.worker.declare.declaration import Consumer
from headwater.worker.declare.stream import Stream
from headwater.worker.loop import Loop
from headwater.worker.running import Running, Surroundings
from headwater.worker.store.connections import Connections

if TYPE_CHECKING:
    import redis

ROUNDS = 3
"""Number of turns of the event loop without a ready callback after which the worker counts as idle."""

EXACT_SECONDS = 60.0
"""Seconds for which `AppTest.advance` runs everything on time, even upkeep such as the renewal of leases."""

MOST_LEAP_SECONDS = 3600.0
"""Maximum seconds by which `AppTest.advance` leaps if only upkeep is due. Then each upkeep runs once."""

Handler = Callable[..., Any]


class AppTest:
    """An app under test: the real worker on a store in memory, with a clock that the test advances.
    `App.test` returns it.

    >>> import asyncio
    >>> from headwater import App, Stream
    >>> app, orders = App(), Stream("orders", dict[str, int], codec="json")
    >>> @app.consumer(orders, group="billing")
    ... async def bill(order, delivery: Delivery) -> None:
    ...     if not delivery.redelivered:
    ...         raise ConnectionError("the gateway is away")
    >>> async def main() -> None:
    ...     async with app.test() as t:
    ...         await t.send(orders, {"id": 17})
    ...         print(t.deliveries(bill), len(t.pending(bill)))
    ...         await t.advance("2s")
    ...         print(t.deliveries(bill), len(t.pending(bill)))
    >>> asyncio.run(main())
    [1] 1
    [1, 2] 0

    Nothing is mocked: settlements and leases are the ones used in production, and the store is Headwater's
    engine without a socket. Each awaited call returns when the worker does nothing more until time passes.
    Time passes only in `AppTest.advance`; ``asyncio.sleep`` in a handler uses another clock, which tests do not
    advance.

    Entering this object raises `HeadwaterError` if the app is already running. Inside the block, `Stream.send`
    and `App.send` publish to the store in memory.
    """

    look: redis.Redis
    """A redis-py client of the store, to examine and change it."""

    def __init__(self, app: AppDeclaring, *, use: Mapping[Handler, Any] | None = None) -> None:
        self.app = app
        """The app under test."""
        self._use = use
        self.clock = ManualClock()
        """The clock of the store and of the worker."""
        self._deliveries: dict[Handler, list[int]] = defaultdict(list)
        self._abandoned: list[Loop] = []
        self._before: Connections | None = None
        self._running: Running | None = None

    async def __aenter__(self) -> Self:
        from headwater.client.sync.connect import connect
        from headwater.server.turn.node import Node

        if self.app._running is not None:  # noqa: SLF001  # this is the app's own test
            raise HeadwaterError(f"{self.app!r} is already running")
        self.node = Node(clock=self.clock)
        self.look = connect(node=self.node)
        connections = Connections("headwater://memory", node=self.node)
        self._before = self.app._use(connections)  # noqa: SLF001  # this is the app's own test
        await self.app.__aenter__()
        try:
            self._running = Running(
                self.app.consumers,
                around=Surroundings(connections, self.clock, Random(0)),
                observe=lambda one, owned: self._deliveries[one.handler].append(owned.count),
                extensions=self.app._extensions,  # noqa: SLF001  # as above
                given=self._use,
            )
            await self._running.open()
        except BaseException:
            await self._leave()
            raise
        self.app._running = self._running  # noqa: SLF001  # as above
        self._running.start()
        await self.settle()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        running = self._the_running()
        running.ask_to_stop()
        running.ask_to_stop()
        await self._drive(running.stop(0))
        for loop in self._abandoned:
            await self._drive(loop.close())
        await self._leave()

    async def _leave(self) -> None:
        """Restore the app's own store."""
        self.app._running = None  # noqa: SLF001  # as above
        await self.app.__aexit__()
        assert self._before is not None
        self.app._use(self._before)  # noqa: SLF001  # as above
        self.look.close()

    # --- actions ----------------------------------------------------------------------------------

    async def send(self, stream: Stream[Any], *messages: Any) -> list[str]:
        """Add messages to ``stream``, wait until the worker is idle, and return their ids."""
        added = await self.app.send_many(stream, messages)
        await self.settle()
        return added

    async def add(self, stream: Stream[Any] | str, fields: dict[str, str | bytes]) -> str:
        """Add an entry with these fields, as another producer might write it, and return its id."""
        name = stream if isinstance(stream, str) else stream.name
        words = [part for pair in fields.items() for part in pair]
        added: bytes = self._ask(single("XADD", name, "*", *words))
        await self.settle()
        return added.decode()

    def crash(self, handler: Handler) -> None:
        """Kill the worker of this handler as SIGKILL would, and start another one.

        The entries that it owned stay pending until ``claim_after`` has passed. The handler's ``finally`` blocks
        run, unlike in a killed process.
        """
        for consumer in self._consumers(handler):
            self._abandoned.append(self._the_running().replace(consumer))

    async def advance(self, duration: str | timedelta) -> None:
        """Let time pass, such as ``"31s"`` or ``"24h"``. Everything that becomes due happens in order, on time.

        Upkeep that the worker only repeats while nothing happens, such as the renewal of leases, runs less often
        after the first minute.
        """
        clock = self.clock
        began = clock.monotonic()
        end = began + milliseconds(duration, what="advance", least_ms=0) / 1000
        await self.settle()
        while True:
            now = clock.monotonic()
            left = max(0.0, end - now)
            pause = clock.until_next()
            if pause is None or pause > left:
                break
            event = clock.until_event()
            # Stop just before the event, so that leases are renewed first.
            leap = min(left, now - began, MOST_LEAP_SECONDS, inf if event is None else event - 1e-6)
            if now - began >= EXACT_SECONDS and leap > pause:
                clock.leap(leap)
            else:
                clock.advance(pause)
            await self.settle()
        clock.advance(left)
        await self.settle()

    async def settle(self) -> None:
        """Wait until the worker is idle, so that nothing more happens without time passing.

        Waits for handlers in threads. A coroutine that waits for something else counts as idle.
        """
        loop = asyncio.get_running_loop()
        quiet = 0
        while quiet < ROUNDS:
            await asyncio.sleep(0.0005 if self._threads_busy() else 0)
            # asyncio's list of ready callbacks; other event loops do not have it and get more turns.
            ready = getattr(loop, "_ready", None)
            still = not ready if ready is not None else True
            quiet = quiet + 1 if still and not self._threads_busy() else 0
        running = self._running
        for failed in [] if running is None else running.failures():
            if failed.done() and not failed.cancelled():
                failed.result()

    # --- inspection -------------------------------------------------------------------------------

    def deliveries(self, handler: Handler) -> list[int]:
        """Return `Delivery.count` of each entry given to the handler, in order: ``[1, 2]`` after one retry."""
        return list(self._deliveries[self._consumers(handler)[0].handler])

    def results(self, stream: Stream[Any]) -> list[Any]:
        """Return every message in the stream, one partition after another."""
        return [
            stream.codec.decode_flat(entry[1])
            for part in stream.parts
            for entry in self._ask(single("XRANGE", part.name, "-", "+"))
        ]

    def dead(self, stream: Stream[Any] | str) -> list[DeadLetter]:
        """Return the dead letters in a stream's default dead-letter stream, or in the one that a string names."""
        if isinstance(stream, str):
            names = [stream]
        else:
            names = [dead_letter_stream(part.name) for part in stream.parts]
        letters: list[DeadLetter] = []
        for name in names:
            letters += self._ask(page(name, count=1_000_000))
        return letters

    def pending(self, handler: Handler) -> dict[str, int]:
        """Return the entries that the handler's group has not settled: ``{id: deliveries so far}``.

        Delayed entries are included. With partitions, each id follows the name of its stream:
        ``"orders.{0} 5-1"``. Source: the command page of XPENDING.
        """
        consumers = self._consumers(handler)
        found = {}
        for one in consumers:
            stream = one.stream.name
            for row in self._ask(single("XPENDING", stream, one.group, "-", "+", 1_000_000)):
                name = row[0].decode()
                found[name if len(consumers) == 1 else f"{stream} {name}"] = row[3]
        return found

    # --- parts ------------------------------------------------------------------------------------

    def _ask(self, operation: Operation[Any]) -> Any:
        return run(self.look, operation)

    def _consumers(self, handler: Handler) -> list[Consumer]:
        """Return the handler's consumers, one for each partition."""
        found = [consumer for consumer in self.app.consumers if consumer.handler is handler]
        if not found:
            raise HeadwaterError(f"{handler!r} is not a handler of {self.app!r}")
        return found

    def _the_running(self) -> Running:
        assert self._running is not None, "async with app.test() as t: comes first"
        return self._running

    def _threads_busy(self) -> bool:
        return self._running is not None and any(
            loop.executor.threads_busy for loop in self._loops()
        )

    def _loops(self) -> Iterable[Loop]:
        return [*self._the_running().loops.values()]

    async def _drive(self, work: Any) -> None:
        """Wait for ``work``, advancing the clock as far as necessary."""
        task = asyncio.ensure_future(work)
        while not task.done():
            await self.settle()
            pause = self.clock.until_next()
            if not task.done() and pause is not None:
                self.clock.advance(pause)
        await task
