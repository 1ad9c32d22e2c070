"""`Scheduled`, the result of ``send(…, after=)``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime


class Scheduled:
    """A message that will be published later. `Stream.send` with ``after=`` returns it.

    `Stream.cancel` cancels it by its ``id``, even from another process.
    """

    __slots__ = ("_cancel", "_cancel_blocking", "_due_ms", "id", "stream")

    def __init__(
        self,
        stream: str,
        id: str,
        due_ms: int,
        *,
        cancel: Callable[[str, str], Awaitable[bool]],
        cancel_blocking: Callable[[str, str], bool],
    ) -> None:
        self._cancel = cancel
        self._cancel_blocking = cancel_blocking
        self.stream = stream
        """The name of the stream to which the message will be published."""
        self.id = id
        """The id of the scheduled message. Once published, the message has another id in the stream."""
        self._due_ms = due_ms

    @property
    def due(self) -> datetime:
        """Due time of the message: a datetime in UTC, by the clock of the store."""
        return datetime.fromtimestamp(self._due_ms / 1000, UTC)

    def __repr__(self) -> str:
        return f"<Scheduled {self.id} to {self.stream}, due {self.due.isoformat()}>"

    async def cancel(self) -> bool:
        """Cancel the message and return whether it was still scheduled.

        Returns False if the message was already published or cancelled. Raises what `Stream.cancel` raises.
        """
        return await self._cancel(self.stream, self.id)

    def cancel_blocking(self) -> bool:
        """Do the same as `Scheduled.cancel`, for code without an event loop."""
        return self._cancel_blocking(self.stream, self.id)
