"""`Stream`: the name, message type and codec of a stream, shared by its producers and consumers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from datetime import timedelta
from typing import Any, Generic, NamedTuple, TypeAlias, TypedDict, TypeVar, Unpack, overload
from weakref import WeakSet
from zlib import crc32

from headwater.common.durations import milliseconds
from headwater.common.names import bytes_of
from headwater.errors import DeclarationError, EncodeError, HeadwaterError
from headwater.groups.settling.adding import Adding, Once, Replicas
from headwater.groups.settling.settling import Addition
from headwater.messages import codec_for
from headwater.messages.keys import EXPIRES_FIELD
from headwater.worker.declare.open_apps import OpenApp, open_apps
from headwater.worker.declare.scheduled import Scheduled

M = TypeVar("M")

SHORTEST_WINDOW_MS, LONGEST_WINDOW_MS = 10_000, 86_400_000
"""Bounds of ``dedupe_window``, in milliseconds. The least is more than the time for which sending is retried
(`PublishRetry`), and the most is the maximum that XCFGSET accepts."""

REPLICAS_TIMEOUT_MS = 5_000
"""Maximum time for which ``wait=`` waits for replicas, in milliseconds."""


Durations: TypeAlias = (
    str | timedelta | Callable[[Any], str | timedelta] | Sequence[str | timedelta]
)
"""Durations for many messages: one for all, a function of the message, or a sequence."""


class SendOptions(TypedDict, total=False):
    """The options of `Stream.send` and `Stream.publish`, besides ``after``. None is required."""

    dedupe: str | None
    """A name for the message, such as ``"order-17"``. A second message of that name within the stream's
    ``dedupe_window`` is not added, and the id of the first is returned. If the connection breaks after a message was
    sent, only a message with a name is sent again."""
    wait: int | None
    """Number of replicas that must have the message before the call returns."""
    expires: str | timedelta | None
    """Maximum time until a handler starts, such as ``"10m"``, from now or from the due time. A message that was not
    started in time is dropped; see ``on_expired`` of `ConsumerOptions`."""


class ManyOptions(TypedDict, Generic[M], total=False):
    """The options of `Stream.send_many` and `Stream.publish_many`, besides ``after``: those of `SendOptions` for many
    messages. None is required."""

    dedupe: Callable[[M], str] | Sequence[str] | None
    """A function that returns the name of a message, or a sequence with a name for each."""
    wait: int | None
    """Number of replicas that must have the messages before the call returns."""
    expires: Durations | None
    """Maximum time until a handler starts: for all messages, a sequence with a time for each, or a function of the
    message."""


class Sending(NamedTuple):
    """Messages of one call, with its options."""

    additions: list[Addition]
    once: Once | None
    after_ms: list[int] | None
    replicas: Replicas | None

    @property
    def plain(self) -> bool:
        """True if the messages can share a batch with others, because they have no options."""
        return self.once is None and self.after_ms is None and self.replicas is None

    def adding(self) -> Adding:
        """Return an `Adding` of the messages, with the changes that hooks of middleware have made."""
        return Adding(
            self.additions, once=self.once, after_ms=self.after_ms, replicas=self.replicas
        )


class Stream(Generic[M]):
    """A stream of messages of one type.

    >>> import msgspec
    >>> class Order(msgspec.Struct):
    ...     id: int
    ...     customer: str
    >>> orders = Stream("orders", Order, maxlen=1_000_000)
    >>> orders
    Stream('orders', Order, codec='fields', maxlen=1000000)
    >>> moves = Stream("moves", Order, partitions=2, key=lambda order: order.customer)
    >>> [part.name for part in moves.parts]
    ['moves.{0}', 'moves.{1}']

    - ``name``: the key of the stream in the store.
    - ``type``: the type of its messages, such as a msgspec Struct, a dataclass, a TypedDict or a pydantic model.
    - ``codec``: the format of a message. ``"fields"``: one field per attribute; ``"json"`` and
      ``"msgpack"``: one document in the field ``data``; ``"faststream"`` and ``"faststream-json"``:
      FastStream's formats; ``"bytes"``: the message consists of the fields themselves, as a ``dict[bytes, bytes]``
      or a ``list[tuple[bytes, bytes]]``.
    - ``maxlen``: each addition trims the stream to about this many entries, even if the trimmed ones were not
      handled. By default the stream is not trimmed.
    - ``dedupe_window``: time for which a ``dedupe`` name of `Stream.send` is remembered, from 10 seconds to a
      day. A server with idempotent producers remembers the last 10,000 names of a stream. All apps must
      declare the same time.
    - ``partitions``: number of streams into which this one is split, 1 to 1,024; each has its own ``maxlen``.
      All apps must declare the same number.
    - ``key``: a function of the message that returns a string, bytes or an integer. The partition is the
      CRC-32 of this value's text modulo ``partitions``.

    Raises `DeclarationError` for options that contradict each other, and for a type that the codec cannot
    write and read back.

    Source: the command page of XADD; docs/guide/idempotent-producers.md for ``dedupe_window``.
    """

    message_optional = False
    """True if a handler need not have a parameter for the message."""

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
        """Time for which the server remembers ``dedupe`` names, in milliseconds."""
        if self.dedupe_window_ms > LONGEST_WINDOW_MS:
            raise DeclarationError(
                f"stream {name!r}: dedupe_window={dedupe_window!r} is longer than a day, the most that "
                "servers accept"
            )
        self.name = name
        """The key of the stream in the store."""
        self.type = type
        """The type of its messages."""
        self.maxlen = maxlen
        """Approximate number of entries that trimming leaves; None for no trimming."""
        self.partitions = partitions
        """Number of streams into which this one is split; None for a stream without partitions."""
        self.key = key
        """The function that returns a message's key, by which its partition is chosen."""
        self.codec = codec_for(type, codec)
        """The codec that encodes and decodes messages."""
        self._apps: WeakSet[OpenApp] = WeakSet()

    def __repr__(self) -> str:
        named = getattr(self.type, "__name__", str(self.type))
        trimmed = "" if self.maxlen is None else f", maxlen={self.maxlen}"
        split = "" if self.partitions is None else f", partitions={self.partitions}"
        return f"Stream({self.name!r}, {named}, codec={self.codec.name!r}{trimmed}{split})"

    @property
    def parts(self) -> list[Stream[M]]:
        """The partitions, each a `Stream`; a list of only this stream if it has no partitions."""
        if self.partitions is None:
            return [self]
        return [self._part(number) for number in range(self.partitions)]

    def _part(self, number: int) -> Stream[M]:
        part = copy(self)
        part.name = partition_name(self.name, number)
        part.partitions = part.key = None
        return part

    def addition(self, message: M) -> Addition:
        """Return the addition of ``message``. Raises `EncodeError` if it cannot be written."""
        name = self.name
        if self.partitions is not None and self.key is not None:
            name = partition_name(name, partition_of(self.key(message), self.partitions))
        return Addition(name, self.codec.encode(message), self.maxlen)

    def sending(
        self,
        messages: Sequence[M],
        *,
        dedupe: Any = None,
        wait: int | None = None,
        after: Any = None,
        expires: Any = None,
        single: bool = False,
    ) -> Sending:
        """Return ``messages`` with the options of `send_many`, or with those of `send` if ``single``. Raises
        `HeadwaterError` for invalid options."""
        if wait is not None and (type(wait) is not int or wait < 1):
            raise HeadwaterError(
                f"wait={wait!r} must be an integer, at least 1: the number of replicas"
            )
        once = after_ms = None
        if dedupe is not None:
            names = [dedupe] if single else _each(dedupe, messages, "dedupe", "a name")
            for name in names:
                if not is_name(name):
                    raise HeadwaterError(f"dedupe={name!r} must be a name, such as 'order-17'")
            once = Once(names, self.dedupe_window_ms)
        if after is not None:
            after_ms = _durations(after, messages, "after", single=single, least_ms=0)
        additions = [self.addition(message) for message in messages]
        if expires is not None:
            lasts = _durations(expires, messages, "expires", single=single, least_ms=1)
            for addition, lasts_ms in zip(additions, lasts, strict=True):
                addition.fields.append((EXPIRES_FIELD, b"%d" % lasts_ms))
        replicas = None if wait is None else Replicas(wait, REPLICAS_TIMEOUT_MS)
        return Sending(additions, once, after_ms, replicas)

    def belongs_to(self, app: OpenApp) -> None:
        """Record that a consumer of ``app`` reads this stream or publishes results to it."""
        self._apps.add(app)

    @overload
    async def send(
        self, message: M, *, after: None = None, **options: Unpack[SendOptions]
    ) -> str: ...
    @overload
    async def send(
        self, message: M, *, after: str | timedelta, **options: Unpack[SendOptions]
    ) -> Scheduled: ...
    async def send(self, message: M, **options: Any) -> str | Scheduled:
        """Add one message to the stream and return its id.

        >>> import asyncio
        >>> from headwater import App
        >>> app, orders = App("headwater://memory"), Stream("orders", dict[str, int], codec="json")
        >>> async def main() -> None:
        ...     async with app:
        ...         first = await orders.send({"id": 17}, dedupe="order-17")
        ...         print(await orders.send({"id": 17}, dedupe="order-17") == first)
        ...         later = await orders.send({"id": 18}, after="10m")
        ...         print(await later.cancel())
        >>> asyncio.run(main())
        True
        True

        Needs an open app: ``async with app:``, or a running worker. If several apps are open, the one with a
        consumer that reads this stream or publishes results to it is used; call `App.send` to name one.

        ``after`` is the time after which the message is published, such as ``"10m"``, at most 366 days. Until then
        no group of the stream gets it. With ``after``, returns a `Scheduled` instead of an id. The message is
        published by any worker whose consumer reads this stream or publishes results to it: up to a second late,
        later if no such worker runs, and not in a fixed order. With ``dedupe``, a second message of that name is
        not scheduled. The other options are those of `SendOptions`.

        Raises `NotSent` if the store is unreachable or refuses writes for more than four seconds;
        `OutcomeUnknown` if the connection broke after the message was sent, when the store may have added
        it; `NotReplicated`, with the id, if the replicas do not confirm within five seconds; `EncodeError`
        for a message that the codec cannot write; `HeadwaterError` if no app, or more than one, could publish.

        Source: the command pages of XADD and WAIT.
        """
        sent: str | Scheduled = await self._app().send(self, message, **options)
        return sent

    @overload
    async def send_many(
        self, messages: Iterable[M], *, after: None = None, **options: Unpack[ManyOptions[M]]
    ) -> list[str]: ...
    @overload
    async def send_many(
        self, messages: Iterable[M], *, after: Durations, **options: Unpack[ManyOptions[M]]
    ) -> list[Scheduled]: ...
    async def send_many(self, messages: Iterable[M], **options: Any) -> list[str] | list[Scheduled]:
        """Add messages in order, with few round trips, and return their ids.

        >>> import asyncio
        >>> from headwater import App
        >>> app, orders = App("headwater://memory"), Stream("orders", dict[str, int], codec="json")
        >>> async def main() -> None:
        ...     async with app:
        ...         name = lambda order: f"order-{order['id']}"
        ...         ids = await orders.send_many([{"id": 1}, {"id": 2}, {"id": 1}], dedupe=name)
        ...         print(ids[0] == ids[2] != ids[1])
        ...         later = await orders.send_many([{"id": 3}, {"id": 4}], after=["10m", "20m"])
        ...         print(later[1].due > later[0].due)
        >>> asyncio.run(main())
        True
        True

        ``after`` is a duration for all messages, a sequence with a duration for each, or a function of the message;
        with it, returns a `Scheduled` for each message. The other options are those of `ManyOptions`.

        Raises what `Stream.send` raises. After `NotSent`, `OutcomeUnknown` and `NotReplicated`, ``error.added``
        has the ids of the messages that were added. The call is not a transaction.
        """
        sent: list[str] | list[Scheduled] = await self._app().send_many(self, messages, **options)
        return sent

    @overload
    def publish(self, message: M, *, after: None = None, **options: Unpack[SendOptions]) -> str: ...
    @overload
    def publish(
        self, message: M, *, after: str | timedelta, **options: Unpack[SendOptions]
    ) -> Scheduled: ...
    def publish(self, message: M, **options: Any) -> str | Scheduled:
        """Do the same as `Stream.send`, for code without an event loop: a script, a thread, a handler that is
        not ``async``. Needs ``with app:`` or a running worker.

        >>> from headwater import App
        >>> orders = Stream("orders", dict[str, int], codec="json")
        >>> with App("headwater://memory") as app:
        ...     entry_id = orders.publish({"id": 17})

        Raises `HeadwaterError` in a thread that runs an event loop, which it would block.
        """
        sent: str | Scheduled = self._app().publish(self, message, **options)
        return sent

    @overload
    def publish_many(
        self, messages: Iterable[M], *, after: None = None, **options: Unpack[ManyOptions[M]]
    ) -> list[str]: ...
    @overload
    def publish_many(
        self, messages: Iterable[M], *, after: Durations, **options: Unpack[ManyOptions[M]]
    ) -> list[Scheduled]: ...
    def publish_many(self, messages: Iterable[M], **options: Any) -> list[str] | list[Scheduled]:
        """Do the same as `Stream.send_many`, for code without an event loop."""
        sent: list[str] | list[Scheduled] = self._app().publish_many(self, messages, **options)
        return sent

    async def cancel(self, scheduled_id: str) -> bool:
        """Cancel the scheduled message with this id (`Scheduled.id`) and return whether it was still
        scheduled.

        Returns False if the message was already published or cancelled. Raises `NotSent` if the store is
        unreachable, `OutcomeUnknown` if the connection broke before the reply, and `HeadwaterError` for a stream
        with partitions: use `Scheduled.cancel`, or name the partition (``orders.parts[3]``).
        """
        return await self._app().cancel(self, scheduled_id)

    def cancel_blocking(self, scheduled_id: str) -> bool:
        """Do the same as `Stream.cancel`, for code without an event loop."""
        return self._app().cancel_blocking(self, scheduled_id)

    def _app(self) -> OpenApp:
        """Return the app through which to publish: the open app with a consumer of this stream (`belongs_to`), or
        the only open app. If none is open, return the app with such a consumer. Raises `HeadwaterError` unless
        there is exactly one such app."""
        candidates = [app for app in open_apps() if app in self._apps] or open_apps()
        candidates = candidates or [*self._apps]
        if len(candidates) == 1:
            return candidates[0]
        if not candidates:
            raise HeadwaterError(
                f"no app is open to publish to {self.name!r}: use `async with app:` or `with app:`"
            )
        names = ", ".join(sorted(app.name for app in candidates))
        raise HeadwaterError(
            f"several apps could publish to {self.name!r} ({names}): use app.send(stream, …)"
        )


