"""Sends raw bytes to a server and reads raw replies, for tests that compare the exact protocol."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from headwater.resp.arguments import Arguments
from headwater.testing.server import ServerThread

Start = Callable[..., ServerThread]
"""The type of the fixture ``start``: starts a server with the given settings."""

SECONDS = 20.0
"""How long a test waits for a reply."""


def encode(*words: str | bytes) -> bytes:
    """Encode a request."""
    values = [word.encode() if isinstance(word, str) else word for word in words]
    return bytes(Arguments.of(*values).buffer)


def exchange(port: int, data: bytes | Iterable[bytes]) -> bytes:
    """Send these bytes, end the output, and return everything that the server sends."""
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as client:
        answer = b""
        try:
            for piece in [data] if isinstance(data, bytes) else data:
                client.sendall(piece)
            client.shutdown(socket.SHUT_WR)
            while received := client.recv(1 << 20):
                answer += received
        except ConnectionError:
            pass  # The server closed the connection with unread input.
        return answer


@contextmanager
def passing_time(server: ServerThread) -> Iterator[None]:
    """Advance a server's `ManualClock` all the time, so that timeouts pass quickly."""
    over = threading.Event()

    def advance() -> None:
        while not over.is_set():
            server.advance(1.0)

    thread = threading.Thread(target=advance, name="passing-time")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class Wire:
    """A connection that reads one whole reply at a time."""

    def __init__(self, client: socket.socket) -> None:
        self.socket = client
        self.file = client.makefile("rb")

    def send(self, *words: str | bytes) -> None:
        """Send a request, whose reply is read later."""
        self.socket.sendall(encode(*words))

    def ask(self, *words: str | bytes) -> bytes:
        """Send a request and return the raw reply."""
        self.socket.sendall(encode(*words))
        return self.reply()

    def reply(self) -> bytes:
        """Read one whole reply, raw; empty at the end of the connection."""
        line = self.file.readline()
        if not line:
            return b""
        kind, rest = line[:1], line[1:-2]
        if kind in b"$=" and rest != b"-1":
            return line + self.file.read(int(rest) + 2)
        if kind in b"*~>" and rest != b"-1":
            return line + b"".join(self.reply() for _ in range(int(rest)))
        if kind == b"%":
            return line + b"".join(self.reply() for _ in range(2 * int(rest)))
        return line


@contextmanager
def connected(port: int, *, resp: int = 2) -> Iterator[Wire]:
    """Connect to a server on 127.0.0.1."""
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as client:
        wire = Wire(client)
        if resp == 3:
            assert wire.ask("HELLO", "3").startswith(b"%")
        with wire.file:
            yield wire


def value_of(server: ServerThread, name: str) -> str:
    """Return a field of INFO."""
    with connected(server.port) as wire:
        lines = wire.ask("INFO").decode().split("\r\n")
    return next(line.partition(":")[2] for line in lines if line.startswith(f"{name}:"))
