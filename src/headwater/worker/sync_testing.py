"""An app under test, in tests without an event loop.

    with SyncAppTest(app) as t:             # in pytest: t = headwater_worker(app)
        t.send(orders, Order(id=17))
        t.advance("31s")
        assert t.deliveries(bill) == [1]

Rule. The worker runs only during a call, in an event loop that belongs to the `SyncAppTest`. Each call except
`crash` returns when the worker is idle, as with `AppTest`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self, TypeVar

from headwater.errors import HeadwaterError
from headwater.messages.dead import DeadLetter
from headwater.worker.declare.stream import Stream

if TYPE_CHECKING:
    import redis

    from headwater.worker.app import App

T = TypeVar("T")

Handler = Callable[..., Any]


class SyncAppTest:
    """`AppTest` for code without an event loop: the same methods without ``await``.

    >>> from headwater import App, Stream
    >>> app, orders = App(), Stream("orders", dict[str, int], codec="json")
    >>> @app.consumer(orders, group="billing")
    ... def bill(order) -> None: ...
    >>> with SyncAppTest(app) as t:
    ...     _ = t.send(orders, {"id": 17})
    ...     print(t.deliveries(bill), t.pending(bill))
    [1] {}

    The worker runs only during a call. With pytest, the fixture `headwater_worker` makes this object. Entering
    the object raises `HeadwaterError` in a thread that runs an event loop, and if the app is already running.
    """

    look: redis.Redis
    """A redis-py client of the store, to examine and change it."""

    def __init__(self, app: App, *, use: Mapping[Handler, Any] | None = None) -> None:
        self.app = app
        """The app under test."""
        self._test = app.test(use=use)
        self.clock = self._test.clock
        """The clock of the store and of the worker."""
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise HeadwaterError(
                "this thread runs an event loop: use `async with app.test() as t:`"
            )
        try:
            self._run(self._test.__aenter__())
        except BaseException:
            self._runner.close()
            raise
        self.look = self._test.look
        return self

    def __exit__(self, *exc_info: object) -> None:
        try:
            self._run(self._test.__aexit__(*exc_info))
        finally:
            self._runner.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def send(self, stream: Stream[Any], *messages: Any) -> list[str]:
        """See `AppTest.send`."""
        return self._run(self._test.send(stream, *messages))

    def add(self, stream: Stream[Any] | str, fields: dict[str, str | bytes]) -> str:
        """See `AppTest.add`."""
        return self._run(self._test.add(stream, fields))

    def crash(self, handler: Handler) -> None:
        """See `AppTest.crash`."""

        async def crash() -> None:
            self._test.crash(handler)

        self._run(crash())

    def advance(self, duration: str | timedelta) -> None:
        """See `AppTest.advance`."""
        self._run(self._test.advance(duration))

    def settle(self) -> None:
        """See `AppTest.settle`."""
        self._run(self._test.settle())

    def deliveries(self, handler: Handler) -> list[int]:
        """See `AppTest.deliveries`."""
        return self._test.deliveries(handler)

    def results(self, stream: Stream[Any]) -> list[Any]:
        """See `AppTest.results`."""
        return self._test.results(stream)

    def dead(self, stream: Stream[Any] | str) -> list[DeadLetter]:
        """See `AppTest.dead`."""
        return self._test.dead(stream)

    def pending(self, handler: Handler) -> dict[str, int]:
        """See `AppTest.pending`."""
        return self._test.pending(handler)
