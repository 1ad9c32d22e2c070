"""A group of members in one process, without sockets: a primary, replicas, and replicas of replicas, whose links carry bytes
that are delivered in pieces, cut, and begun again; members are killed, restarted and promoted.

Whenever two members are in the state of the same name, history and offset, their states are equal.
"""

from __future__ import annotations

import time
from random import Random

from headwater.common.clock import Clock
from headwater.common.steps import do_all
from headwater.config.config import Config
from headwater.engine.check import broken_invariants
from headwater.journal.log.adopting import CopyWriter
from headwater.journal.log.journal import Journal
from headwater.persistence.progress import LoadProgress
from headwater.server.opening import open_node, reopen_steps
from headwater.server.services.replication.link import (
    LINK_VERSION,
    Continuation,
    CopyEnds,
    FileBegins,
    FilePart,
    Groups,
    LinkReader,
    SignOfLife,
)
from headwater.server.session.session import Session
from headwater.server.turn.node import Node
from headwater.testing.clock import ManualClock
from headwater.testing.files import CrashableFiles
from tests.conformance.histories import History
from tests.conformance.histories_keys import KeyHistory
from tests.property.state import picture
from tests.replication.pairs import Client, encoded

PATIENCE_S = 20.0


class Member:
    """A server: its files, and its node while it runs."""

    def __init__(self, number: int, clock: Clock, random: Random) -> None:
        self.number = number
        self.clock = clock
        self.random = random
        self.files = CrashableFiles(seed=number)
        self.link: Link | None = None
        self.node: Node
        self.client: Client
        self.open()

    def open(self) -> None:
        """Start on what the files have."""
        self.files._locked = False
        self.node = open_node(Config(appendfsync="everysec"), clock=self.clock, files=self.files)
        self.node.services.replication.on_change = lambda: None
        self.client = Client(self.node)
        """Runs random commands, so it may be blocked or in a transaction."""
        self.operator = Client(self.node)

    @property
    def journal(self) -> Journal:
        assert self.node.journal is not None
        return self.node.journal

    @property
    def name(self) -> tuple[str, int]:
        """The name of the state: its earliest history, and the offset."""
        return self.node.services.replication.own_history.oldest(
            self.journal.offset
        ), self.journal.offset

    def close(self, *, clean: bool) -> None:
        """Stop, or be killed: then the disk has any state that a crash can leave."""
        if self.link is not None:
            self.link.cut()
        if clean:
            self.node.close()
        else:
            (self.files,) = self.files.crash_images(seed=self.random.randrange(1 << 30), count=1)
        self.node.sealer.stop()


class Link:
    """The link of ``replica`` to ``primary``."""

    def __init__(self, primary: Member, replica: Member) -> None:
        self.primary = primary
        self.replica = replica
        self._session: Session = primary.node.connect(kind="tcp", address="10.0.0.1:1")
        replica.operator.run((b"REPLICAOF", b"primary.example", b"6379"))
        replica.node.services.replication.follow("primary.example", 6379)
        history, offset = replica.journal.history, replica.journal.offset
        assert history is not None
        self.arrived = primary.node.exchange(
            self._session,
            encoded(
                b"HWSYNC", b"%d" % LINK_VERSION, history.oldest(offset).encode(), b"%d" % offset
            ),
        )
        self._reader: LinkReader | None = None
        self._copy: CopyWriter | None = None
        replica.link = self

    def cut(self) -> None:
        """End the link; what has not arrived is lost."""
        self.primary.node.close_session(self._session)
        self.replica.link = None

    def wait(self) -> None:
        """Wait until the primary has sent everything, or has closed the link."""
        replicas = self.primary.node.services.replication.replicas.by_session
        if self._session not in replicas:  # that member follows nobody yet
            self.cut()
            return
        ends = time.monotonic() + PATIENCE_S
        while not self._session.closing and not replicas[self._session].live:
            self.take()
            assert time.monotonic() < ends, "the replica does not become live"
            time.sleep(0.0005)
        self.take()

    def take(self) -> None:
        """Let what was sent arrive."""
        with self.primary.node.lock:
            self.arrived += self._session.output.take_bytes()
            replica = self.primary.node.services.replication.replicas.by_session.get(self._session)
        if replica is not None:
            replica.room.set()

    def deliver(self, random: Random) -> None:
        """Let the replica use what has arrived, cut at any byte."""
        at = random.randrange(len(self.arrived) + 1) if random.random() < 0.5 else len(self.arrived)
        data, self.arrived = self.arrived[:at], self.arrived[at:]
        if self._reader is None:
            line, ended, rest = data.partition(b"\r\n")
            if not ended:
                self.arrived = data + self.arrived
                return
            granted = Continuation.read(line + ended)
            self._reader, self._granted = LinkReader(granted.seed), granted
            if granted.full:
                self._copy = CopyWriter(self.replica.files)
            else:
                self.replica.node.services.replication.adopt(granted.history)
                self._connected()
            data = rest
        self._reader.feed(data)
        for received in self._reader.read():
            node = self.replica.node
            if isinstance(received, Groups):
                with node.lock:
                    assert node.follow(received) == len(received.starts)
            elif isinstance(received, FileBegins):
                assert self._copy is not None
                self._copy.begin(received.name, received.size)
            elif isinstance(received, FilePart):
                assert self._copy is not None
                self._copy.write(received.data)
            elif isinstance(received, CopyEnds):
                assert self._copy is not None
                self._copy.complete(received.manifest)
                progress = LoadProgress(node.clock)
                node.unload(progress)
                do_all(reopen_steps(node, progress, self.replica.files))
                node.services.replication.adopt(self._granted.history)
                assert self.replica.journal.offset == self._granted.offset
                self._connected()
            elif isinstance(received, Continuation):
                node.services.replication.adopt(received.history)
            else:
                assert isinstance(received, SignOfLife)

    def _connected(self) -> None:
        primary = self.replica.node.services.replication.primary
        assert primary is not None
        primary.state = "connected"


