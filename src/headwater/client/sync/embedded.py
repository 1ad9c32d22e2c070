"""redis-py's connection to an embedded store: a socket without a network.

    redis.Redis ─ EmbeddedPool ─ EmbeddedConnection ─ EmbeddedSocket ─ EmbeddedStore ─ Node
                                                      sendall: runs the turn
                                                      recv:    takes delivered output, or waits

Rule 1. `EmbeddedSocket` behaves as redis-py expects of a socket: timeouts, partial reads, end of
        stream as ``b""``. It has no file descriptor. `EmbeddedConnection` overrides the methods in
        which redis-py would use one.
Rule 2. One thread at a time reads a socket. Any thread may deliver to it, and close it.
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Sequence
from math import inf
from typing import Any, NoReturn

from redis.connection import ConnectionPool
from redis.exceptions import ConnectionError as RedisConnectionError

from headwater.client.embedded_transport import (
    EmbeddedTransport,
    PoolOfStore,
    connection_options,
)
from headwater.client.handles import StoreHandle
from headwater.client.reentrancy import REENTRANCY_GUARD
from headwater.client.sync.guarded import GuardedConnection


class EmbeddedSocket(EmbeddedTransport):
    """The methods of a connected socket that `redis.connection` calls."""

    def __init__(self, handle: StoreHandle, timeout: float | None) -> None:
        self._reading = memoryview(b"")
        self._timeout = timeout
        self._condition = threading.Condition(handle.store.node.lock)
        self._waits = False
        super().__init__(handle)

    def wake(self) -> None:
        """Wake the waiting thread, if any. Called under the node's lock."""
        if self._waits:
            self._condition.notify_all()

    _notify = wake

    # --- called by redis-py ---------------------------------------------------------------------

    def sendall(self, data: bytes | Sequence[bytes]) -> None:
        """Run the requests in ``data``, one chunk or several, in this thread."""
        chunks = (data,) if isinstance(data, bytes | bytearray | memoryview) else data
        self._send(chunks)

    def recv(self, size: int, flags: int = 0) -> bytes:
        """Return at most ``size`` bytes; empty at the end of the stream."""
        assert not flags, "redis-py passes flags only for a socket with a file descriptor"
        if not self._await_input(self._timeout):
            self._time_out()
        taken = bytes(self._reading[:size])
        self._reading = self._reading[len(taken) :]
        return taken

    def recv_into(self, buffer: bytearray | memoryview) -> int:
        """Copy available bytes to ``buffer`` and return their number; 0 at the end of the stream."""
        if not self._await_input(self._timeout):
            self._time_out()
        count = min(len(buffer), len(self._reading))
        buffer[:count] = self._reading[:count]
        self._reading = self._reading[count:]
        return count

    def readable(self, timeout: float | None) -> bool:
        """Return whether input arrives within ``timeout`` seconds.

        Raises `ConnectionResetError` at the end of the stream.
        """
        if not self._await_input(timeout):
            return False
        if not self._reading:
            raise ConnectionResetError(errno.ECONNRESET, "the store has closed this connection")
        return True

    def settimeout(self, timeout: float | None) -> None:
        self._timeout = timeout

    def gettimeout(self) -> float | None:
        return self._timeout

    def getpeername(self) -> str:
        return self._store.address

    def getsockname(self) -> str:
        return f"{self._store.address}#{self._session.id}"

    def shutdown(self, _how: int) -> None:
        self.close()

    # --- waiting --------------------------------------------------------------------------------

    def _await_input(self, timeout: float | None) -> bool:
        """Return whether input, or the end of the stream, arrives within ``timeout`` seconds."""
        if self._reading:
            return True
        if not self._arrived and not self._ended:
            if timeout == 0:
                return False
            self._wait(timeout)
        if self._arrived:
            self._reading = memoryview(self._take())
            return True
        return self._ended

    def _wait(self, timeout: float | None) -> None:
        until = inf if timeout is None else time.monotonic() + timeout
        store = self._store
        store.check_process()
        with REENTRANCY_GUARD, self._condition:
            self._waits = True
            try:
                store.sleep(self, self._condition, until, woken=self._has_input)
            finally:
                self._waits = False

    def _has_input(self) -> bool:
        return bool(self._arrived) or self._ended

    def _time_out(self) -> NoReturn:
        if self._timeout == 0:
            raise BlockingIOError(errno.EWOULDBLOCK, "nothing to read yet")
        raise TimeoutError(f"nothing to read within {self._timeout} seconds")


class EmbeddedConnection(GuardedConnection):
    """A connection of redis-py to an embedded store."""

    def __init__(self, *, handle: StoreHandle, **kwargs: Any) -> None:
        self._handle = handle
        self._address = handle.store.address
        self.port = 0
        super().__init__(**connection_options(kwargs))

    @property
    def host(self) -> str:
        """The store's address, instead of a server's host."""
        return self._address

    @host.setter
    def host(self, value: str) -> None:
        self._address = value

    def repr_pieces(self) -> list[tuple[str, Any]]:
        return [("store", self._address), ("db", self.db)]

    def _connect(self) -> Any:
        return EmbeddedSocket(self._handle, self.socket_timeout)

    def _host_error(self) -> str:
        return self._address

    def send_packed_command(self, command: Any, check_health: bool = True) -> None:  # noqa: FBT002
        # redis-py calls `sendall` once per item, so pass one item: a pipeline is one turn with one fsync.
        chunks = [command.encode()] if isinstance(command, str) else command
        super().send_packed_command([chunks], check_health)

    def can_read(self, timeout: float = 0) -> bool:
        """Return whether there is input to read. redis-py's method needs a file descriptor."""
        if self._sock is None:
            self.connect()
        parser: Any = self._parser
        if hasattr(parser, "_reader"):  # hiredis
            unread = parser._reader.has_data()  # noqa: SLF001 - there is no public way to ask
        else:
            unread = parser._buffer.unread_bytes()  # noqa: SLF001
        sock: Any = self._sock
        try:
            return bool(unread or sock.readable(timeout))
        except OSError as error:
            self.disconnect()
            raise RedisConnectionError(
                f"Error while reading from {self._address}: {error}"
            ) from None


class EmbeddedPool(PoolOfStore, ConnectionPool):
    """A pool of connections to an embedded store, for threads."""

    connections = EmbeddedConnection

    def close(self) -> None:
        """Close every connection, and the store if this was its last client."""
        try:
            super().close()
        finally:
            self.handle.close()
