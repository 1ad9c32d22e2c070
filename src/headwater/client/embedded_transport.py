"""The client's end of a session in this process: what `sync.embedded` and `aio.embedded` have in common.

    EmbeddedConnection ─ EmbeddedTransport ─ EmbeddedStore ─ Node
                         _send:   runs the turn
                         deliver: takes the output, in whichever thread runs a turn

Rule 1. A turn runs in the thread that sends; its replies have been delivered when it is over.
Rule 2. What was delivered counts as not taken until the client reads it
        (`client-output-buffer-limit`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from redis.maint_notifications import MaintNotificationsConfig

from headwater.client.handles import StoreHandle
from headwater.limits import MAX_CLIENTS
from headwater.server.session.session import Session

READ_BYTES = 64 * 1024
"""redis-py's read buffer: a copy of memory has no packet size to respect."""


class EmbeddedTransport(ABC):
    """What both drivers' transports do with a session. Its subclasses wait, or feed a reader."""

    def __init__(self, handle: StoreHandle) -> None:
        self._store = handle.store
        self._arrived: deque[bytearray] = deque()
        self._ended = False
        self._session = handle.connect(self)

    def deliver(self, session: Session) -> None:
        """Take the session's output; called under the node's lock, in any thread."""
        output = session.output.take()
        if output:
            self._arrived.append(output)
            self._notify()

    def end(self) -> None:
        """The end of the stream, behind what was delivered; called under the node's lock."""
        self._ended = True
        self._notify()

    @abstractmethod
    def _notify(self) -> None:
        """There is something to read, or the end; called under the node's lock, in any thread."""

    def _send(self, chunks: Iterable[bytes | bytearray | memoryview]) -> None:
        """Run the requests in ``chunks`` as one turn, in this thread."""
        self._store.exchange(self._session, chunks)

    def _take(self) -> bytearray:
        """The oldest output that was delivered and not taken."""
        chunk = self._arrived.popleft()
        self._session.output.taken_bytes += len(chunk)
        return chunk

    def close(self) -> None:
        """End the session: what it waited for, watched or queued is forgotten."""
        self._store.retire(self._session)

    def __del__(self) -> None:
        with suppress(AttributeError):  # the session was never made
            self._store.retire(self._session)


def connection_options(given: dict[str, Any]) -> dict[str, Any]:
    """The options of a connection into this process."""
    return {"socket_timeout": None, "socket_read_size": READ_BYTES, **given}


def pool_options(given: dict[str, Any]) -> dict[str, Any]:
    """The options of a pool of such connections."""
    return {
        "max_connections": MAX_CLIENTS,
        "maint_notifications_config": MaintNotificationsConfig(enabled=False),
        **given,
    }
