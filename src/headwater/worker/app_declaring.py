"""The part of `App` that declares consumers, hooks and middleware."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar, Unpack

from headwater.errors import DeclarationError
from headwater.worker.declare.declaration import (
    BatchOptions,
    Consumer,
    ConsumerOptions,
    check_stream,
    declare,
    declare_batch,
    known,
    split,
)
from headwater.worker.declare.extensions import Extensions
from headwater.worker.declare.lifespan import hook
from headwater.worker.declare.middleware import Middleware
from headwater.worker.declare.on_dead import OnDeadOptions, declare_on_dead, stream_of_dead
from headwater.worker.declare.schedules import Cron, Every, Times
from headwater.worker.declare.statistics import Statistics
from headwater.worker.declare.stream import Stream
from headwater.worker.declare.ticks import ScheduleOptions, declare_schedule
from headwater.worker.publish.app_publishing import AppPublishing
from headwater.worker.running import Running
from headwater.worker.store.connections import Connections

H = TypeVar("H", bound=Callable[..., Any])


class AppDeclaring(AppPublishing):
    """Collects the consumers, hooks and middleware of an app before it runs."""

    def __init__(self, connections: Connections, *, name: str, extensions: Extensions) -> None:
        super().__init__(connections, name=name, extensions=extensions)
        self.consumers: list[Consumer] = []
        self._on_dead: dict[str, str] = {}
        """Stream → dead-letter stream, for each stream that `on_dead` was declared for."""
        self._running: Running | None = None

    def __repr__(self) -> str:
        return f"App(name={self.name!r}, consumers={[one.name for one in self.consumers]})"

    def consumer(self, stream: Stream[Any], **options: Unpack[ConsumerOptions]) -> Callable[[H], H]:
        """Declare that a function handles the entries of ``stream`` for a consumer group.

        >>> import msgspec
        >>> from headwater import App, Backoff, Delivery
        >>> class Order(msgspec.Struct):
        ...     id: int
        >>> app, orders = App(name="shop"), Stream("orders", Order)
        >>> @app.consumer(orders, group="billing", retry=Backoff("1s"), timeout="30s")
        ... async def bill(order: Order, delivery: Delivery) -> None: ...

        The function gets the message as its first argument. Other parameters are annotated with `Delivery`,
        or with a dependency (`Use`). A function that is not ``async`` runs in a thread, or with
        ``executor="process"`` in a pool of processes. The worker acknowledges the entry after the function
        has returned, and delivers it again if it raised; see `Dead` and `Again` for other outcomes.

        ``options`` are those of `ConsumerOptions`; ``group`` is required. Raises `DeclarationError` for
        options that contradict each other, for a parameter of the function that would get no value, and for a
        second handler of the same stream and group. Source: the command pages of XREADGROUP, XACK and XAUTOCLAIM.
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
        >>> from headwater import App, Batch
        >>> class Order(msgspec.Struct):
        ...     id: int
        >>> app, orders = App(name="shop"), Stream("orders", Order)
        >>> @app.batch(orders, group="warehouse", size=500, linger="50ms")
        ... async def load(rows: Batch[Order]) -> None: ...

        The function gets a `Batch`. If it returns, the worker acknowledges all items except those for
        which the function called ``rows.fail``, ``rows.dead`` or ``rows.again``. If it raises, all items
        without such a call have failed.

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

        >>> from headwater import App, DeadLetter
        >>> app, orders = App(name="shop"), Stream("orders", dict[str, str], codec="json")
        >>> @app.on_dead(orders)
        ... async def alert(letter: DeadLetter) -> None:
        ...     print(letter.stream, letter.entry_id, letter.error)

        ``stream`` is a `Stream`, or the name of a dead-letter stream. ``options`` are those of
        `OnDeadOptions`. The worker calls the function at least once for each record, including those that
        the dead-letter stream already has, and again if it raised. The record stays in the dead-letter
        stream. If the function fails on a record ``max_deliveries`` times, this is logged as an error,
        without a second dead letter.

        Raises `DeclarationError` if the consumers of ``stream`` have several dead-letter streams.
        """
        name = stream_of_dead(stream, self.consumers)

        def decorate(handler: H) -> H:
            self._register(declare_on_dead(handler, name, options))
            if isinstance(stream, Stream):
                self._on_dead[stream.name] = name
            return handler

        return decorate

    def every(
        self, interval: str | timedelta, **options: Unpack[ScheduleOptions]
    ) -> Callable[[H], H]:
        """Declare that a function is called at an interval, by one of the workers.

        >>> from headwater import App, Tick
        >>> app = App(name="shop")
        >>> @app.every("5m")
        ... async def sweep(tick: Tick) -> None:
        ...     print("sweep of", tick.time)

        The times are the multiples of the interval since 1970: with ``"5m"``, 12:00, 12:05, 12:10. Each call is a
        message, a *tick*, in the stream ``shop.sweep``. When the tick is due by the clock of the store, the first
        worker to notice adds it, once. A tick is retried and becomes a dead letter like other messages. The
        function gets a `Tick` if it has a parameter for one.

        ``options`` are those of `ScheduleOptions`. Raises `DeclarationError` for an interval shorter than 100 ms,
        and what `App.consumer` raises.
        """
        return self._scheduled(Every(interval), options)

    def cron(
        self, expression: str, *, timezone: str = "UTC", **options: Unpack[ScheduleOptions]
    ) -> Callable[[H], H]:
        """Declare that a function is called at the times of a cron expression, by one of the workers.

        >>> from headwater import App, Tick
        >>> app = App(name="shop")
        >>> @app.cron("0 3 * * *", timezone="Europe/Berlin")
        ... async def close_the_day(tick: Tick) -> None:
        ...     print("the day that ended before", tick.time)

        The expression has five fields: minute, hour, day of the month, month, day of the week; or six, with the
        seconds first. When clocks change, an expression with a fixed minute and hour still runs once that day:
        at the change if its time is skipped, and at the first occurrence if its time occurs twice. Others do
        not run at a skipped time, and run twice at one that occurs twice. Everything else is as with `App.every`.

        ``options`` are those of `ScheduleOptions`. Raises `DeclarationError` for an invalid expression or time
        zone, and what `App.consumer` raises.
        """
        return self._scheduled(Cron(expression, timezone), options)

    def _scheduled(self, times: Times, options: ScheduleOptions) -> Callable[[H], H]:
        def decorate(handler: H) -> H:
            found = declare_schedule(handler, times, self.name, options)
            if any(one.stream.name == found.stream.name for one in self.consumers):
                raise DeclarationError(
                    f"{found.name}: the app has a consumer of {found.stream.name!r} already; give the schedule "
                    "another name="
                )
            self._register(found)
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
                    f"{one.name} already; a second one would get an arbitrary part of its entries. Use "
                    "another group."
                )
            if one.handler is found.handler:
                raise DeclarationError(f"{found.name} is declared twice; use two functions")
        watched = self._on_dead.get(found.stream.name, found.dead)
        if watched != found.dead:
            raise DeclarationError(
                f"{found.name} writes dead letters to {found.dead!r}, but on_dead was declared before "
                f"it for {watched!r}: declare on_dead after {found.name}, or pass it the name of the "
                "dead-letter stream"
            )
        self.consumers += parts
        found.stream.belongs_to(self)
        if found.into is not None:
            found.into.belongs_to(self)

    def use(self, middleware: Middleware) -> None:
        """Add a `Middleware`, inside the existing ones. Raises `DeclarationError` while the app runs."""
        self._not_working("use")
        self._extensions.use(middleware)

    def on_start(self, function: H) -> H:
        """Have each worker process call ``function`` before it reads its first entry.

        >>> from headwater import App
        >>> app = App(name="shop")
        >>> @app.on_start
        ... async def warm_up() -> None: ...

        The function may be async; its parameters may be dependencies of the process (`Use`). Functions run in
        the order of declaration. If one raises, the worker ends with `StartFailed`, and ``headwater work``
        restarts it. Returns ``function``; raises `DeclarationError` for a parameter without a value.
        """
        self._not_working("on_start")
        self._extensions.hooks.on_start.append(hook(function, "on_start"))
        return function

    def on_stop(self, function: H) -> H:
        """Have each worker process call ``function`` after its last settlement.

        The function may be async; its parameters may be dependencies of the process (`Use`). The last function
        declared runs first. If one raises, its error is logged and the next one runs. If the start failed, none
        runs. Returns ``function``; raises what `App.on_start` raises.
        """
        self._not_working("on_stop")
        self._extensions.hooks.on_stop.append(hook(function, "on_stop"))
        return function

    def _not_working(self, what: str) -> None:
        if self._running is not None:
            raise DeclarationError(f"{what} comes too late: {self!r} is already running")

    def statistics(self) -> Statistics:
        """Return the counts of this process for the app, and the progress of its consumers."""
        loops = {} if self._running is None else self._running.loops
        delays = None if self._running is None else self._running.delays
        return Statistics(
            self._extensions.published,
            [
                self._extensions.statistics(one, loops[one].progress() if one in loops else None)
                for one in self.consumers
            ],
            0.0 if delays is None else delays.loop_delay,
        )
