"""A client's socket and the output that waits to be sent."""

from __future__ import annotations

import socket
from collections import deque

from headwater.server.session.session import Session

try:
    import cython
except ImportError:
    from headwater import _cython as cython

if not cython.compiled:  # compiled modules use the C versions
    from headwater.server.net.transfers import receive_some, send_some

CHUNKS_PER_SEND = 64
"""Maximum number of buffers that one system call sends."""

_HELLO = b"\x16\x03"
"""The first bytes of a TLS handshake. No request begins with them."""

NO_TLS = b"-ERR this port does not speak TLS; connect without TLS, or to the port of tls-port\r\n"


class ConnectionRejected(Exception):
    """A client cannot be served, and was told so. The message is the reason for the log."""


class Connection:
    """A client's socket, its session and its unsent output."""

    def __init__(self, client: socket.socket, session: Session) -> None:
        self.socket = client
        self.descriptor = client.fileno()
        self.session = session
        self.chunks: deque[bytearray | memoryview] | None = None
        """Output that the socket has not taken yet. None until the first such output, to save memory: most
        connections never have any."""
        self.ended = False
        """True if the client has ended its side of the connection. It still gets the replies to its requests."""
        self.closed = False
        """True if the connection is closed. Its descriptor may then be another client's."""
        self.handshaking = False
        """True until the TLS handshake is complete. Before that, no reply can be sent."""
        self.queued = False
        """True if the driver has queued this connection, to send its output or to close it."""
        self.writing = False
        """True if the loop waits until the socket accepts output."""
        self.unsent = 0
        """Number of bytes that the socket had not taken after the last attempt to send."""
        self.over_soft_since = 0.0
        self.received = 0
        self.sent = 0

    def receive(self, space: bytearray) -> int:
        """Read once into ``space``. Return the number of bytes, 0 at the end of input, -1 if none has
        arrived.

        Raises `ConnectionRejected` and `OSError`.
        """
        count = receive_some(self.socket, self.descriptor, space)
        if not self.received and count > 1 and space[0] == _HELLO[0] and space[1] == _HELLO[1]:
            try:
                self.socket.send(NO_TLS)
            except OSError:
                pass
            raise ConnectionRejected("a TLS handshake at a port without TLS")
        return count

    def send(self) -> int:
        """Send as much released output as the socket takes, and return the number of bytes. Raises
        `OSError`, but not if the socket is full."""
        total = 0
        if not self.chunks:
            total = self._send_released()
        self.queue_released()
        if self.chunks:
            total += self._send_chunks(self.chunks)
        self.sent += total
        return total

    def queue_released(self) -> None:
        """Append the output that was released since the last call to ``chunks``."""
        if self.session.output.released:
            self._append(self.session.output.take())

    def _append(self, chunk: bytearray | memoryview) -> None:
        if self.chunks is None:
            self.chunks = deque()
        self.chunks.append(chunk)

    def drop_output(self) -> None:
        """Discard the unsent output."""
        self.chunks = None

    def _send_released(self) -> int:
        """Send released output directly, and queue what the socket does not take."""
        released = self.session.output.released
        size = len(released)
        if not size:
            return 0
        count = send_some(self.socket, self.descriptor, released)
        if count == size:
            self.session.output.empty_released()
            self.unsent = 0
            return size
        rest = memoryview(self.session.output.take())
        count = max(0, count)
        self._append(rest[count:])
        self.unsent = size - count
        return count

    def _send_chunks(self, chunks: deque[bytearray | memoryview]) -> int:
        total = 0
        try:
            while chunks:
                if len(chunks) == 1:
                    count = self.socket.send(chunks[0])
                else:
                    count = self.socket.sendmsg(list(chunks)[:CHUNKS_PER_SEND])
                total += count
                _drop(chunks, count)
        except (BlockingIOError, InterruptedError):
            pass
        self.unsent = sum(map(len, chunks)) if chunks else 0
        return total

    def finish(self) -> None:
        """End the output. Raises `OSError`."""
        self.socket.shutdown(socket.SHUT_WR)

    def discard_input(self, space: bytearray) -> None:
        """Discard the input that has already arrived; ``space`` is the buffer. Closing a socket
        with unread input resets the connection; a reset can overtake the last reply, which often states the
        reason."""
        try:
            for _ in range(16):
                if self.socket.recv_into(space) == 0:
                    return
        except OSError:
            return


def _drop(chunks: deque[bytearray | memoryview], count: int) -> None:
    """Remove ``count`` sent bytes from the front."""
    while count:
        first = chunks[0]
        if count < len(first):
            chunks[0] = memoryview(first)[count:]
            return
        count -= len(first)
        chunks.popleft()
