"""A store in this process, driven command by command, with its clock under the test's hand and a
journal in memory that can crash.

No socket, no thread, no disk: what a test of the store's behaviour needs, thousands of commands a
second.
"""

from __future__ import annotations

from headwater.commands.call import StreamSettings
from headwater.config.config import Config
from headwater.journal.journal import Journal
from headwater.resp.arguments import Arguments
from headwater.server.replaying import recovered_keyspace
from headwater.server.turn.node import Node
from headwater.testing.clock import ManualClock
from headwater.testing.files import CrashableFiles
from headwater.testing.replies import Reply, ReplyReader

Word = bytes | str | int

_FILE_BYTES = 1024 * 1024
"""Of a journal file; the real size would have every test allocate 128 MiB."""


def request(words: tuple[Word, ...]) -> bytes:
    """The bytes that a client sends for a command."""
    return bytes(
        Arguments.of(
            *(word if isinstance(word, bytes) else str(word).encode() for word in words)
        ).buffer
    )


class LocalStore:
    """A node over a journal in memory; ``journaled=False`` keeps nothing, which is faster.

    >>> store = LocalStore()
    >>> client = store.client()
    >>> client("XADD", "orders", "5-1", "item", "tea")
    b'5-1'
    >>> store.crash()
    >>> store.client()("XLEN", "orders")
    1
    """

    def __init__(
        self,
        *,
        clock: ManualClock | None = None,
        config: Config | None = None,
        journaled: bool = True,
    ) -> None:
        self.clock = clock if clock is not None else ManualClock()
        self.config = config if config is not None else Config(port=0)
        self.files = CrashableFiles() if journaled else None
        self.node = self._open()

    @property
    def settings(self) -> StreamSettings:
        """Node bounds and the like; change them in place."""
        return self.node.services.settings

    def client(self, *, resp: int = 2, kind: str = "embedded") -> LocalClient:
        """A new connection; of ``kind`` ``tcp`` it is the user ``default``, whom ACL rules bind."""
        return LocalClient(self, resp, kind)

    def advance(self, seconds: float) -> None:
        """Let time pass, and what is due happen."""
        self.clock.advance(seconds)
        self.node.tick()

    def seconds_ahead(self) -> float:
        """How long it is until something is due; what blocks for ever is an error."""
        deadline = self.node.next_deadline()
        assert deadline is not None, "nothing will ever happen by itself"
        return max(0.0, deadline - self.clock.monotonic())

    def crash(self) -> None:
        """Lose power and start again on what the disk held; connections are gone."""
        assert self.files is not None, "there is no journal to come back from"
        (self.files,) = self.files.crash_images(seed=0, count=1)
        self.node = self._open()

    def facts(self) -> list[bytes]:
        """What the journal holds, the facts of one command after the other."""
        return [facts for facts, _ in self.groups()]

    def groups(self) -> list[tuple[bytes, int]]:
        """The same with the time of each command, as `headwater.engine.replay.apply` takes them."""
        assert self.files is not None, "there is no journal"
        (image,) = self.files.crash_images(seed=0, count=1)
        journal = self._journal(image)
        try:
            return [(bytes(group.facts), group.now_ms) for group in journal.replay()]
        finally:
            journal.close()

    def _open(self) -> Node:
        if self.files is None:
            return Node(config=self.config, clock=self.clock)
        journal = self._journal(self.files)
        keyspace = recovered_keyspace(journal, config=self.config)
        return Node(keyspace=keyspace, journal=journal, config=self.config, clock=self.clock)

    def _journal(self, files: CrashableFiles) -> Journal:
        return Journal.open(files, policy="always", file_bytes=_FILE_BYTES, clock=self.clock)


class LocalClient:
    """One connection to a `LocalStore`. Calling it sends a command and gives its reply."""

    def __init__(self, store: LocalStore, resp: int, kind: str) -> None:
        self._node = store.node
        self._reader = ReplyReader()
        self.session = self._node.connect(kind=kind, address="")
        self.session.resp = resp

    def send(self, *words: Word) -> None:
        """Send a command; `reply` gives what comes of it."""
        self._reader.feed(self._node.exchange(self.session, request(words)))

    def reply(self) -> Reply | None:
        """The next reply, None when there is none: the command blocks."""
        with self._node.lock:  # a thread of the test's may run turns too
            self._reader.feed(self.session.output.take_bytes())
        return self._reader.next()

    def __call__(self, *words: Word) -> Reply:
        """Send a command and take its reply, which must come at once."""
        self.send(*words)
        found = self.reply()
        assert found is not None, f"{words!r} blocks; use send() and reply()"
        return found

    def close(self) -> None:
        """Go away."""
        self._node.close_session(self.session)
