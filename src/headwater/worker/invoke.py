"""Calls a handler with open dependencies, inside the middleware of its app.

    middleware ( dependencies of the delivery ( handler ) )

Rule 1. A handler without dependencies, in an app without middleware, is called directly, not from here.
Rule 2. The handler's error is the error of the delivery, whatever a dependency does with it.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from typing import Any

from headwater.worker.declaration import Consumer
from headwater.worker.delivery import Delivery
from headwater.worker.dependencies import Values, open_async, open_in_thread, refuse_awaitable
from headwater.worker.middleware import Chain
from headwater.worker.waiting import cancelled

log = logging.getLogger("headwater.worker")

InThread = Callable[[Callable[[], Any]], Awaitable[tuple[Any, BaseException | None]]]
"""Calls a function in a thread and returns its result, or its exception as a value."""

Finish = Callable[[Any], Awaitable[Any]]
"""Awaits a handler's result until it is a plain value."""


class Invocation:
    """Calls one consumer's handler. ``values`` are the dependencies of the process. ``check`` raises an error
    for a result that cannot be published, before the dependencies of the delivery are closed."""

    def __init__(
        self,
        consumer: Consumer,
        *,
        chain: Chain,
        values: Values,
        in_thread: InThread | None,
        finish: Finish,
        check: Callable[[Any], object],
    ) -> None:
        self._consumer = consumer
        self._around = chain.handle[::-1]
        self._process = values
        self._in_thread = in_thread
        self._finish = finish
        self._check = check
        self._per_delivery = any(one.scope == "delivery" for one in consumer.needs.values())

    async def __call__(self, message: Any, delivery: Delivery) -> Any:
        call: Callable[[], Awaitable[Any]] = partial(self._handle, message, delivery)
        for around in self._around:
            call = partial(around, delivery, message, call)
        return await call()

    async def _handle(self, message: Any, delivery: Delivery) -> Any:
        if self._in_thread is not None:
            work = self._opened_in_thread if self._per_delivery else self._call
            result, error = await self._in_thread(partial(work, message, delivery))
            if error is not None:
                raise error
            return await self._finish(result)
        if self._per_delivery:
            return await self._opened(message, delivery)
        return await self._finish(self._call(message, delivery))

    def _call(self, message: Any, delivery: Delivery, values: Values | None = None) -> Any:
        found = self._process if values is None else values
        needs = self._consumer.needs
        return self._consumer.call(
            message, delivery, **{name: found[one.key] for name, one in needs.items()}
        )

    async def _opened(self, message: Any, delivery: Delivery) -> Any:
        """Open the dependencies of the delivery, call the handler, and close them."""
        failed: BaseException | None = None
        result = None
        try:
            async with AsyncExitStack() as stack:
                values = dict(self._process)
                for one in self._consumer.needs.values():
                    await open_async(one, values, stack, delivery)
                try:
                    result = await self._finish(self._call(message, delivery, values))
                    self._check(result)
                except BaseException as error:
                    failed = error
                    raise
        except BaseException as error:
            if failed is None or error is failed or cancelled():
                raise
            self._log_closing(delivery, error)
        if failed is not None:
            raise failed
        return result

    def _opened_in_thread(self, message: Any, delivery: Delivery) -> Any:
        """The same as `_opened`, in the handler's thread."""
        failed: BaseException | None = None
        result = None
        try:
            with ExitStack() as stack:
                values = dict(self._process)
                for one in self._consumer.needs.values():
                    open_in_thread(one, values, stack, delivery)
                try:
                    result = self._call(message, delivery, values)
                    if inspect.isawaitable(result):
                        refuse_awaitable(result)
                        raise TypeError(
                            f"{self._consumer.name} returned an awaitable, and its dependencies are "
                            "closed before it is awaited: make the handler `async def`"
                        )
                    self._check(result)
                except BaseException as error:
                    failed = error
                    raise
        except BaseException as error:
            if failed is None or error is failed:
                raise
            self._log_closing(delivery, error)
        if failed is not None:
            raise failed
        return result

    def _log_closing(self, delivery: Delivery, error: BaseException) -> None:
        log.error(
            "closing the dependencies of %s failed after its own error, on %s of %s",
            self._consumer.name,
            delivery.id,
            delivery.stream,
            exc_info=error,
        )
