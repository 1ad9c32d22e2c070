"""An application: a store, the consumers that work on it, and a way to publish to it."""

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

    >>> import asyncio, msgspec
    >>> from headwater import App, Stream
    >>> class Order(msgspec.Struct):
    ...     id: int
    >>> app = App("redis://localhost:6379", name="shop")
    >>> orders = Stream("orders", Order)
    >>> @app.consumer(orders, group="billing")
    ... async def bill(order: Order) -> None:
    ...     print("billed order", order.id)
    >>> async def main() -> None:
    ...     async with app.test() as t:  # a store in memory; `headwater work shop:app` uses the url
    ...         await t.send(orders, Order(id=17))
    >>> asyncio.run(main())
    billed order 17

    - ``url``: the store, as `headwater.connect` takes it: ``redis://``, ``rediss://``, ``unix://``,
      ``redis+cluster://``, ``redis+sentinel://``, ``headwater:///path`` or ``headwater://memory``. The
      default is the environment variable ``HEADWATER_URL``, else ``redis://localhost:6379``.
    - ``name``: what logs and errors call the app.
    - ``grace``: how long running handlers may take to end after `App.stop` or SIGTERM.
    - ``middleware``: `Middleware` instances, the outermost first.

    To publish, open the app: ``async with app:`` in coroutines, ``with app:`` elsewhere. Leaving the last
    such block waits for messages on their way and closes the connections. A running worker has its app
    open.

    Nothing connects before the app runs or publishes. Raises `DeclarationError` for another scheme of the
    url and for a ``grace`` that is not a duration.
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
        """The store."""
        self.name = name
        """What logs and errors call the app."""
        self.grace_ms = milliseconds(grace, what="grace", least_ms=0)
        """How long running handlers may take to end, in milliseconds."""
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
        """Use the store at ``url`` instead of the declared one. Not while the app works or publishes."""
        assert self._running is None, "the app works on its store already"
        self._use(Connections(url))

    def use_concurrency(self, concurrency: int) -> None:
        """Set the ``concurrency`` of every consumer, whatever it declares.

        ``prefetch`` changes in proportion. Raises `DeclarationError` while the app works. The same as
        ``headwater work --concurrency``.
        """
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

        >>> import msgspec
        >>> from headwater import Backoff, Delivery
        >>> class Order(msgspec.Struct):
        ...     id: int
        >>> app, orders = App(name="shop"), Stream("orders", Order)
        >>> @app.consumer(orders, group="billing", retry=Backoff("1s"), timeout="30s")
        ... async def bill(order: Order, delivery: Delivery) -> None: ...

        The function gets the message as its first argument; other parameters get what their
        annotation asks for: `Delivery`, or a dependency (`Use`). A function that is not ``async`` runs in
        a thread. The worker acknowledges the entry after the function returned, and delivers it again
        after it raised; see `Dead` and `Again` for other outcomes.

        ``options`` are those of `ConsumerOptions`; ``group`` is required. Raises `DeclarationError` for
        options that contradict each other, for a parameter that nothing fills, and for a second handler of
        the same stream and group. Source: the command pages of XREADGROUP, XACK and XAUTOCLAIM.
        """
        check_stream(stream, "@app.consumer")
        known(options, ConsumerOptions)

        def decorate(handler: H) -> H:
            self._register(declare(handler, stream, **options))
            return handler

        return decorate

    def batch(self, stream: Stream[Any], **options: Unpack[BatchOptions]) -> Callable[[H], H]:
        """Declare that a function handles the entries of ``stream`` in batches, for a consumer group.

        >>> import msgspec
        >>> class Order(msgspec.Struct):
        ...     id: int
        >>> app, orders = App(name="shop"), Stream("orders", Order)
        >>> @app.batch(orders, group="warehouse", size=500, linger="50ms")
        ... async def load(rows: Batch[Order]) -> None: ...

        The function gets a `Batch`. When it returns, the worker acknowledges all items except those for
        which the function called ``rows.fail``, ``rows.dead`` or ``rows.again``. When it raises, each item
        has failed.

        ``options`` are those of `BatchOptions`; ``group`` is required. Raises what `App.consumer` raises.
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
        """Declare that a function is called with each `DeadLetter` of ``stream``.

        >>> from headwater import DeadLetter
        >>> app, orders = App(name="shop"), Stream("orders", dict[str, str], codec="json")
        >>> @app.on_dead(orders)
        ... async def alert(letter: DeadLetter) -> None:
        ...     print(letter.stream, letter.entry_id, letter.error)

        ``stream`` is a `Stream`, whose dead-letter stream is meant, or the name of a dead-letter stream.
        ``options`` are those of `OnDeadOptions`. The worker calls the function at least once for each
        record, including those that the stream already holds, and again after it raised. The record stays
        in the dead-letter stream. A record on which the function fails ``max_deliveries`` times is logged as
        an error; it makes no second dead letter.

        Raises `DeclarationError` if the consumers of ``stream`` have several dead-letter streams.
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
        """Add a `Middleware` inside those of the app. Raises `DeclarationError` while the app works."""
        self._not_working("use")
        self._extensions.use(middleware)

    def on_start(self, function: H) -> H:
        """Have each worker process call ``function`` before it reads its first entry.

        >>> app = App(name="shop")
        >>> @app.on_start
        ... async def warm_up() -> None: ...

        The function is async or not; its parameters may be dependencies of the process (`Use`). Functions run
        as declared. If one raises, the worker ends with `StartFailed`, and ``headwater work`` starts it again.
        Returns ``function``; raises `DeclarationError` for a parameter that nothing fills.
        """
        self._not_working("on_start")
        self._extensions.hooks.on_start.append(hook(function, "on_start"))
        return function

    def on_stop(self, function: H) -> H:
        """Have each worker process call ``function`` after its last settlement.

        The function is async or not; its parameters may be dependencies of the process (`Use`). The last one
        declared runs first. One that raises is logged, and the next one runs. None runs if the start failed.
        Returns ``function``; raises what `App.on_start` raises.
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
        """Run all consumers in this process until `App.stop` is called.

        ``headwater work shop:app`` does this in several processes and starts those again that end. After
        `App.stop`, running handlers may end within the grace time, and all other entries are handed back.

        The worker waits for a store that is away, full, or in a failover. Raises `HeadwaterError` if the
        app has no consumer or works already; at the start, errors that waiting cannot mend, such as a wrong
        password or another ``claim_after`` in the group; `StartFailed` if a dependency or a function of
        `App.on_start` fails; `TaskEnded` if a part of the worker ends. ``reports`` is for ``headwater work``.
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
        """Return what this process has done for the app, and the progress of its consumers."""
        loops = {} if self._running is None else self._running.loops
        return Statistics(
            self._extensions.published,
            [
                self._extensions.statistics(one, loops[one].progress() if one in loops else None)
                for one in self.consumers
            ],
        )

    def stop(self) -> None:
        """Ask `App.run` to end. Called a second time, it no longer waits for running handlers.

        Call it in the event loop's thread, as a signal handler of asyncio does.
        """
        if self._running is not None:
            self._running.ask_to_stop()

    def test(self, *, use: Mapping[Callable[..., Any], Any] | None = None) -> AppTest:
        """Return an `AppTest`: the app on a store in memory, with a clock that the test advances.

        Use it as ``async with app.test() as t:``. ``use={open_db: FakeDb()}`` gives handlers this value
        instead of what the provider ``open_db`` would give. In tests without an event loop use the pytest
        fixture `headwater_worker`, or `SyncAppTest`.
        """
        from headwater.worker.testing import AppTest

        return AppTest(self, use=use)
