"""A primary and a replica in one process, without sockets: groups are passed on as bytes."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from headwater.config.config import Config
from headwater.server.opening import open_node
from headwater.server.services.replication.link import Groups, LinkReader, counted_groups
from headwater.server.turn.node import Node
from headwater.testing.clock import ManualClock
from headwater.testing.files import CrashableFiles


def encoded(*words: bytes) -> bytes:
    """Return a request."""
    parts = [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(parts)


class Client:
    """A client of a node."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._session = node.connect(kind="embedded", address="test")

    def run(self, words: tuple[bytes, ...]) -> bytes:
        """Run a command and return its reply."""
        return self.node.exchange(self._session, encoded(*words))


class Pair:
    """A primary and its replica. ``sent`` has the groups of each turn that the replica has not got yet."""

    class NoRoom(Exception):
        """The replica's journal has no room."""

    def __init__(self, *, capacity: int | None = None) -> None:
        self.clock = ManualClock()
        self.primary = Client(open_node(Config(), clock=self.clock, files=CrashableFiles()))
        files = CrashableFiles(capacity=capacity)
        self.replica = open_node(Config(), clock=self.clock, files=files)
        replication = self.replica.services.replication
        replication.on_change = lambda: None
        replication.follow("primary.example", 6379)
        self.sent: list[bytes] = []
        self.primary.node.records.pass_on = self._pass_on
        assert self.primary.node.journal is not None
        self._reader = LinkReader(self.primary.node.journal.seed)

    @property
    def offsets(self) -> tuple[int, int]:
        """The offsets of the primary and the replica."""
        first, second = self.primary.node.journal, self.replica.journal
        assert first is not None
        assert second is not None
        return first.offset, second.offset

    def _pass_on(self, buffer: bytearray) -> Callable[[], None]:
        groups = counted_groups(buffer)
        return lambda: self.sent.append(groups)

    def deliver(self, random: Random | None = None) -> None:
        """Let the replica apply what was sent; with ``random``, cut at any byte. Raises `NoRoom`."""
        for data in self.sent:
            at = 0 if random is None else random.randrange(len(data) + 1)
            for part in (data[:at], data[at:]):
                self._reader.feed(part)
                for received in self._reader.read():
                    assert isinstance(received, Groups)
                    with self.replica.lock:
                        applied = self.replica.follow(received)
                    if applied < len(received.starts):
                        raise self.NoRoom
        self.sent.clear()

    def ask(self, *words: bytes) -> bytes:
        """Run a command at the replica."""
        return Client(self.replica).run(words)
