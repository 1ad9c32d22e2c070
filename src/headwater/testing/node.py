"""A store in the test's process, used command by command, with a clock that the test advances and a journal
in memory that can crash.

It needs no socket, thread or disk, and runs thousands of commands a second.
"""

from __future__ import annotations

from headwater.commands.call import StreamSettings
from headwater.config.config import Config
from headwater.journal.format.batches import groups_of
from headwater.journal.log.journal import Journal
from headwater.persistence.replaying import log_recovery, recovered_keyspace
from headwater.resp.arguments import Arguments
from headwater.server.turn.node import Node
from headwater.testing.clock import ManualClock
from headwater.testing.files import CrashableFiles
from headwater.testing.replies import Reply, ReplyReader

Word = bytes | str | int

_FILE_BYTES = 1024 * 1024
"""Size of a journal file. With the server's default, every test would allocate 128 MiB."""


def request(words: tuple[Word, ...]) -> bytes:
    """Return the bytes that a client sends for a command."""
    return bytes(
        Arguments.of(
            *(word if isinstance(word, bytes) else str(word).encode() for word in words)
        ).buffer
    )


class LocalStore:
    """A node with a journal in memory. ``journaled=False`` stores nothing, which is faster. With ``cold``, entries
    are moved to `files` as soon as possible, and reads of them wait as for a disk.

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
        cold: bool = False,
    ) -> None:
        self.cold = cold
        self.clock = clock if clock is not None else ManualClock()
        self.config = config if config is not None else Config(port=0)
        self.files = CrashableFiles() if journaled or cold else None
        self.node = self._open()

    @property
    def settings(self) -> StreamSettings:
        """The stream settings, such as node limits. Change them in place."""
        return self.node.services.clients.settings

    def client(self, *, resp: int = 2, kind: str = "embedded") -> LocalClient:
        """Open a connection. With ``kind="tcp"`` its user is ``default``, to whom ACL rules apply."""
        return LocalClient(self, resp, kind)

    def advance(self, seconds: float) -> None:
        """Advance the clock by ``seconds`` and run everything that is due."""
        self.clock.advance(seconds)
        self.node.tick()

    def seconds_ahead(self) -> float:
        """Return the seconds until the node's next deadline. The node must have a deadline."""
        deadline = self.node.next_deadline()
        assert deadline is not None, "nothing is due: the store would wait for ever"
        return max(0.0, deadline - self.clock.monotonic())

    def crash(self) -> None:
        """Simulate a loss of power, and start again with the data that survive. All connections are lost."""
        assert self.files is not None, "the store has no journal"
        (self.files,) = self.files.crash_images(seed=0, count=1)
        self.node = self._open()

    def facts(self) -> list[bytes]:
        """Return the facts in the journal, one item for each command, transaction or script."""
        return [facts for facts, _ in self.groups()]

    def groups(self) -> list[tuple[bytes, int]]:
        """Return `facts`, each item with its time, as `headwater.engine.replay.replay.Replay.apply` takes them."""
        assert self.files is not None, "the store has no journal"
        (image,) = self.files.crash_images(seed=0, count=1)
        journal = self._journal(image)
        try:
            return [(bytes(group.facts), group.now_ms) for group in groups_of(journal.batches())]
        finally:
            journal.close()

    def use_disk(self) -> None:
        """Store all blocks that can be stored, and complete the commands that wait for the disk (``cold``)."""
        node = self.node
        while node.sealer.has_work():
            node.sealer.work()
            done = len(node.sealer.done)
            with node.lock:
                node.sealer.take_turn()
            if len(node.sealer.done) == done:
                break  # the node is poisoned, or its journal is full
        while node.blocked.cold_reads:
            node.blocked.cold_reads.wait_until_idle()
            node.tick()

    def _open(self) -> Node:
        node = self._new_node()
        # The test's thread alone changes the state, so the sealer may read the state at any time.
        node.sealer.takes_turns, node.sealer.threaded = False, not self.cold
        if isinstance(self.files, CrashableFiles):
            self.files.reads.cold = self.cold
        return node

    def _new_node(self) -> Node:
        if self.files is None:
            return Node(config=self.config, clock=self.clock)
        journal = self._journal(self.files)
        keyspace = recovered_keyspace(journal, config=self.config)
        log_recovery(journal.recovery, keyspace)
        return Node(keyspace=keyspace, journal=journal, config=self.config, clock=self.clock)

    def _journal(self, files: CrashableFiles) -> Journal:
        return Journal.open(files, policy="always", file_bytes=_FILE_BYTES, clock=self.clock)


class LocalClient:
    """One connection to a `LocalStore`. Calling it sends a command and returns the reply."""

    def __init__(self, store: LocalStore, resp: int, kind: str) -> None:
        self._store, self._node = store, store.node
        self._reader = ReplyReader()
        self.session = self._node.connect(kind=kind, address="")
        self.session.resp = resp

    def send(self, *words: Word) -> None:
        """Send a command. `reply` returns its replies."""
        self._exchange(request(words))
        while self.session.output.stalled:  # the reply is written in pieces
            self._exchange(b"")

    def _exchange(self, sent: bytes) -> None:
        self._reader.feed(self._node.exchange(self.session, sent))
        if self._store.cold:
            self._store.use_disk()

    def reply(self) -> Reply | None:
        """Return the next reply; None if the command is blocked."""
        with self._node.lock:  # a thread of the test may run turns, too
            self._reader.feed(self.session.output.take_bytes())
        return self._reader.next()

    def __call__(self, *words: Word) -> Reply:
        """Send a command and return its reply. The command must not block."""
        self.send(*words)
        found = self.reply()
        assert found is not None, f"{words!r} blocks; use send() and reply()"
        return found

    def close(self) -> None:
        """Close the connection."""
        self._node.close_session(self.session)
