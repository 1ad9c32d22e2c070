"""A client's socket and its output in line."""

from __future__ import annotations

import socket
from collections import deque

from headwater.server.session import Session

CHUNKS_PER_SEND = 64
"""Pieces of output that one system call is given."""

_HELLO = b"\x16\x03"
"""How whoever speaks TLS begins; no request does."""

NO_TLS = b"-ERR this port does not speak TLS; connect without it, or to the port of tls-port\r\n"


class TurnedAway(Exception):
    """This client cannot be served and was told so, as far as it can understand; says why."""


class Connection:
    """One client's socket, its session and what is to be sent to it."""

    __slots__ = (
        "chunks",
        "descriptor",
        "ended",
        "handshaking",
        "in_line",
        "over_soft_since",
        "received",
        "sent",
        "session",
        "socket",
        "unsent",
        "writing",
    )

    def __init__(self, client: socket.socket, session: Session) -> None:
        self.socket = client
        self.descriptor = client.fileno()
        self.session = session
        self.chunks: deque[bytearray | memoryview] = deque()
        """Released output that no socket has taken yet."""
        self.ended = False
        """The client sends no more; it still gets what it has asked for."""
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

    def receive(self, space: memoryview) -> int:
        """Read once: the number of bytes now in ``space``, 0 at the end.

        Raises `BlockingIOError` when there is none, `TurnedAway`, `OSError`.
        """
        count = self.socket.recv_into(space)
        if not self.received and count > 1 and space[:2] == _HELLO:
            try:
                self.socket.send(NO_TLS)
            except OSError:
                pass
            raise TurnedAway("TLS at a port without it")
        return count

    def send(self) -> int:
        """Give the socket what it takes, and return how much that was. Raises `OSError`, but for a
        socket that takes no more now."""
        chunks, total = self.chunks, 0
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
        self.sent += total
        self.unsent = sum(map(len, chunks)) if chunks else 0
        return total

    def finish(self) -> None:
        """The client has its last byte. Raises `OSError`."""
        self.socket.shutdown(socket.SHUT_WR)

    def discard_input(self, space: memoryview) -> None:
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
