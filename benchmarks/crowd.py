"""The clients of benchmarks.connections: many connections used together, and one that sends commands singly."""

from __future__ import annotations

import re
import select
import socket
import time
from collections.abc import Callable
from itertools import islice
from typing import Final

from headwater.testing.node import request

SECONDS: Final = 60.0
"""How long a client waits for a reply before it counts as not served."""


class Crowd:
    """Many connections to one server, used together."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.sockets: dict[int, socket.socket] = {}
        self.epoll = select.epoll()

    def connect(self, count: int) -> None:
        """Open ``count`` connections."""
        for _ in range(count):
            one = socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS)
            one.setblocking(False)
            self.sockets[one.fileno()] = one
            self.epoll.register(one.fileno(), select.EPOLLIN)

    def ask(self, asked: Callable[[int], bytes], count: int) -> None:
        """Send a request on each of the first ``count`` connections. ``asked`` returns the request of a
        connection, by its number."""
        for number, one in enumerate(islice(self.sockets.values(), count)):
            one.sendall(asked(number))

    def answers(
        self, whole: Callable[[bytes], bool], count: int
    ) -> tuple[dict[int, bytes], list[float]]:
        """Wait for ``count`` complete replies, at most `SECONDS`.

        Returns the replies by descriptor, and the monotonic times at which they were complete, in order;
        fewer than ``count`` if some clients were not served. ``whole`` tells whether a reply is complete.
        """
        found: dict[int, bytes] = {}
        parts: dict[int, bytes] = {}
        times: list[float] = []
        deadline = time.monotonic() + SECONDS
        while len(found) < count and time.monotonic() < deadline:
            for descriptor, _ in self.epoll.poll(1.0, 1024):
                received = self.sockets[descriptor].recv(4096)
                if not received:  # closed by the server: not served
                    self.epoll.unregister(descriptor)
                answer = parts.pop(descriptor, b"") + received
                if whole(answer):
                    found[descriptor] = answer
                    times.append(time.monotonic())
                else:
                    parts[descriptor] = answer
        return found, times

    def close(self) -> None:
        """Close all connections with a reset, so that no port stays in TIME_WAIT."""
        for one in self.sockets.values():
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            one.close()
        self.epoll.close()


class Control:
    """A client that sends one command at a time."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
        self.file = self.socket.makefile("rb")

    def ask(self, *words: str | int) -> bytes:
        """Send a command. Return the first line of the reply, or the content of a bulk string, which must not
        be null; either with its CRLF."""
        self.socket.sendall(request(words))
        line: bytes = self.file.readline()
        return self.file.read(int(line[1:]) + 2) if line[:1] == b"$" else line

    def number(self, section: str, name: str) -> int:
        """Return the number ``name`` from this section of INFO."""
        found = re.search(rb"%b:(\d+)" % name.encode(), self.ask("INFO", section))
        assert found is not None, f"INFO {section} has no {name}"
        return int(found[1])

    def close(self) -> None:
        """Close the connection."""
        self.file.close()
        self.socket.close()
