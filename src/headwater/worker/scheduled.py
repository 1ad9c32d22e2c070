"""What ``send(..., after=)`` returns: a message that is published later and can be cancelled until then."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime


class Scheduled:
    """A scheduled message. Its ``id`` is enough to cancel it from elsewhere: `Stream.cancel`."""

    __slots__ = ("_cancel", "_cancel_blocking", "due", "id", "stream")

    def __init__(
        self,
        stream: str,
        id: str,
        *,
        due_ms: int,
        cancel: Callable[[str], Awaitable[bool]],
        cancel_blocking: Callable[[str], bool],
    ) -> None:
        self._cancel = cancel
        self._cancel_blocking = cancel_blocking
        self.stream = stream
        """The name of the stream that it is published to."""
        self.id = id
        """Its id among the scheduled messages. In the stream it gets another one."""
        self.due = datetime.fromtimestamp(due_ms / 1000, UTC)
        """When it is published, in UTC, by the clock of the store."""

    def __repr__(self) -> str:
        return f"<Scheduled {self.id} to {self.stream}, due {self.due.isoformat()}>"

    async def cancel(self) -> bool:
        """Take the message back. False when it was published, or cancelled before."""
        return await self._cancel(self.id)

    def cancel_blocking(self) -> bool:
        """As `cancel`, from code that runs no event loop."""
        return self._cancel_blocking(self.id)
