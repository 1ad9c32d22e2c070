"""A client's socket and its output in line."""

from __future__ import annotations

import socket
from collections import deque
from typing import TYPE_CHECKING

from headwater.server.session.session import Session

if TYPE_CHECKING:
    from headwater import _cython as cython
else:
    try:
        import cython
    except ImportError:
        from headwater import _cython as cython

if not cython.compiled:  # they have twins in C
    from headwater.server.net.transfers import receive_some, send_some

CHUNKS_PER_SEND = 64
"""Pieces of output that one system call is given."""

_HELLO = b"\x16\x03"
"""How whoever speaks TLS begins; no request does."""

NO_TLS = b"-ERR this port does not speak TLS; connect without it, or to the port of tls-port\r\n"


class TurnedAway(Exception):
    """This client cannot be served and was told so, as far as it can understand; says why."""


class Connection:
    """One client's socket, its session and what is to be sent to it."""

    def __init__(self, client: socket.socket, session: Session) -> None:
        self.socket = client
        self.descriptor = client.fileno()
        self.session = session
        self.chunks: deque[bytearray | memoryview] | None = None
        """Released output that the socket has not taken yet; None while there was never any, as
        with most of ten thousand connections."""
        self.ended = False
        """The client sends no more; it still gets what it has asked for."""
        self.closed = False
        """It is over, and its descriptor may be another client's by now."""
        self.handshaking = False
        """Nothing can be said yet in a way that both sides understand (TLS)."""
        self.in_line = False
        """Whether the loop knows that there is something to send or to close."""
        self.writing = False
        """Whether the loop is told when the socket takes more."""
        self.unsent = 0
        """Bytes in ``chunks`` after the last attempt to send."""
        self.over_soft_since = 0.0
        self.received = 0
        self.sent = 0

    def receive(self, space: bytearray) -> int:
        """Read once: the number of bytes now in ``space``, 0 at the end, -1 when there are none.

        Raises `TurnedAway` and `OSError`.
        """
        count = receive_some(self.socket, self.descriptor, space)
        if not self.received and count > 1 and space[0] == _HELLO[0] and space[1] == _HELLO[1]:
            try:
                self.socket.send(NO_TLS)
            except OSError:
                pass
            raise TurnedAway("TLS at a port without it")
        return count

    def send(self) -> int:
        """Give the socket what it takes of what was released, and return how much that was. Raises
        `OSError`, but not for a socket that takes no more now."""
        total = 0
        if not self.chunks:
            total = self._send_released()
        self.put_in_line()
        if self.chunks:
            total += self._send_chunks(self.chunks)
        self.sent += total
        return total

    def put_in_line(self) -> None:
        """Whatever was released since the last time stands behind what the socket has not taken."""
        if self.session.output.released:
            self._append(self.session.output.take())

    def _append(self, chunk: bytearray | memoryview) -> None:
        if self.chunks is None:
            self.chunks = deque()
        self.chunks.append(chunk)

    def drop_output(self) -> None:
        """Forget what is in line."""
        self.chunks = None

    def _send_released(self) -> int:
        """Send what was released without a detour; what the socket does not take is put in line."""
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
        """The client has its last byte. Raises `OSError`."""
        self.socket.shutdown(socket.SHUT_WR)

    def discard_input(self, space: bytearray) -> None:
        """Read what has arrived already, into ``space``: closing over unread input resets the
        connection, and the reset can overtake the last reply, which often explains the closing."""
        try:
            for _ in range(16):
                if self.socket.recv_into(space) == 0:
                    return
        except OSError:
            return


def _drop(chunks: deque[bytearray | memoryview], count: int) -> None:
    """Take ``count`` sent bytes off the front."""
    while count:
        first = chunks[0]
        if count < len(first):
            chunks[0] = memoryview(first)[count:]
            return
        count -= len(first)
        chunks.popleft()
