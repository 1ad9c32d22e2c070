"""Many connections to one server, asked and read as one, and one more beside them."""

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
"""How long the last of all clients may wait before it counts as not served."""


class Crowd:
    """Many connections to one server, asked and read as one."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.sockets: dict[int, socket.socket] = {}
        self.epoll = select.epoll()

    def come(self, count: int) -> None:
        """Connect so many; each asks once, as a client does when it comes."""
        for _ in range(count):
            one = socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS)
            one.setblocking(False)
            self.sockets[one.fileno()] = one
            self.epoll.register(one.fileno(), select.EPOLLIN)

    def ask(self, asked: Callable[[int], bytes], count: int) -> None:
        """Send requests on the first ``count``; ``asked`` makes one from the connection's number."""
        for number, one in enumerate(islice(self.sockets.values(), count)):
            one.sendall(asked(number))

    def answers(
        self, whole: Callable[[bytes], bool], count: int
    ) -> tuple[dict[int, bytes], list[float]]:
        """The answers of so many, and when each was whole, in order of time; who has none by then is
        left out. Monotonic seconds."""
        found: dict[int, bytes] = {}
        parts: dict[int, bytes] = {}
        times: list[float] = []
        deadline = time.monotonic() + SECONDS
        while len(found) < count and time.monotonic() < deadline:
            for descriptor, _ in self.epoll.poll(1.0, 1024):
                received = self.sockets[descriptor].recv(4096)
                if not received:  # hung up: it will not be among those who were served
                    self.epoll.unregister(descriptor)
                answer = parts.pop(descriptor, b"") + received
                if whole(answer):
                    found[descriptor] = answer
                    times.append(time.monotonic())
                else:
                    parts[descriptor] = answer
        return found, times

    def close(self) -> None:
        """Hang up at once: a reset leaves no port waiting."""
        for one in self.sockets.values():
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            one.close()
        self.epoll.close()


class Control:
    """One more client, which asks and waits."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
        self.file = self.socket.makefile("rb")

    def ask(self, *words: str | int) -> bytes:
        """The first line of an answer, or the text of a bulk string."""
        self.socket.sendall(request(words))
        line: bytes = self.file.readline()
        return self.file.read(int(line[1:]) + 2) if line[:1] == b"$" else line

    def number(self, section: str, name: str) -> int:
        """A number of INFO."""
        found = re.search(rb"%b:(\d+)" % name.encode(), self.ask("INFO", section))
        assert found is not None, f"INFO {section} has no {name}"
        return int(found[1])

    def close(self) -> None:
        """Hang up."""
        self.file.close()
        self.socket.close()
