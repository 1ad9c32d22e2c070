"""A stream as a program declares it: one typed contract for those who write and those who read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Generic, TypeVar

from headwater.errors import DeclarationError, HeadwaterError
from headwater.groups.settling import Addition
from headwater.messages import codec_for

if TYPE_CHECKING:
    from headwater.worker.app import App

M = TypeVar("M")


class Stream(Generic[M]):
    """A stream of messages of one type.

    ``type`` is a msgspec Struct, a dataclass, a TypedDict or a pydantic model; ``codec`` says how
    it is written ("fields" or "json", see `headwater.messages`). With ``maxlen`` every addition
    trims the stream to about so many entries, handled or not.

    >>> import msgspec
    >>> class Order(msgspec.Struct):
    ...     id: int
    >>> orders = Stream("orders", Order, maxlen=1_000_000)
    >>> orders
    Stream('orders', Order, codec='fields', maxlen=1000000)
    """

    def __init__(
        self, name: str, type: type[M], *, codec: str = "fields", maxlen: int | None = None
    ) -> None:
        _check(name, maxlen)
        self.name = name
        self.type = type
        self.maxlen = maxlen
        self.codec = codec_for(type, codec)
        self._apps: list[App] = []

    def __repr__(self) -> str:
        named = getattr(self.type, "__name__", str(self.type))
        trimmed = "" if self.maxlen is None else f", maxlen={self.maxlen}"
        return f"Stream({self.name!r}, {named}, codec={self.codec.name!r}{trimmed})"

    def addition(self, message: M) -> Addition:
        """What adding ``message`` to the stream means; `EncodeError` if it cannot be written."""
        return Addition(self.name, self.codec.encode(message), self.maxlen)

    def belongs_to(self, app: App) -> None:
        """``app`` declares a consumer of this stream, or one whose results go into it."""
        if app not in self._apps:
            self._apps.append(app)

    async def send(self, message: M) -> str:
        """Add one message; its id. Needs an open app: ``async with app:``, or a running worker.

        Raises `NotSent` when the store stays away for more than four seconds, and `OutcomeUnknown`
        when the connection broke after the message was sent: the store may have added it, and
        nothing is sent twice by itself.
        """
        return (await self._app().send_many(self, [message]))[0]

    async def send_many(self, messages: Iterable[M]) -> list[str]:
        """Add messages in order, together; their ids."""
        return await self._app().send_many(self, messages)

    def publish(self, message: M) -> str:
        """As `send`, from code that runs no event loop: a script, a thread, a sync handler."""
        return self.publish_many([message])[0]

    def publish_many(self, messages: Iterable[M]) -> list[str]:
        """As `send_many`, from code that runs no event loop."""
        return self._app().publish_many(self, messages)

    def _app(self) -> App:
        """The app through which to publish: this stream's, or the only one that is open."""
        from headwater.worker.app import open_apps

        candidates = [app for app in open_apps() if app in self._apps] or open_apps()
        candidates = candidates or self._apps
        if len(candidates) == 1:
            return candidates[0]
        if not candidates:
            raise HeadwaterError(
                f"no app is open to add to {self.name!r} through: `async with app:` or `with app:`"
            )
        names = ", ".join(app.name for app in candidates)
        raise HeadwaterError(
            f"several apps could add to {self.name!r} ({names}): say which, app.send(stream, …)"
        )


def _check(name: object, maxlen: object) -> None:
    if not isinstance(name, str) or not name:
        raise DeclarationError(f"a stream needs a name, not {name!r}")
    if maxlen is not None and not (isinstance(maxlen, int) and maxlen >= 1):
        raise DeclarationError(f"stream {name!r}: maxlen={maxlen!r} must be a number from 1 on")