class Machine:
    """Random events in a group of three members."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.clock = ManualClock()
        self.members = [Member(number, self.clock, self.random) for number in range(3)]
        self.primary = self.members[0]
        kind = KeyHistory if seed % 2 else History
        self._commands = iter(kind(seed, "redis-8.2").commands(100_000))
        self.states: dict[tuple[str, int], object] = {}

    def step(self) -> None:
        """Let one event happen."""
        member = self.random.choice(self.members)
        events = [
            (30, self._write), (20, lambda: self._deliver(member)), (4, lambda: self._connect(member)),
            (3, lambda: self._cut(member)), (1, lambda: self._restart(member, clean=True)),
            (1, lambda: self._restart(member, clean=False)), (1, lambda: self._promote(member)),
            (2, lambda: self._checkpoint(member)), (4, self._pass_time),
        ]  # fmt: skip
        weights, actions = zip(*events, strict=True)
        self.random.choices(actions, weights)[0]()
        self.judge()

    def settle(self) -> None:
        """Let every member follow the primary, until all have everything."""
        for member in self.members:
            if member.link is not None:
                self._cut(member)
        for member in self.members:
            if member is not self.primary:
                self._connect(member, self.primary)
                assert member.link is not None
                while member.link.arrived or member.journal.offset < self.primary.journal.offset:
                    member.link.wait()
                    assert member.link is not None, "the primary refuses a member"
                    member.link.deliver(self.random)
        self.judge()
        names = {member.name for member in self.members}
        assert len(names) == 1, names

    def judge(self) -> None:
        """Check that states with the same name are equal."""
        for member in self.members:
            if member.node.keyspace.unseen:
                continue
            state = picture(member.node.keyspace)
            assert self.states.setdefault(member.name, state) == state, member.name
            assert list(broken_invariants(member.node.keyspace)) == []

    # --- events ---------------------------------------------------------------------------------

    def _write(self) -> None:
        for _ in range(self.random.randrange(1, 8)):
            self.primary.client.run(next(self._commands))

    def _pass_time(self) -> None:
        self.clock.advance(self.random.random() * 3)
        for member in self.members:
            member.node.tick()

    def _deliver(self, member: Member) -> None:
        if member.link is not None:
            member.link.take()
            member.link.deliver(self.random)

    def _cut(self, member: Member) -> None:
        if member.link is not None:
            member.link.cut()

    def _connect(self, member: Member, primary: Member | None = None) -> None:
        """Follow the primary, or another replica that follows."""
        if member is self.primary:
            return
        self._cut(member)
        if primary is None:
            others = [one for one in self.members if one is not member and one.link is not None]
            others = [one for one in others if one.link.primary is not member]  # type: ignore[union-attr]
            primary = self.random.choice([self.primary, *others])
        Link(primary, member).wait()

    def _followers_of(self, member: Member) -> list[Member]:
        return [one for one in self.members if one.link is not None and one.link.primary is member]

    def _restart(self, member: Member, *, clean: bool) -> None:
        for one in self._followers_of(member):
            self._cut(one)
        member.close(clean=clean)
        member.open()

    def _promote(self, member: Member) -> None:
        """Make a replica the primary, at whatever offset it is. The former one keeps what it has."""
        if member is self.primary:
            return
        self._cut(member)
        for one in self._followers_of(member):
            self._cut(one)
        assert member.operator.run((b"REPLICAOF", b"NO", b"ONE")) == b"+OK\r\n"
        self.primary = member

    def _checkpoint(self, member: Member) -> None:
        if member.node.keyspace.unseen:
            return  # an image of this process also has the seen times of the last second
        with member.node.lock:
            member.node.services.storage.checkpoints.write_now()
        for one in self._followers_of(member):
            self._deliver(one)
