"""Doors through which a pipeline goes, as bytes: cut wherever the test cuts them, many commands at once.

A hot path that keeps offsets or pointers into a receive buffer breaks where a request ends in the middle
of one receive, or where a hundred stand in it; a client that waits for each reply never finds that.
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
"""How long a batch may take before it counts as never answered."""

MARK = request(("ECHO", "the end of this batch"))
MARK_REPLY = b"$21\r\nthe end of this batch\r\n"


class NeverAnswered(Exception):
    """A batch was not answered in time, or the connection was closed instead."""


class Door(Protocol):
    """One connection to a store that is empty at the beginning of each history."""

    def prepare(self, resp: int) -> None:
        """An empty store and the version of the protocol."""
        ...

    def exchange(self, pieces: Sequence[bytes]) -> bytes:
        """What comes back for these bytes, one receive for each piece where that can be had. The last
        piece ends with `MARK`, whose reply is not given."""
        ...

    def now_ms(self) -> int:
        """Unix time as the store has it, more or less."""
        ...

    def broken(self) -> list[str]:
        """Invariants that do not hold, where one can look."""
        ...


class NodeDoor:
    """A store in this process, and each piece one receive; its clock stands still."""

    def __init__(self) -> None:
        self.prepare(2)

    def prepare(self, resp: int) -> None:
        self.clock = ManualClock(time.time_ns() // 1_000_000)
        config = Config(port=0, appendonly=False)
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
                raise NeverAnswered(f"the connection was closed after {bytes(found[-200:])!r}")
            if self.session.blocked:
                self.store.advance(self.store.seconds_ahead())
            else:
                before = len(found)
                self.store.node.turn([self.session])  # what waited until replies were taken
                found += self.session.output.take_bytes()
                if len(found) == before:
                    raise NeverAnswered(f"nothing comes after {bytes(found[-200:])!r}")
            found += self.session.output.take_bytes()
        return bytes(found[: -len(MARK_REPLY)])

    def now_ms(self) -> int:
        return self.clock.now_ms()

    def broken(self) -> list[str]:
        return broken_invariants(self.store.node.keyspace)


class SocketDoor:
    """A server behind a socket, ours or theirs; what it receives at once is the system's to choose.

    Sends and receives by turns, as a server that waits until its replies are taken must be met.
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
            raise NeverAnswered(f"nothing comes after {bytes(found[-200:])!r}")
        return events

    def _receive(self, found: bytearray) -> None:
        received = self.socket.recv(1 << 20)
        if not received:
            raise NeverAnswered(f"the connection was closed after {bytes(found[-200:])!r}")
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
        """Leave an empty store and hang up."""
        self.prepare(2)
        self.socket.close()


def cut(data: bytes, random: Random) -> list[bytes]:
    """``data`` whole, in a few pieces of any size, or with some dozen bytes of it one by one."""
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
