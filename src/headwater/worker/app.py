"""An application: a store, the consumers that work on it, and a way to publish to it."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from headwater.client import server_url
from headwater.client.redaction import redacted
from headwater.common.durations import milliseconds
from headwater.errors import DeclarationError, HeadwaterError
from headwater.worker.app_declaring import AppDeclaring
from headwater.worker.declare.declaration import POOL_PROCESS, with_concurrency
from headwater.worker.declare.extensions import Extensions
from headwater.worker.declare.middleware import Middleware
from headwater.worker.observe.supervisor_pipe import Reports
from headwater.worker.read.quarantine import Suspects
from headwater.worker.running import Running, Surroundings
from headwater.worker.store.clocks import LoopClock
from headwater.worker.store.connections import Connections

if TYPE_CHECKING:
    from headwater.worker.testing import AppTest

log = logging.getLogger("headwater.worker")

H = TypeVar("H", bound=Callable[..., Any])

DEFAULT_URL = "redis://localhost:6379"

SCHEMES = (*server_url.SCHEMES, "headwater")


class App(AppDeclaring):
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
      default is the environment variable ``HEADWATER_URL``, or ``redis://localhost:6379`` if it is not set.
    - ``name``: the name of the app in logs and errors.
    - ``grace``: maximum time for running handlers to end after `App.stop`, or SIGTERM to ``headwater work``.
    - ``middleware``: `Middleware` instances, the outermost first.

    To publish, open the app: ``async with app:`` in coroutines, ``with app:`` elsewhere. Leaving the last
    such block waits until all messages are sent and closes the connections. A running worker has its app
    open.

    The app does not connect before it runs or publishes. Raises `DeclarationError` if the url has another scheme,
    or if ``grace`` is not a duration.
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
                f"url={redacted(url)!r} is not the address of a store: it must begin with one of "
                f"{', '.join(one + '://' for one in SCHEMES)}"
            )
        super().__init__(Connections(url), name=name, extensions=Extensions(middleware))
        self.grace_ms = milliseconds(grace, what="grace", least_ms=0)
        """Maximum time for running handlers to end, in milliseconds."""
        self.suspects = Suspects.HERE
        """The place where suspected poison messages run; `headwater work` sets it for its processes."""

    def use_store(self, url: str) -> None:
        """Use the store at ``url`` instead of the declared one. The app must not be running or publishing."""
        assert self._running is None, "the app already runs on its store"
        self._use(Connections(url))

    def use_concurrency(self, concurrency: int) -> None:
        """Set the ``concurrency`` of every consumer, in place of the declared one.

        ``prefetch`` changes in proportion. Raises `DeclarationError` while the app runs. ``headwater work
        --concurrency`` does the same.
        """
        self._not_working("use_concurrency")
        self.consumers[:] = [with_concurrency(one, concurrency) for one in self.consumers]

    # --- running ----------------------------------------------------------------------------------

    async def run(self, *, reports: Reports | None = None) -> None:
        """Run all consumers in this process until `App.stop` is called.

        ``headwater work shop:app`` does this in several processes, and restarts a process that ends. After
        `App.stop`, running handlers may end within the grace time, and all other entries are handed back.

        The worker waits for a store that is unreachable, full, or in a failover. Raises `HeadwaterError` if
        the app has no consumer or is already running; `StartFailed` if a dependency or a function of
        `App.on_start` fails, or a pool process cannot start; `TaskEnded` if a part of the worker ends; and errors
        that waiting does not resolve, such as a wrong password or a different ``claim_after`` in the group.
        ``reports`` is for ``headwater work``.
        """
        if not self.consumers:
            raise HeadwaterError(f"{self!r} has no consumer: declare one with @app.consumer")
        if self._running is not None:
            raise HeadwaterError(f"{self!r} is already running")
        supervised = reports is not None and reports.supervised
        self._check_processes(supervised=supervised)
        running = Running(
            self.consumers,
            around=Surroundings(self._connections, LoopClock(), Random()),
            reports=reports,
            suspects=self.suspects,
            extensions=self._extensions,
        )
        self._running = running
        if not supervised:
            log.info(
                "no other process renews the leases of this one: a handler that holds the interpreter's lock (GIL) "
                "for longer than claim_after loses its entry to another worker, and the first of the two to finish "
                "settles it. With `headwater work`, the supervisor renews the leases meanwhile."
            )
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

    def _check_processes(self, *, supervised: bool) -> None:
        """Raise an error if this process cannot run the handlers as they are declared."""
        process = sys.modules.get("multiprocessing.process")
        if process is not None and process.current_process().name == POOL_PROCESS:
            raise HeadwaterError(
                "the main program runs its worker while a pool process imports it: put the call below "
                '`if __name__ == "__main__":`'
            )
        for one in [] if supervised else self.consumers:
            if one.timeout_ms is not None and not one.is_async and not one.isolated:
                raise DeclarationError(
                    f"{one.name} has a timeout and runs in a thread, which cannot be ended: after a timeout the "
                    "process must be replaced, which only `headwater work` does. Use `headwater work`, "
                    'executor="process", or `async def`.'
                )

    def stop(self) -> None:
        """Ask `App.run` to end. After a second call, `App.run` no longer waits for running handlers.

        Call it in the event loop's thread, as asyncio's signal handlers do.
        """
        if self._running is not None:
            self._running.ask_to_stop()

    def test(self, *, use: Mapping[Callable[..., Any], Any] | None = None) -> AppTest:
        """Return an `AppTest`: the app on a store in memory, with a clock that the test advances.

        Use it as ``async with app.test() as t:``. With ``use={open_db: FakeDb()}``, handlers get this value
        instead of the provider's (``open_db``). In tests without an event loop use the pytest fixture
        `headwater_worker`, or `SyncAppTest`.
        """
        from headwater.worker.testing import AppTest

        return AppTest(self, use=use)
