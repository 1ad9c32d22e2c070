"""Adding messages to streams, with or without an event loop, with or without a worker.

Rule. An addition that was sent is never sent again by itself: when the connection breaks under it,
nobody knows whether it was made, and the caller is told so.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headwater.errors import Disconnected
from headwater.groups.operation import Command, Operation, Refused, perform, run
from headwater.groups.settling import Addition
from headwater.worker.connections import Connections, lost_connection, shown_url

if TYPE_CHECKING:
    import redis
    import redis.asyncio

CHUNK = 1_000
"""Messages sent before their replies are read."""


def add_all(additions: Sequence[Addition]) -> Operation[list[str]]:
    """Add entries in order; their ids. Raises the first refusal, after its chunk was sent."""
    added: list[str] = []
    for first in range(0, len(additions), CHUNK):
        commands: list[Command] = [
            ["XADD", one.stream, *one.words()] for one in additions[first : first + CHUNK]
        ]
        replies = yield commands
        for reply in replies:
            if isinstance(reply, Refused):
                raise Refused(
                    f"{reply} ({len(added)} of {len(additions)} messages were added before it)",
                    reply.code,
                )
            added.append(reply.decode())
    return added


class Publisher:
    """An app's connections for publishing, each made when it is first needed."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._lock = threading.Lock()
        self._synchronous: redis.Redis | None = None
        self._asynchronous: redis.asyncio.Redis | None = None

    async def send(self, additions: Sequence[Addition]) -> list[str]:
        """Add from a coroutine."""
        if not additions:
            return []
        if self._asynchronous is None:
            self._asynchronous = self._connections.asynchronous()
        try:
            return await perform(self._asynchronous, add_all(additions))
        except lost_connection() as error:
            raise self._unknown(additions, error) from error

    def publish(self, additions: Sequence[Addition]) -> list[str]:
        """Add from code without an event loop; safe among threads."""
        if not additions:
            return []
        with self._lock:
            if self._synchronous is None:
                self._synchronous = self._connections.synchronous()
        try:
            return run(self._synchronous, add_all(additions))
        except lost_connection() as error:
            raise self._unknown(additions, error) from error

    def _unknown(self, additions: Sequence[Addition], error: Exception) -> Disconnected:
        return Disconnected(
            f"{shown_url(self._connections.url)} went away while {len(additions)} messages were "
            f"being added to {additions[0].stream!r}; nobody knows how many were added, so none is "
            f"sent again by itself: {error}"
        )

    async def close(self) -> None:
        """Close both."""
        if self._asynchronous is not None:
            client, self._asynchronous = self._asynchronous, None
            await client.aclose()
        self.close_synchronous()

    def close_synchronous(self) -> None:
        with self._lock:
            client, self._synchronous = self._synchronous, None
        if client is not None:
            client.close()
