"""An application: a store, the consumers that work on it, and a way to publish to it.

app = App("redis://localhost:6379", name="shop")
orders = Stream("orders", Order)
invoices = Stream("invoices", Invoice)

@app.consumer(orders, group="billing", into=invoices)
async def bill(order: Order) -> Invoice: ...

headwater work shop:app            # runs the consumers
async with app: await orders.send(Order(id=17))   # publishes without running them
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack
from urllib.parse import urlsplit

from headwater.client import server_url
from headwater.client.redaction import redacted
from headwater.errors import DeclarationError, HeadwaterError
from headwater.worker.app_publishing import AppPublishing
from headwater.worker.clocks import LoopClock
from headwater.worker.connections import Connections
from headwater.worker.declaration import (
    BatchOptions,
    Consumer,
    ConsumerOptions,
    check_stream,
    declare,
    declare_batch,
    known,
    split,
    with_concurrency,
)
from headwater.worker.durations import milliseconds
from headwater.worker.extensions import Extensions
from headwater.worker.lifespan import hook
from headwater.worker.middleware import Middleware
from headwater.worker.on_dead import OnDeadOptions, declare_on_dead, stream_of_dead
from headwater.worker.publishing import Publisher
from headwater.worker.quarantine import Suspects
from headwater.worker.reports import Reports
from headwater.worker.running import Running
from headwater.worker.statistics import Statistics
from headwater.worker.stream import Stream

if TYPE_CHECKING:
    from headwater.worker.testing import AppTest

H = TypeVar("H", bound=Callable[..., Any])

DEFAULT_URL = "redis://localhost:6379"

SCHEMES = (*server_url.SCHEMES, "headwater")

_open: list[App] = []
_open_lock = threading.Lock()


def open_apps() -> list[App]:
    """The apps through which something can be published now."""
    with _open_lock:
        return list(dict.fromkeys(_open))


class App(AppPublishing):
    """Consumers and publishing on one store.

    ``url`` is what `headwater.connect` takes: ``redis://``, ``rediss://``, ``unix://``,
    ``redis+cluster://``, ``redis+sentinel://``, ``headwater:///path``, ``headwater://memory``. Without
    one it is the environment's ``HEADWATER_URL``, else ``redis://localhost:6379``. ``name`` says in logs and errors which app it is.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        name: str = "app",
        grace: str | timedelta = "30s",
        middleware: Sequence[Middleware] = (),
    ) -> None:
        url = os.environ.get("HEADWATER_URL", DEFAULT_URL) if url is None else url
        scheme = urlsplit(url).scheme
        if scheme not in SCHEMES:
            raise DeclarationError(
                f"url={redacted(url)!r} is not the address of a store: it begins with one of "
                f"{', '.join(one + '://' for one in SCHEMES)}"
            )
        self.url = url
        self.name = name
        self.grace_ms = milliseconds(grace, what="grace", least_ms=0)
        self.suspects = Suspects.HERE
        """Where suspected poison messages run; `headwater work` sets it for its processes."""
        self.consumers: list[Consumer] = []
        self._connections = Connections(url)
        super().__init__(Publisher(self._connections), Extensions(middleware))
        self._on_dead: dict[str, str] = {}
        """Stream → dead-letter stream, of what `on_dead` was declared for."""
        self._openers = 0
        """How many ``async with`` blocks are open; the last one closes the connections."""
        self._running: Running | None = None

    def __repr__(self) -> str:
        return f"App(name={self.name!r}, consumers={[one.name for one in self.consumers]})"

    def use_store(self, url: str) -> None:
        """Work on another store than the one declared. Not while it works or publishes."""
        assert self._running is None, "the app works on its store already"
        self._use(Connections(url))

    def use_concurrency(self, concurrency: int) -> None:
        """Handle so many entries at a time in each process, for every consumer that may, whatever it
        declares; `prefetch` grows or shrinks with it. Not while the app works."""
        self._not_working("use_concurrency")
        self.consumers[:] = [with_concurrency(one, concurrency) for one in self.consumers]

    def _use(self, connections: Connections) -> Connections:
        """Publish and work through ``connections``; those that were used before."""
        before, self._connections = self._connections, connections
        self.url = connections.url
        self._publisher = Publisher(connections)
        return before

    # --- declaring --------------------------------------------------------------------------------

    def consumer(self, stream: Stream[Any], **options: Unpack[ConsumerOptions]) -> Callable[[H], H]:
        """Declare that a function handles the entries of ``stream`` for a consumer group.

        The function gets the message and, by a parameter annotated `Delivery`, its delivery. An
        entry is acknowledged after it returns, and comes again when it raises. The options are
        those of `ConsumerOptions`. Raises `DeclarationError` for options that contradict each other.
        """
        check_stream(stream, "@app.consumer")
        known(options, ConsumerOptions)

        def decorate(handler: H) -> H:
            self._register(declare(handler, stream, **options))
            return handler

        return decorate

    def batch(self, stream: Stream[Any], **options: Unpack[BatchOptions]) -> Callable[[H], H]:
        """Declare that a function handles the entries of ``stream`` in batches, for a consumer group.

        The function gets a `Batch`. When it returns, all its items are acknowledged except those of which
        it said otherwise (``rows.fail``, ``rows.dead``, ``rows.again``). When it raises, each item has
        failed. The options are those of `BatchOptions`. Raises `DeclarationError` for whatever
        contradicts itself.
        """
        check_stream(stream, "@app.batch")
        known(options, BatchOptions)

        def decorate(handler: H) -> H:
            self._register(declare_batch(handler, stream, **options))
            return handler

        return decorate

    def on_dead(
        self, stream: Stream[Any] | str, **options: Unpack[OnDeadOptions]
    ) -> Callable[[H], H]:
        """Declare that a function is called with each `DeadLetter` of ``stream``: of its dead-letter
        stream, or of the dead-letter stream that ``stream`` names.

        The record stays where it is. The function is called again if it raises, and at least once in
        any case; it makes no dead letters itself. See `OnDeadOptions`.
        """
        name = stream_of_dead(stream, self.consumers)

        def decorate(handler: H) -> H:
            self._register(declare_on_dead(handler, name, options))
            if isinstance(stream, Stream):
                self._on_dead[stream.name] = name
            return handler

        return decorate

    def _register(self, found: Consumer) -> None:
        self._not_working(f"the declaration of {found.name}")
        parts = split(found)
        names = {part.stream.name for part in parts}
        for one in self.consumers:
            if one.stream.name in names and one.group == found.group:
                raise DeclarationError(
                    f"group {found.group!r} of stream {found.stream.name!r} has the handler "
                    f"{one.name} already; a second one would share its entries at random. Use "
                    "another group."
                )
            if one.handler is found.handler:
                raise DeclarationError(f"{found.name} is declared twice; use two functions")
        watched = self._on_dead.get(found.stream.name, found.dead)
        if watched != found.dead:
            raise DeclarationError(
                f"{found.name} writes dead letters to {found.dead!r}, and on_dead was declared before "
                f"it for {watched!r}: declare it after {found.name}, or give it the name"
            )
        self.consumers += parts
        found.stream.belongs_to(self)
        if found.into is not None:
            found.into.belongs_to(self)

    def use(self, middleware: Middleware) -> None:
        """Add a `Middleware` inside those that the app has. Not while the app works."""
        self._not_working("use")
        self._extensions.use(middleware)

    def on_start(self, function: H) -> H:
        """Have a worker call ``function``, async or not, before it reads its first entry.

        Its parameters may be dependencies of the process (`Use`). Such functions run in the order of
        their declaration; one that raises ends the worker, which `headwater work` starts again.
        """
        self._not_working("on_start")
        self._extensions.hooks.on_start.append(hook(function, "on_start"))
        return function

    def on_stop(self, function: H) -> H:
        """Have a worker call ``function``, async or not, after its last settlement.

        The last one declared runs first. One that raises is logged, and the next one runs. None of
        them runs if the start failed.
        """
        self._not_working("on_stop")
        self._extensions.hooks.on_stop.append(hook(function, "on_stop"))
        return function

    def _not_working(self, what: str) -> None:
        if self._running is not None:
            raise DeclarationError(f"{what} comes too late: {self!r} works already")

    # --- opening for publishing -------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._enter()
        with _open_lock:
            self._openers += 1
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._leave()
        with _open_lock:
            self._openers -= 1
        if not self._openers:
            await self._publisher.close(opened=lambda: self._openers > 0)
        self._close_synchronous()

    def __enter__(self) -> Self:
        self._enter()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._leave()
        self._close_synchronous()

    def _enter(self) -> None:
        with _open_lock:
            _open.append(self)

    def _leave(self) -> None:
        with _open_lock:
            _open.remove(self)

    def _close_synchronous(self) -> None:
        """Close what threads have used, unless somebody else has the app open."""
        if self not in open_apps():
            self._publisher.close_synchronous()

    # --- working ----------------------------------------------------------------------------------

    async def run(self, *, reports: Reports | None = None) -> None:
        """Work until `stop` is called, then end gracefully within the grace time.

        Raises what no waiting mends, `StartFailed` if a dependency or a function of `on_start` fails
        before the first entry is read, and `TaskEnded` if a part of the worker itself fails; whatever
        else happens to the store is waited for. ``reports`` goes to a supervisor.
        """
        if not self.consumers:
            raise HeadwaterError(f"{self!r} has no consumer: nothing to work on")
        if self._running is not None:
            raise HeadwaterError(f"{self!r} works already")
        running = Running(
            self.consumers,
            connections=self._connections,
            clock=LoopClock(),
            chance=Random(),
            reports=reports,
            suspects=self.suspects,
            extensions=self._extensions,
        )
        self._running = running
        try:
            async with self:
                if await running.open():
                    running.start()
                    try:
                        await running.until_stopped()
                    finally:
                        await asyncio.shield(running.stop(self.grace_ms / 1000))
        finally:
            self._running = None

    def statistics(self) -> Statistics:
        """What this process has done for the app so far, and the progress of its consumers."""
        loops = {} if self._running is None else self._running.loops
        return Statistics(
            self._extensions.published,
            [
                self._extensions.statistics(one, loops[one].progress() if one in loops else None)
                for one in self.consumers
            ],
        )

    def stop(self) -> None:
        """Ask `run` to end. The second time it waits for no handler any more.

        Call it in the thread of the event loop, as a signal handler of asyncio does.
        """
        if self._running is not None:
            self._running.ask_to_stop()

    def test(self, *, use: Mapping[Callable[..., Any], Any] | None = None) -> AppTest:
        """The app on an embedded store and a clock that the test advances: see `AppTest`.

        ``use={open_db: FakeDb()}`` gives handlers this instead of what the provider ``open_db`` would.
        """
        from headwater.worker.testing import AppTest

        return AppTest(self, use=use)
