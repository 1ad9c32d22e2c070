"""Calls a handler with open dependencies, inside the middleware of its app.

    middleware ( dependencies of the delivery ( handler ) )

Rule 1. A handler without dependencies, in an app without middleware, is called directly, except in a pool process.
Rule 2. The handler's error is the error of the delivery, even if a dependency suppresses it.
Rule 3. The child of a fork in a handler ends before dependencies are closed and middleware goes on.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from typing import Any

from headwater.worker.declare.declaration import Consumer
from headwater.worker.declare.delivery import Delivery
from headwater.worker.declare.dependencies import (
    Dependency,
    Values,
    open_async,
    open_in_thread,
    refuse_awaitable,
)
from headwater.worker.declare.middleware import Chain
from headwater.worker.run.forked import ForkedChildren
from headwater.worker.store.waiting import cancelled

log = logging.getLogger("headwater.worker")

Apart = Callable[[Any, Delivery], Awaitable[tuple[Any, BaseException | None]]]
"""Function that calls a handler in a thread or another process, and returns its result, or its exception as a value."""

Finish = Callable[[Any], Awaitable[Any]]
"""Function that awaits a handler's result until it is a plain value."""


class Invocation:
    """Calls one consumer's handler. ``values`` are the dependencies of the process. ``check`` raises an error
    for a result that cannot be published, before the dependencies of the delivery are closed."""

    def __init__(
        self,
        consumer: Consumer,
        *,
        chain: Chain,
        values: Values,
        apart: Apart | None,
        finish: Finish,
        check: Callable[[Any], object],
    ) -> None:
        self._consumer = consumer
        self._around = chain.handle[::-1]
        self._process = values
        self._apart = apart
        self._finish = finish
        self._check = check
        self._forked = ForkedChildren()
        self._per_delivery = any(one.scope == "delivery" for one in consumer.needs.values())

    async def __call__(self, message: Any, delivery: Delivery) -> Any:
        call: Callable[[], Awaitable[Any]] = partial(self._handle, message, delivery)
        for around in self._around:
            call = partial(around, delivery, message, call)
        return await call()

    async def _handle(self, message: Any, delivery: Delivery) -> Any:
        if self._apart is not None:
            result, error = await self._apart(message, delivery)
            if error is not None:
                raise error
            return await self._finish(result)
        if self._per_delivery:
            return await self._opened(message, delivery)
        return await self._call(message, delivery, self._process)

    async def _call(self, message: Any, delivery: Delivery, values: Values) -> Any:
        given = {name: values[one.key] for name, one in self._consumer.needs.items()}
        with self._forked:
            return await self._finish(self._consumer.call(message, delivery, **given))

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
                    result = await self._call(message, delivery, values)
                    self._check(result)
                except BaseException as error:
                    failed = error
                    raise
        except BaseException as error:
            if failed is None or error is failed or cancelled():
                raise
            _log_closing(self._consumer.name, delivery, error)
        if failed is not None:
            raise failed
        return result


class SyncCall:
    """Calls a handler that is not ``async``, in the thread or the process where it runs. ``values`` are the
    dependencies of the process. ``check`` is described in `Invocation`."""

    def __init__(
        self,
        call: Callable[..., Any],
        needs: Mapping[str, Dependency],
        name: str,
        *,
        values: Values,
        check: Callable[[Any], object],
    ) -> None:
        self._call = call
        self._needs = needs
        self._name = name
        self._process = values
        self._check = check
        self._forked = ForkedChildren()
        self._per_delivery = any(one.scope == "delivery" for one in needs.values())

    def __call__(self, message: Any, delivery: Delivery) -> Any:
        if not self._per_delivery:
            return self._called(message, delivery, self._process)
        failed: BaseException | None = None
        result = None
        try:
            with ExitStack() as stack:
                values = dict(self._process)
                for one in self._needs.values():
                    open_in_thread(one, values, stack, delivery)
                try:
                    with self._forked:
                        result = self._called(message, delivery, values)
                    if inspect.isawaitable(result):
                        refuse_awaitable(result)
                        raise TypeError(
                            f"{self._name} returned an awaitable, and its dependencies are "
                            "closed before it is awaited: make the handler `async def`"
                        )
                    self._check(result)
                except BaseException as error:
                    failed = error
                    raise
        except BaseException as error:
            if failed is None or error is failed:
                raise
            _log_closing(self._name, delivery, error)
        if failed is not None:
            raise failed
        return result

    def _called(self, message: Any, delivery: Delivery, values: Values) -> Any:
        given = {name: values[one.key] for name, one in self._needs.items()}
        return self._call(message, delivery, **given)


def _log_closing(name: str, delivery: Delivery, error: BaseException) -> None:
    log.error(
        "closing the dependencies of %s failed after its own error, on %s of %s",
        name,
        delivery.id,
        delivery.stream,
        exc_info=error,
    )
