"""The servers that are measured, side by side: Headwater and its peers, pinned to a core of theirs.

All stand at once and are asked in turn, so a machine whose speed drifts treats them alike; only one
works at a time. They keep nothing on disk unless a table says so.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import redis

from benchmarks import load
from headwater.testing.server import server_process
from tests import peers

BATCH: Final = 1000

REST_SHARE: Final = 0.02
REST_SECONDS: Final = 60.0


@dataclass(frozen=True)
class Kind:
    """A server as it is started. ``peer`` names one of `tests.peers.PEERS`; None is Headwater."""

    name: str
    peer: str | None = None
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def available(self) -> bool:
        """Whether its binary is here."""
        return self.peer is None or peers.path(self.peer) is not None


OURS: Final = "headwater"
REDIS: Final = "redis-8.2"
"""The peer that the required figures are ratios to."""

VALKEY: Final = "valkey-9.1"
PEERS: Final = (REDIS, VALKEY, "redis-7.0")

HEADWATER: Final = Kind(OURS)
PLAIN_PYTHON: Final = Kind(OURS, environment={"HEADWATER_PURE": "1"})
KINDS: Final = (HEADWATER, *(Kind(name, peer=name) for name in PEERS))
WITH_REDIS: Final = KINDS[:2]


@dataclass
class Store:
    """A running server under its name in the tables."""

    name: str
    host: str
    port: int
    pid: int
    client_core: int

    def cpu_seconds(self) -> float:
        """Processor time that the server's process has used so far, all threads."""
        return time.clock_gettime((~self.pid << 3) | 2)  # clock_getcpuclockid(3)

    def resident_bytes(self) -> int:
        """Memory of the process that is in use, as the kernel tells."""
        pages = Path(f"/proc/{self.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def peak_bytes(self) -> int:
        """The most memory that the process has had in use since it began."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        peak = next(line for line in lines if line.startswith("VmHWM:"))
        return int(peak.split()[1]) * 1024

    def load(self, mode: str, *arguments: object, requests: Sequence[bytes] = ()) -> load.Sample:
        """Put it under load from the other core."""
        return load.run(
            mode,
            self.host,
            self.port,
            self.pid,
            *arguments,
            core=self.client_core,
            requests=requests,
        )

    def client(self) -> redis.Redis:
        """A client for what is not measured."""
        return redis.Redis(self.host, self.port, socket_timeout=120)

    def fill(self, key: str, entries: int, words: Sequence[str], *, first: int = 1) -> None:
        """Add ``entries`` entries at ``key``, ids ``first``-1 and on; each ``#`` of the words
        becomes a digit by chance."""
        self.load("fill", key, first, first + entries - 1, *words)

    def deliver(self, key: str, group: str, entries: int, *, consumers: int = 10) -> None:
        """Make the first ``entries`` entries pending with so many consumers."""
        with self.client() as client:
            client.xgroup_create(key, group, "0")
        reads = [
            load.request(
                b"XREADGROUP", b"GROUP", group.encode(), b"c%d" % number, b"COUNT", b"%d" % BATCH,
                b"STREAMS", key.encode(), b">",
            )
            for number in range(consumers)
        ]  # fmt: skip
        self.load("times", -(-entries // BATCH), 1, 1, requests=reads)

    def rest(self) -> None:
        """Wait until it works no more: what it frees, seals or writes for one measurement is not
        charged to the next."""
        deadline = time.monotonic() + REST_SECONDS
        before = self.cpu_seconds()
        while time.monotonic() < deadline:
            time.sleep(0.05)
            now = self.cpu_seconds()
            if now - before < 0.05 * REST_SHARE:
                return
            before = now

    def empty(self) -> None:
        """Remove all keys, and wait until they are gone from memory too."""
        with self.client() as client:
            client.flushall()
        self.rest()


USABLE: Final = frozenset(os.sched_getaffinity(0))
"""Cores that this process was given; it moves to the client's later."""


def cores() -> tuple[int, int]:
    """The cores for server and client; the same one twice where there is only one."""
    return min(USABLE), max(USABLE)


def durability(fsync: str | None, *, peer: bool = True) -> list[str]:
    """The arguments for ``appendfsync``; None keeps nothing on disk.

    A peer does not rewrite its file meanwhile: a process that did so would share its core.
    """
    if fsync is None:
        return ["--appendonly", "no"]
    words = ["--appendonly", "yes", "--appendfsync", fsync]
    return [*words, "--auto-aof-rewrite-percentage", "0"] if peer else words


@contextmanager
def on_cores(wanted: set[int]) -> Iterator[None]:
    """Processes that are started within run there, with all their threads."""
    mine = os.sched_getaffinity(0)
    os.sched_setaffinity(0, wanted)
    try:
        yield
    finally:
        os.sched_setaffinity(0, mine)


@contextmanager
def running(
    kind: Kind, *arguments: str, server_cores: set[int] | None = None, unixsocket: bool = False
) -> Iterator[Store]:
    """One store, ended when the block is left."""
    server_core, client_core = cores()
    words = (*arguments, *kind.arguments)
    with ExitStack() as stack:
        with on_cores(server_cores or {server_core}):
            if kind.peer is None:
                own = stack.enter_context(
                    server_process(*words, environment=dict(kind.environment))
                )
                store = Store(kind.name, "127.0.0.1", own.port, own.pid, client_core)
            else:
                peer = stack.enter_context(peers.running(kind.peer, *words, unixsocket=unixsocket))
                store = Store(kind.name, peer.host, peer.port, peer.pid, client_core)
        yield store


@contextmanager
def measured(
    kinds: Sequence[Kind] = KINDS,
    *,
    fsync: str | None = None,
    server_cores: set[int] | None = None,
) -> Iterator[list[Store]]:
    """Those of the stores that are available here, in the order of ``kinds``."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                running(
                    kind,
                    *durability(fsync, peer=kind.peer is not None),
                    server_cores=server_cores,
                )
            )
            for kind in kinds
            if kind.available()
        ]


def versions() -> dict[str, str]:
    """What each available peer says that it is."""
    said: dict[str, str] = {}
    for kind in KINDS[1:]:
        if kind.available():
            with running(kind) as store, store.client() as client:
                info = client.info("server")
                said[kind.name] = str(info.get("valkey_version") or info["redis_version"])
    return said
