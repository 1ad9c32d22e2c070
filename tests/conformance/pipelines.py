"""Connections that send a pipeline as bytes, cut at any place, with many commands at once.

Code that uses offsets or pointers into a receive buffer fails when a request ends in the middle of
a received piece, or when a piece has a hundred requests. A client that waits for each reply never
tests that.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import Protocol

from headwater.config.config import Config
from headwater.engine.check import broken_invariants
from headwater.server.running import Server
from headwater.testing.clock import ManualClock
from headwater.testing.node import LocalStore, request
from headwater.testing.server import ServerThread
from tests.conformance.endpoints import RESET, Command, Listening

SECONDS = 60.0
"""How long a batch may take before it counts as not answered."""

MARK = request(("ECHO", "the end of this batch"))
MARK_REPLY = b"$21\r\nthe end of this batch\r\n"


class NotAnswered(Exception):
    """A batch was not answered in time, or the connection was closed."""


class Pipeline(Protocol):
    """A connection to a store that is empty at the beginning of each history."""

    def prepare(self, resp: int) -> None:
        """Reset the store and select the protocol version."""
        ...

    def exchange(self, pieces: Sequence[bytes]) -> bytes:
        """Send ``pieces`` and return the replies. If possible, the store receives each piece
        separately. The last piece ends with `MARK`, whose reply is not returned."""
        ...

    def now_ms(self) -> int:
        """Return the store's Unix time, approximately."""
        ...

    def broken(self) -> list[str]:
        """Return the broken invariants, if they can be checked."""
        ...


class LocalPipeline:
    """A store in this process that receives each piece separately. Its clock does not move."""

    def __init__(self) -> None:
        self.prepare(2)

    def prepare(self, resp: int) -> None:
        self.clock = ManualClock(time.time_ns() // 1_000_000)
        config = Config(port=0, appendonly=False, save=())
        self.store = LocalStore(clock=self.clock, config=config, journaled=False)
        self.session = self.store.client(resp=resp, kind="tcp").session

    def exchange(self, pieces: Sequence[bytes]) -> bytes:
        found = bytearray()
        for piece in pieces:
            self.session.feed(piece)
            self.store.node.turn([self.session])
            found += self.session.output.take_bytes()
        while not found.endswith(MARK_REPLY):
            if self.session.closing or self.session.closed:
                raise NotAnswered(f"the connection was closed after {bytes(found[-200:])!r}")
            if self.session.blocked and self.store.node.blocked.works_for(self.session):
                self.store.use_disk()
            elif self.session.blocked:
                self.store.advance(self.store.seconds_ahead())
            else:
                before = len(found)
                self.store.node.turn(
                    [self.session]
                )  # requests that waited until replies were taken
                found += self.session.output.take_bytes()
                if len(found) == before and not self.session.blocked:
                    raise NotAnswered(f"nothing follows {bytes(found[-200:])!r}")
            found += self.session.output.take_bytes()
        return bytes(found[: -len(MARK_REPLY)])

    def now_ms(self) -> int:
        return self.clock.now_ms()

    def broken(self) -> list[str]:
        return broken_invariants(self.store.node.keyspace)


class SocketPipeline:
    """A server behind a socket, Headwater or a peer. The system decides how much it receives at once.

    Sends and receives alternately, because a server may wait until its replies are taken.
    """

    def __init__(self, server: Listening | ServerThread) -> None:
        self.server = server
        path = getattr(server, "unixsocket", None)
        if path is not None:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.connect(str(path))
        else:
            self.socket = socket.create_connection(("127.0.0.1", server.port))
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self._poll = select.poll()
        self._poll.register(self.socket, select.POLLIN)

    def prepare(self, resp: int) -> None:
        commands: list[Command] = [(b"HELLO", b"%d" % resp), *RESET]
        replies = self.exchange([b"".join(request(words) for words in commands) + MARK])
        assert b"\r\n-" not in replies, replies

    def exchange(self, pieces: Sequence[bytes]) -> bytes:
        found = bytearray()
        deadline = time.monotonic() + SECONDS
        for piece in pieces:
            left = memoryview(piece)
            while left:
                self._poll.modify(self.socket, select.POLLIN | select.POLLOUT)
                for _, event in self._wait(deadline, found):
                    if event & ~select.POLLOUT:
                        self._receive(found)
                    if event & select.POLLOUT:
                        left = left[self.socket.send(left) :]
        self._poll.modify(self.socket, select.POLLIN)
        while not found.endswith(MARK_REPLY):
            self._wait(deadline, found)
            self._receive(found)
        return bytes(found[: -len(MARK_REPLY)])

    def _wait(self, deadline: float, found: bytearray) -> list[tuple[int, int]]:
        events = self._poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
        if not events:
            raise NotAnswered(f"nothing follows {bytes(found[-200:])!r}")
        return events

    def _receive(self, found: bytearray) -> None:
        received = self.socket.recv(1 << 20)
        if not received:
            raise NotAnswered(f"the connection was closed after {bytes(found[-200:])!r}")
        found += received

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def broken(self) -> list[str]:
        if not isinstance(self.server, ServerThread):
            return []
        found: list[str] = []

        def look(server: Server) -> None:
            found.extend(broken_invariants(server.node.keyspace))

        self.server.run(look)
        return found

    def close(self) -> None:
        """Reset the store and close the connection."""
        self.prepare(2)
        self.socket.close()


def cut(data: bytes, random: Random) -> list[bytes]:
    """Return ``data`` whole, in a few pieces of any size, or with some dozen bytes of it one by one."""
    draw = random.random()
    if draw < 0.3:
        return [data]
    if draw < 0.8:
        places = {random.randrange(len(data) + 1) for _ in range(random.randint(1, 6))}
    else:
        start = random.randrange(len(data))
        places = set(range(start, min(start + random.randint(2, 60), len(data))))
    ends = [0, *sorted(places), len(data)]
    pieces = [data[start:end] for start, end in pairwise(ends)]
    return [piece for piece in pieces if piece]
