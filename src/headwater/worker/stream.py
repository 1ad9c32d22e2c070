"""A stream as a program declares it: one typed contract for those who write and those who read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, overload
from weakref import WeakSet

from headwater.errors import DeclarationError, HeadwaterError
from headwater.groups.adding import add_once, add_one, add_replicated
from headwater.groups.operation import Operation
from headwater.groups.scheduling import Placed, deferred, place
from headwater.groups.settling import Addition
from headwater.messages import codec_for
from headwater.worker.durations import milliseconds
from headwater.worker.partitions import check_partitions, partition_name, partition_of
from headwater.worker.scheduled import Scheduled

if TYPE_CHECKING:
    from headwater.worker.app import App

M = TypeVar("M")

SHORTEST_WINDOW_MS, LONGEST_WINDOW_MS = 10_000, 86_400_000
"""Longer than sending is tried again; no longer than XCFGSET takes."""

REPLICAS_TIMEOUT_MS = 5_000
"""How long ``wait=`` waits for replicas."""


class Alone(NamedTuple):
    """An addition that is sent by itself, by ``operation``."""

    addition: Addition
    operation: Callable[[], Operation[Any]]
    """Returns the id, or where a scheduled message was placed."""
    repeatable: bool
    """Sending it twice adds it once."""


class Stream(Generic[M]):
    """A stream of messages of one type.

    ``type`` is a msgspec Struct, a dataclass, a TypedDict or a pydantic model; ``codec`` says how
    it is written: "fields", "json", "msgpack", "faststream", or "bytes" for messages that are the fields
    themselves (see `headwater.messages`). With ``maxlen`` every addition
    trims the stream to about so many entries, handled or not. ``dedupe_window`` is how long a
    ``dedupe`` key of `send` is remembered, from 10 seconds to a day, at most 10,000 keys where the
    server has idempotent producers; all apps must declare the same.

    With ``partitions`` it is split by ``key``, a function of the message, into ``orders.{0}``,
    ``orders.{1}`` and so on, each with its own ``maxlen``; see `headwater.worker.partitions`. All apps
    must declare the same number.

    >>> import msgspec
    >>> class Order(msgspec.Struct):
    ...     id: int
    >>> orders = Stream("orders", Order, maxlen=1_000_000)
    >>> orders
    Stream('orders', Order, codec='fields', maxlen=1000000)
    """

    def __init__(
        self,
        name: str,
        type: type[M],
        *,
        codec: str = "fields",
        maxlen: int | None = None,
        dedupe_window: str | timedelta = "1h",
        partitions: int | None = None,
        key: Callable[[M], str | bytes | int] | None = None,
    ) -> None:
        _check(name, maxlen)
        check_partitions(name, partitions, key)
        self.dedupe_window_ms = milliseconds(
            dedupe_window, what="dedupe_window", least_ms=SHORTEST_WINDOW_MS
        )
        if self.dedupe_window_ms > LONGEST_WINDOW_MS:
            raise DeclarationError(
                f"stream {name!r}: dedupe_window={dedupe_window!r} is longer than a day, the longest "
                "that servers take"
            )
        self.name = name
        self.type = type
        self.maxlen = maxlen
        self.partitions = partitions
        self.key = key
        self.codec = codec_for(type, codec)
        self._apps: WeakSet[App] = WeakSet()

    def __repr__(self) -> str:
        named = getattr(self.type, "__name__", str(self.type))
        trimmed = "" if self.maxlen is None else f", maxlen={self.maxlen}"
        split = "" if self.partitions is None else f", partitions={self.partitions}"
        return f"Stream({self.name!r}, {named}, codec={self.codec.name!r}{trimmed}{split})"

    @property
    def parts(self) -> list[Stream[M]]:
        """The streams of the store that this one consists of: its partitions, or itself."""
        if self.partitions is None:
            return [self]
        return [self._part(number) for number in range(self.partitions)]

    def _part(self, number: int) -> Stream[M]:
        part = copy(self)
        part.name = partition_name(self.name, number)
        part.partitions = part.key = None
        return part

    def addition(self, message: M) -> Addition:
        """What adding ``message`` to the stream means; `EncodeError` if it cannot be written."""
        name = self.name
        if self.partitions is not None and self.key is not None:
            name = partition_name(name, partition_of(self.key(message), self.partitions))
        return Addition(name, self.codec.encode(message), self.maxlen)

    def alone(
        self,
        message: M,
        *,
        dedupe: str | None = None,
        wait: int | None = None,
        after: str | timedelta | None = None,
    ) -> Alone | None:
        """What adding ``message`` with these options means; None if it can share a batch."""
        if dedupe is None and wait is None and after is None:
            return None
        addition = self.addition(message)
        add = self._adding(dedupe=dedupe, wait=wait)
        if after is None:
            return Alone(addition, partial(add, addition), repeatable=dedupe is not None)
        after_ms = milliseconds(after, what="after", least_ms=0)
        once = dedupe is not None

        def schedule() -> Operation[Placed]:
            entry = deferred(addition, after_ms)
            return place(entry, after_ms, add(entry), once=once)

        return Alone(addition, schedule, repeatable=once)

    def _adding(
        self, *, dedupe: str | None, wait: int | None
    ) -> Callable[[Addition], Operation[str]]:
        """How an entry is added with these options."""
        if dedupe is not None:
            name: object = dedupe
            if wait is not None:
                raise HeadwaterError(
                    "dedupe= and wait= exclude each other: a repeated message writes nothing that a "
                    "replica could confirm"
                )
            if not isinstance(name, str) or not name:
                raise HeadwaterError(f"dedupe={dedupe!r} must name the message, such as 'order-17'")
            return partial(add_once, key=dedupe, window_ms=self.dedupe_window_ms)
        if wait is None:
            return add_one
        if type(wait) is not int or wait < 1:
            raise HeadwaterError(f"wait={wait!r} must be a number of replicas from 1 on")
        return partial(add_replicated, replicas=wait, timeout_ms=REPLICAS_TIMEOUT_MS)

    def belongs_to(self, app: App) -> None:
        """``app`` declares a consumer of this stream, or one whose results go into it."""
        self._apps.add(app)

    @overload
    async def send(
        self, message: M, *, dedupe: str | None = None, wait: int | None = None, after: None = None
    ) -> str: ...
    @overload
    async def send(
        self,
        message: M,
        *,
        dedupe: str | None = None,
        wait: int | None = None,
        after: str | timedelta,
    ) -> Scheduled: ...
    async def send(self, message: M, **options: Any) -> str | Scheduled:
        """Add one message; its id. Needs an open app: ``async with app:``, or a running worker.

        - ``dedupe``: the message's own name, such as ``"order-17"``. A second message of that name
          within the stream's ``dedupe_window`` is not added; the id of the first is returned. Such
          a message is sent again by itself when a connection breaks.
        - ``wait``: return when so many replicas have the message; `NotReplicated`, with its id, if
          they do not confirm it within five seconds.
        - ``after``: publish the message so much later, such as ``"10m"``, at most a year. Until then
          no group of the stream sees it. Returns a `Scheduled` instead of an id, which can cancel
          it. Published by any worker with a consumer of this stream, or with one whose results go
          into it; late while none runs, by up to a second otherwise, and in no promised order.
          With ``dedupe`` a second one of that name is not scheduled.

        Raises `NotSent` when the store stays away, or takes no writes, for more than four seconds,
        and `OutcomeUnknown` when the connection broke after the message was sent: the store may have
        added it, and nothing is sent twice by itself.
        """
        sent: str | Scheduled = await self._app().send(self, message, **options)
        return sent

    async def send_many(self, messages: Iterable[M]) -> list[str]:
        """Add messages in order, together; their ids."""
        return await self._app().send_many(self, messages)

    @overload
    def publish(
        self, message: M, *, dedupe: str | None = None, wait: int | None = None, after: None = None
    ) -> str: ...
    @overload
    def publish(
        self,
        message: M,
        *,
        dedupe: str | None = None,
        wait: int | None = None,
        after: str | timedelta,
    ) -> Scheduled: ...
    def publish(self, message: M, **options: Any) -> str | Scheduled:
        """As `send`, from code that runs no event loop: a script, a thread, a sync handler."""
        sent: str | Scheduled = self._app().publish(self, message, **options)
        return sent

    def publish_many(self, messages: Iterable[M]) -> list[str]:
        """As `send_many`, from code that runs no event loop."""
        return self._app().publish_many(self, messages)

    async def cancel(self, scheduled_id: str) -> bool:
        """Take back the scheduled message with this id (`Scheduled.id`). False when it was published,
        or cancelled before. Raises `OutcomeUnknown` when the connection broke meanwhile, and
        `HeadwaterError` for a stream with partitions: there ``Scheduled.cancel`` knows which one has the
        message, and ``orders.parts`` are the partitions."""
        return await self._app().cancel(self, scheduled_id)

    def cancel_blocking(self, scheduled_id: str) -> bool:
        """As `cancel`, from code that runs no event loop."""
        return self._app().cancel_blocking(self, scheduled_id)

    def _app(self) -> App:
        """The app through which to publish: this stream's, or the only one that is open."""
        from headwater.worker.app import open_apps

        candidates = [app for app in open_apps() if app in self._apps] or open_apps()
        candidates = candidates or [*self._apps]
        if len(candidates) == 1:
            return candidates[0]
        if not candidates:
            raise HeadwaterError(
                f"no app is open to add to {self.name!r} through: `async with app:` or `with app:`"
            )
        names = ", ".join(sorted(app.name for app in candidates))
        raise HeadwaterError(
            f"several apps could add to {self.name!r} ({names}): say which, app.send(stream, …)"
        )


def _check(name: object, maxlen: object) -> None:
    if not isinstance(name, str) or not name:
        raise DeclarationError(f"a stream needs a name, not {name!r}")
    if maxlen is not None and not (type(maxlen) is int and 1 <= maxlen < 2**63):
        raise DeclarationError(f"stream {name!r}: maxlen={maxlen!r} must be a number from 1 on")
