"""The client's end of an embedded session, shared by `sync.embedded` and `aio.embedded`.

    EmbeddedConnection ─ EmbeddedTransport ─ EmbeddedStore ─ Node
                         _send:   runs the turn
                         deliver: takes the output, in the thread that runs a turn

Rule 1. A turn runs in the thread that sends. The replies are delivered before the turn ends.
Rule 2. Delivered output counts towards `client-output-buffer-limit` until the client reads it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from redis.maint_notifications import MaintNotificationsConfig

from headwater.client.handles import StoreHandle
from headwater.common.limits import MAX_CLIENTS
from headwater.server.session.session import Session

READ_BYTES = 64 * 1024
"""Size of redis-py's read buffer, in bytes. It is large because reads copy memory, and receive no packets."""


class PoolOfStore:
    """The base class of both pools of connections to an embedded store. Closing the pool closes its handle on the
    store."""

    connections: type[Any]

    def __init__(self, *, handle: StoreHandle, **kwargs: Any) -> None:
        self.handle = handle
        given = pool_options(kwargs)
        super().__init__(connection_class=self.connections, handle=handle, **given)  # type: ignore[call-arg]

    def __del__(self) -> None:
        with suppress(Exception):
            super().__del__()  # type: ignore[misc]  # a redis-py class follows
        with suppress(Exception):
            self.handle.close()


class EmbeddedTransport(ABC):
    """Sends to a session and queues its output. Subclasses wait for the output, or feed a reader."""

    def __init__(self, handle: StoreHandle) -> None:
        self._store = handle.store
        self._arrived: deque[bytearray] = deque()
        self._ended = False
        self._session = handle.connect(self)

    def deliver(self, session: Session) -> None:
        """Take the session's output. Called under the node's lock, in any thread."""
        output = session.output.take()
        if output:
            self._arrived.append(output)
            self._notify()

    def end(self) -> None:
        """End the stream, after the output delivered so far. Called under the node's lock."""
        self._ended = True
        self._notify()

    @abstractmethod
    def _notify(self) -> None:
        """Report that output, or the end, can be read. Called under the node's lock, in any thread."""

    def _send(self, chunks: Iterable[bytes | bytearray | memoryview]) -> None:
        """Run the requests in ``chunks`` in this thread (`EmbeddedStore.exchange`)."""
        self._store.exchange(self._session, chunks)

    def _take(self) -> bytearray:
        """Remove and return the oldest output that was delivered and not yet read."""
        chunk = self._arrived.popleft()
        self._session.output.taken_bytes += len(chunk)
        return chunk

    def close(self) -> None:
        """End the session, including its blocked command, watched keys and queued commands."""
        self._store.retire(self._session)

    def __del__(self) -> None:
        with suppress(AttributeError):  # `__init__` failed before the session was made
            self._store.retire(self._session)


def connection_options(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a connection to an embedded store. Those in ``given`` take precedence."""
    return {"socket_timeout": None, "socket_read_size": READ_BYTES, **given}


def pool_options(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a pool of such connections. Those in ``given`` take precedence."""
    return {
        "max_connections": MAX_CLIENTS,
        "maint_notifications_config": MaintNotificationsConfig(enabled=False),
        **given,
    }