def _durations(
    given: Any, messages: Sequence[Any], option: str, *, single: bool, least_ms: int
) -> list[int]:
    """Return a duration for each message, in milliseconds. ``given`` may also be one duration for all."""
    alike = single or isinstance(given, str | timedelta)
    each = [given] * len(messages) if alike else _each(given, messages, option, "a duration")
    known = {one: milliseconds(one, what=option, least_ms=least_ms) for one in set(each)}
    return [known[one] for one in each]


def _each(given: Any, messages: Sequence[Any], option: str, what: str) -> list[Any]:
    """Return a value for each message. ``given`` is a function of the message, or a sequence of values."""
    if callable(given):
        return [given(message) for message in messages]
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        raise HeadwaterError(
            f"{option}={given!r} for several messages must be a function of the message, or a sequence with "
            f"{what} for each, as in {option}=lambda order: …"
        )
    if len(given) != len(messages):
        raise HeadwaterError(
            f"{option}= has {len(given)} values for {len(messages)} messages: it needs {what} for each"
        )
    return list(given)


def is_name(name: object) -> bool:
    """Return whether ``name`` is text that is not empty and that can be sent to the store (`bytes_of`)."""
    try:
        return isinstance(name, str) and bytes_of(name) != b""
    except UnicodeEncodeError:
        return False


