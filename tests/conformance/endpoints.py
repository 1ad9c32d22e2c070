"""The stores that histories run on: Headwater in this process, or a real server over its socket.

Each has one connection. Replies retain everything that was on the wire (headwater.testing.replies).
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from headwater.config.config import Config
from headwater.testing.clock import ManualClock
from headwater.testing.node import LocalStore, request
from headwater.testing.replies import Failure, Nil, Reply, ReplyReader

Command = tuple[bytes, ...]

RESET: tuple[Command, ...] = (
    (b"FLUSHALL",),
    (b"SELECT", b"0"),
    (b"CONFIG", b"SET", b"stream-node-max-entries", b"100"),
    (b"CONFIG", b"SET", b"stream-node-max-bytes", b"4096"),
)
"""Commands that reset a server which other tests have used."""


class Listening(Protocol):
    """A server on 127.0.0.1 in another process: a peer, or Headwater."""

    port: int
    unixsocket: Path | None


class Endpoint(Protocol):
    """A server that runs commands."""

    name: str

    def run(self, history: Sequence[Command], *, resp: int = 2) -> list[Reply]:
        """Run ``history`` on an empty store and return the replies."""
        ...

    def now_ms(self) -> int:
        """Return the server's Unix time, approximately."""
        ...


class HeadwaterEndpoint:
    """A new store for each history. Its clock is set to the real time, unless one is given, and does not move."""

    name = "headwater"

    def __init__(self, clock: ManualClock | None = None) -> None:
        self.clock = clock or ManualClock(time.time_ns() // 1_000_000)
        self.store = self._empty()
        """The store of the latest history."""

    def now_ms(self) -> int:
        return self.clock.now_ms()

    def _empty(self) -> LocalStore:
        config = Config(port=0, appendonly=False, save=())
        return LocalStore(clock=self.clock, config=config, journaled=False)

    def run(self, history: Sequence[Command], *, resp: int = 2) -> list[Reply]:
        self.store = self._empty()
        client = self.store.client(resp=resp, kind="tcp")
        found: list[Reply] = []
        for command in history:
            client.send(*command)
            while (reply := client.reply()) is None:
                self.store.advance(self.store.seconds_ahead())
            found.append(reply)
        return found


class PeerEndpoint:
    """A real server, over its socket. HELLO selects ``resp``; servers from 7.0 on have it."""

    def __init__(self, server: Listening, *, name: str = "") -> None:
        self.name = name or getattr(server, "name", "")
        self.connection = Connection(server)

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def run(self, history: Sequence[Command], *, resp: int = 2) -> list[Reply]:
        self.connection.prepare(resp)
        return self.connection.run(history)

    def close(self) -> None:
        """Reset the server for other tests, and close the connection."""
        self.connection.run(RESET)
        self.connection.close()


class Connection:
    """A connection to a real server."""

    def __init__(self, server: Listening) -> None:
        if server.unixsocket is not None:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.connect(str(server.unixsocket))
        else:
            self.socket = socket.create_connection(("127.0.0.1", server.port))
        self.socket.settimeout(30)
        self.reader = ReplyReader()
        self.resp = 2

    def prepare(self, resp: int) -> None:
        """Reset the store and the node limits, and select the protocol version."""
        self.run([(b"DISCARD",)])  # a history may end within a transaction
        replies = self.run([(b"HELLO", b"%d" % resp), *RESET])
        assert not any(isinstance(reply, Failure) for reply in replies), replies

    def send(self, *command: bytes) -> None:
        self.socket.sendall(request(command))

    def reply(self) -> Reply:
        """Wait for the next reply and return it."""
        while (found := self.reader.next()) is None:
            received = self.socket.recv(1 << 16)
            assert received, "the server closed the connection"
            self.reader.feed(received)
        return found

    def silent(self, seconds: float) -> bool:
        """Return whether no reply arrives within ``seconds``: only waiting shows that it blocks."""
        self.socket.settimeout(seconds)
        try:
            self.reader.feed(self.socket.recv(1 << 16))
        except TimeoutError:
            return not self.reader.buffer
        finally:
            self.socket.settimeout(30)
        return False

    def run(self, history: Sequence[Command]) -> list[Reply]:
        """Send all commands in batches, as a pipeline, and return all replies. Redis 8.2.3 loses
        the reply to a failed AUTH that follows another one in a packet, so histories with AUTH are
        sent one by one."""
        size = 1 if any(command[0] == b"AUTH" for command in history) else 200
        found: list[Reply] = []
        for start in range(0, len(history), size):
            batch = history[start : start + size]
            self.socket.sendall(b"".join(request(command) for command in batch))
            found += [self.reply() for _ in batch]
        return found

    def close(self) -> None:
        self.socket.close()


def is_nil(reply: Reply) -> bool:
    return isinstance(reply, Nil)
