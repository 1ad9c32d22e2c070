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
from collections.abc import Callable, Iterable
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack
from urllib.parse import urlsplit

from headwater.client.redaction import redacted
from headwater.errors import DeclarationError, HeadwaterError
from headwater.worker.clocks import LoopClock
from headwater.worker.connections import Connections
from headwater.worker.declaration import (
    BatchOptions,
    Consumer,
    ConsumerOptions,
    declare,
    declare_batch,
    known,
    split,
)
from headwater.worker.durations import milliseconds
from headwater.worker.publishing import Publisher
from headwater.worker.quarantine import Suspects
from headwater.worker.reports import Reports
from headwater.worker.running import Running
from headwater.worker.stream import Stream

if TYPE_CHECKING:
    from headwater.worker.testing import AppTest

H = TypeVar("H", bound=Callable[..., Any])

DEFAULT_URL = "redis://localhost:6379"

SCHEMES = ("redis", "rediss", "unix", "headwater")

_open: list[App] = []
_open_lock = threading.Lock()


def open_apps() -> list[App]:
    """The apps through which something can be published now."""
    with _open_lock:
        return list(dict.fromkeys(_open))


def _refuse_in_loop(stream: Stream[Any]) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise HeadwaterError(
        f"publishing to {stream.name!r} so would stop the event loop that runs here while it waits: "
        "use `await send`"
    )


class App:
    """Consumers and publishing on one store.

    ``url`` is what `headwater.connect` takes: ``redis://``, ``rediss://``, ``unix://``,
    ``headwater:///path``, ``headwater://memory``. Without one it is the environment's
    ``HEADWATER_URL``, else ``redis://localhost:6379``. ``name`` says in logs and errors which app it is.
    """

    def __init__(
        self, url: str | None = None, *, name: str = "app", grace: str | timedelta = "30s"
    ) -> None:
        url = os.environ.get("HEADWATER_URL", DEFAULT_URL) if url is None else url
        scheme = urlsplit(url).scheme
        if scheme not in SCHEMES:
            raise DeclarationError(
                f"url={redacted(url)!r} is no address of a store: it begins with one of "
                f"{', '.join(one + '://' for one in SCHEMES)}"
            )
        self.url = url
        self.name = name
        self.grace_ms = milliseconds(grace, what="grace", least_ms=0)
        self.suspects = Suspects.HERE
        """Where suspected poison messages run; `headwater work` sets it for its processes."""
        self.consumers: list[Consumer] = []
        self._connections = Connections(url)
        self._publisher = Publisher(self._connections)
        self._running: Running | None = None

    def __repr__(self) -> str:
        return f"App(name={self.name!r}, consumers={[one.name for one in self.consumers]})"

    def use_store(self, url: str) -> None:
        """Work on another store than the one declared. Not while it works or publishes."""
        assert self._running is None, "the app works on its store already"
        self._use(Connections(url))

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
        those of `ConsumerOptions`. Raises `DeclarationError` for whatever contradicts itself.
        """
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
        known(options, BatchOptions)

        def decorate(handler: H) -> H:
            self._register(declare_batch(handler, stream, **options))
            return handler

        return decorate

    def _register(self, found: Consumer) -> None:
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
        self.consumers += parts
        found.stream.belongs_to(self)
        if found.into is not None:
            found.into.belongs_to(self)

    # --- publishing -------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._enter()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._leave()
        await self._publisher.close()

    def __enter__(self) -> Self:
        self._enter()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._leave()
        self._publisher.close_synchronous()

    def _enter(self) -> None:
        with _open_lock:
            _open.append(self)

    def _leave(self) -> None:
        with _open_lock:
            _open.remove(self)

    async def send(
        self,
        stream: Stream[Any],
        message: Any,
        *,
        dedupe: str | None = None,
        wait: int | None = None,
    ) -> str:
        """Add one message to ``stream``; its id. For the options see `Stream.send`."""
        alone = stream.alone(message, dedupe=dedupe, wait=wait)
        if alone is None:
            return (await self.send_many(stream, [message]))[0]
        return await self._publisher.send_one(
            alone.addition, alone.operation, repeatable=alone.repeatable
        )

    async def send_many(self, stream: Stream[Any], messages: Iterable[Any]) -> list[str]:
        """Add messages in order; their ids."""
        return await self._publisher.send([stream.addition(message) for message in messages])

    def publish(
        self,
        stream: Stream[Any],
        message: Any,
        *,
        dedupe: str | None = None,
        wait: int | None = None,
    ) -> str:
        """As `send`, from code that runs no event loop."""
        alone = stream.alone(message, dedupe=dedupe, wait=wait)
        if alone is None:
            return self.publish_many(stream, [message])[0]
        _refuse_in_loop(stream)
        return self._publisher.publish_one(
            alone.addition, alone.operation, repeatable=alone.repeatable
        )

    def publish_many(self, stream: Stream[Any], messages: Iterable[Any]) -> list[str]:
        """As `send_many`, from code that runs no event loop; `HeadwaterError` where one runs."""
        _refuse_in_loop(stream)
        return self._publisher.publish([stream.addition(message) for message in messages])

    # --- working ----------------------------------------------------------------------------------

    async def run(self, *, reports: Reports | None = None) -> None:
        """Work until `stop` is called, then end in peace within the grace time.

        Raises what no waiting mends, and `TaskEnded` if a part of the worker itself fails; whatever
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
        )
        self._running = running
        try:
            async with self:
                running.start()
                try:
                    await running.until_stopped()
                finally:
                    await asyncio.shield(running.stop(self.grace_ms / 1000))
        finally:
            self._running = None

    def stop(self) -> None:
        """Ask `run` to end. The second time it waits for no handler any more.

        Call it in the thread of the event loop, as a signal handler of asyncio does.
        """
        if self._running is not None:
            self._running.ask_to_stop()

    def test(self) -> AppTest:
        """The app on an embedded store and a clock that the test advances: see `AppTest`."""
        from headwater.worker.testing import AppTest

        return AppTest(self)