def _check(name: object, maxlen: object) -> None:
    if not is_name(name):
        raise DeclarationError(f"a stream needs a name, not {name!r}")
    if maxlen is not None and not (type(maxlen) is int and 1 <= maxlen < 2**63):
        raise DeclarationError(f"stream {name!r}: maxlen={maxlen!r} must be an integer, at least 1")


# --- partitions -----------------------------------------------------------------------------------
#
#     orders ──key──▶ orders.{0}, orders.{1}, …, orders.{7}
#
# A key's partition depends only on the key and the number of partitions: not on the process, the version of Python, or
# the client. The partition's number is the hash tag of its name, so partition 3 of one stream and partition 3 of
# another are in the same slot of a cluster, with all their related keys.


MOST = 1_024


def partition_name(stream: str, number: int) -> str:
    """Return the name of a partition's stream.

    >>> partition_name("orders", 3)
    'orders.{3}'
    """
    return f"{stream}.{{{number}}}"


def partition_of(key: object, partitions: int) -> int:
    """Return the number of the key's partition: CRC-32 of its text in UTF-8, modulo ``partitions``.

    Raises `EncodeError` if the key is not a string, bytes or an integer, as other types may change their text.

    >>> partition_of("ann", 8), partition_of(17, 8), partition_of("17", 8)
    (3, 2, 2)
    """
    if isinstance(key, bool) or not isinstance(key, str | bytes | int):
        raise EncodeError(
            f"key {key!r:.100} of type {type(key).__name__} cannot choose a partition: it must be a "
            "string, bytes or a whole number"
        )
    data = key if isinstance(key, bytes) else str(key).encode("utf-8", "surrogatepass")
    return crc32(data) % partitions


def check_partitions(stream: str, partitions: object, key: object) -> None:
    """Raise `DeclarationError` for an invalid number of partitions, a missing key, or an unsuitable name."""
    if partitions is None:
        if key is not None:
            raise DeclarationError(
                f"stream {stream!r}: key= chooses a partition, but the stream has none: add partitions="
            )
        return
    if not isinstance(partitions, int) or isinstance(partitions, bool):
        raise DeclarationError(f"stream {stream!r}: partitions={partitions!r} must be an integer")
    if not 1 <= partitions <= MOST:
        raise DeclarationError(
            f"stream {stream!r}: partitions={partitions} must be from 1 to {MOST}"
        )
    if not callable(key):
        raise DeclarationError(
            f"stream {stream!r}: partitions={partitions} needs key=, a function of the message that "
            "chooses its partition, as in `lambda order: order.customer_id`"
        )
    if "{" in stream:
        raise DeclarationError(
            f"stream {stream!r} has a hash tag in its name, which would decide the slot of all its "
            "partitions: use a name without braces"
        )
