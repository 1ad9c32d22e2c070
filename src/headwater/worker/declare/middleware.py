"""Middleware: hooks around every delivery and every message that an app publishes.

    receive ─▶ handle( … dependencies, handler … ) ─▶ before_settle ─▶ (store) ─▶ after_settle
               before_publish ─▶ (store) ─▶ after_publish

Rule 1. The first middleware of an app is the outermost one: it is called first on the way in and last on
        the way out.
Rule 2. An error of ``handle`` is the error of the delivery, as if the handler had raised it. An error of
        any other method is logged and has no other effect.
Rule 3. Only methods that a subclass defines are called, so an app without middleware has no overhead.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from headwater.errors import DeclarationError
from headwater.groups.settling.settling import Addition
from headwater.messages.keys import Pairs
from headwater.worker.declare.delivery import Delivery
from headwater.worker.declare.outcome import Ending

log = logging.getLogger("headwater.worker")


class Middleware:
    """Hooks around every delivery and every message that an app publishes. A subclass defines the hooks that it
    needs.

    >>> import asyncio, time
    >>> from headwater import App, Stream
    >>> class Timing(Middleware):
    ...     async def handle(self, delivery, message, call_next):
    ...         began = time.monotonic()
    ...         try:
    ...             return await call_next()
    ...         finally:
    ...             print(f"{delivery.stream} took {time.monotonic() - began:.0f} s")
    >>> app, orders = App(middleware=[Timing()]), Stream("orders", dict[str, int], codec="json")
    >>> @app.consumer(orders, group="billing")
    ... async def bill(order) -> None: ...
    >>> async def main() -> None:
    ...     async with app.test() as t:
    ...         await t.send(orders, {"id": 17})
    >>> asyncio.run(main())
    orders took 0 s

    Pass instances to ``App(middleware=[…])``, the outermost first, or to `App.use`. All methods except
    `Middleware.handle` run in the event loop's thread, or in the thread that publishes, and must not block.
    Their errors are logged and have no other effect.
    """

    __module__ = "headwater"

    def receive(self, delivery: Delivery) -> None:
        """Called after a new or claimed entry was read. Not every entry that was read reaches a handler."""

    async def handle(
        self,
        delivery: Delivery,  # noqa: ARG002  # for subclasses
        message: Any,  # noqa: ARG002
        call_next: Callable[[], Awaitable[Any]],
    ) -> Any:
        """Called around the handler and its dependencies. ``await call_next()`` runs them, and returns or
        raises what the handler does.

        ``message`` is the handler's first argument, a `Batch` for a batch handler. The return value of this
        method is the handler's result; an exception is the error of the delivery. This method is cancelled when
        the handler would be: at its timeout, when its lease is lost, and at a stop.
        """
        return await call_next()

    def before_settle(self, delivery: Delivery, ending: Ending) -> None:
        """Called when it is decided how the delivery ends, before the settlement is sent. Not called for an entry
        that is handed back before a handler got it."""

    def after_settle(self, delivery: Delivery, ending: Ending) -> None:
        """Called when the store has settled the delivery. Not called if another worker owns the entry now."""

    def before_publish(self, stream: str, fields: Pairs) -> None:
        """Called before a message is added to ``stream``, by the app or as a handler's result.

        ``fields`` is a list of pairs of bytes and may be changed in place, as tracing does. If this method
        raises, its changes are discarded, and the message is added without them.
        """

    def after_publish(self, stream: str, ids: Sequence[str], error: BaseException | None) -> None:
        """Called with the ids of messages that the store has added. ``error`` is set if not all were added."""


SYNCHRONOUS = ("receive", "before_settle", "after_settle", "before_publish", "after_publish")


class Chain:
    """The hooks that an app's middleware defines; those of one name are in the order of their calls."""

    def __init__(self, middleware: Sequence[Middleware] = ()) -> None:
        for one in middleware:
            _check(one)
        self.empty = not middleware
        self.receive = _defined(middleware, "receive")
        self.handle = _defined(middleware, "handle")
        self.before_settle = _defined(middleware, "before_settle")
        self.after_settle = _defined(reversed(middleware), "after_settle")
        self._before_publish = _defined(middleware, "before_publish")
        self._after_publish = _defined(reversed(middleware), "after_publish")

    def publishing(self, additions: Sequence[Addition]) -> None:
        """Call the hooks before messages are added. They may change the fields in place."""
        for method in self._before_publish:
            for one in additions:
                fields: list[Any] = list(one.fields)
                if call(_checked, method, one.stream, fields, name=method):
                    one.fields[:] = fields

    def published(
        self,
        additions: Sequence[Addition],
        ids: Sequence[str | bytes],
        error: BaseException | None = None,
    ) -> None:
        """Call the hooks after messages were added, or failed with ``error``."""
        if not self._after_publish or not additions:
            return
        words = [one.decode() if isinstance(one, bytes) else one for one in ids]
        if error is not None or len(words) != len(additions):
            by_stream = {additions[0].stream: words}
        else:
            by_stream = {}
            for one, entry_id in zip(additions, words, strict=True):
                by_stream.setdefault(one.stream, []).append(entry_id)
        for method in self._after_publish:
            for stream, added in by_stream.items():
                call(method, stream, added, error)


def _checked(method: Callable[..., None], stream: str, fields: list[Any]) -> None:
    """Call ``before_publish``. Raises `TypeError` if the method leaves invalid fields, because they would end
    the part of the worker that sends them."""
    method(stream, fields)
    for place, field in enumerate(fields):
        words = tuple(field) if isinstance(field, tuple | list) else ()
        if len(words) != 2 or not all(isinstance(word, bytes | str) for word in words):
            raise TypeError(f"{field!r:.200} is not a field: expected (name, value) in bytes")
        fields[place] = tuple(w.encode() if isinstance(w, str) else w for w in words)
    if not fields:
        raise TypeError("no field is left, and an entry needs one")


def call(method: Callable[..., None], *arguments: Any, name: object = None) -> bool:
    """Call a hook and return whether it succeeded. Its error is logged, with the hook's ``name``."""
    try:
        method(*arguments)
    except BaseException as error:
        hook = name or method
        log.exception("%s of a middleware failed", getattr(hook, "__qualname__", hook))
        if isinstance(error, KeyboardInterrupt):
            raise
        return False
    return True


def _defined(middleware: Iterable[Middleware], name: str) -> tuple[Callable[..., Any], ...]:
    plain = getattr(Middleware, name)
    return tuple(
        getattr(one, name) for one in middleware if getattr(type(one), name, plain) is not plain
    )


def _check(one: object) -> None:
    if not isinstance(one, Middleware):
        words = f"an instance: {one.__name__}()" if isinstance(one, type) else "a Middleware"
        raise DeclarationError(f"{one!r}: expected {words}")
    kind = type(one).__qualname__
    if not inspect.iscoroutinefunction(one.handle):
        raise DeclarationError(f"{kind}.handle must be `async def`")
    for name in SYNCHRONOUS:
        if inspect.iscoroutinefunction(getattr(one, name)):
            raise DeclarationError(f"{kind}.{name} must not be `async def`: nothing awaits it")
