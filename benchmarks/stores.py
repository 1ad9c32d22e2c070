"""The servers that are measured: Headwater and its peers, pinned to one core.

All run at once and are measured in turn, so a drift of the machine's speed affects all alike; only one
works at a time. They write no journal unless a table says so.
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
from benchmarks.rows import OURS, REDIS
from headwater.testing.server import server_process
from tests import peers

BATCH: Final = 1000

IDLE_SHARE: Final = 0.02
IDLE_WITHIN_SECONDS: Final = 60.0


@dataclass(frozen=True)
class Kind:
    """How a server is started. ``peer`` names one of `tests.peers.PEERS`; None is Headwater."""

    name: str
    peer: str | None = None
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def available(self) -> bool:
        """Return whether its binary is installed."""
        return self.peer is None or peers.path(self.peer) is not None


VALKEY: Final = "valkey-9.1"
PEERS: Final = (REDIS, VALKEY, "redis-7.0")

HEADWATER: Final = Kind(OURS)
PLAIN_PYTHON: Final = Kind(OURS, environment={"HEADWATER_PURE": "1"})
KINDS: Final = (HEADWATER, *(Kind(name, peer=name) for name in PEERS))
WITH_REDIS: Final = KINDS[:2]


@dataclass
class Store:
    """A running server; ``name`` is its name in the tables."""

    name: str
    host: str
    port: int
    pid: int
    client_core: int

    def cpu_seconds(self) -> float:
        """Return the processor time used so far by the server's process, all threads included."""
        return time.clock_gettime((~self.pid << 3) | 2)  # clock_getcpuclockid(3)

    def resident_bytes(self) -> int:
        """Return the resident memory of the process (RSS)."""
        pages = Path(f"/proc/{self.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def peak_bytes(self) -> int:
        """Return the peak resident memory of the process."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        peak = next(line for line in lines if line.startswith("VmHWM:"))
        return int(peak.split()[1]) * 1024

    def load(self, mode: str, *arguments: object, requests: Sequence[bytes] = ()) -> load.Sample:
        """Put the server under load from the client's core."""
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
        """Return a client for commands that are not measured."""
        return redis.Redis(self.host, self.port, socket_timeout=120)

    def fill(self, key: str, entries: int, words: Sequence[str], *, first: int = 1) -> None:
        """Add ``entries`` entries to ``key``, with ids from ``first``-1 on. Each ``#`` in the words becomes a
        random digit."""
        self.load("fill", key, first, first + entries - 1, *words)

    def deliver(self, key: str, group: str, entries: int, *, consumers: int = 10) -> None:
        """Make the first ``entries`` entries pending, for ``consumers`` consumers."""
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

    def wait_idle(self) -> None:
        """Wait until the server is idle, so that freeing, sealing or writing after one measurement does not
        count in the next."""
        deadline = time.monotonic() + IDLE_WITHIN_SECONDS
        before = self.cpu_seconds()
        while time.monotonic() < deadline:
            time.sleep(0.05)
            now = self.cpu_seconds()
            if now - before < 0.05 * IDLE_SHARE:
                return
            before = now

    def empty(self) -> None:
        """Delete all keys, and wait until their memory is freed."""
        with self.client() as client:
            client.flushall()
        self.wait_idle()


USABLE: Final = frozenset(os.sched_getaffinity(0))
"""The cores that this process may use at its start; later it is pinned to the client's core."""


def cores() -> tuple[int, int]:
    """Return the cores of server and client; the same core twice if there is only one."""
    return min(USABLE), max(USABLE)


def durability(fsync: str | None, *, peer: bool = True) -> list[str]:
    """Return the server arguments for ``appendfsync``; None is without a journal.

    A peer must not rewrite its file: the process that does so would run on the same core.
    """
    if fsync is None:
        return ["--appendonly", "no", "--save", ""]
    words = ["--appendonly", "yes", "--appendfsync", fsync]
    return [*words, "--auto-aof-rewrite-percentage", "0"] if peer else words


@contextmanager
def on_cores(wanted: set[int]) -> Iterator[None]:
    """Run processes that are started inside the block on the given cores, with all their threads."""
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
    """Run one store inside the block."""
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
    """Run the available stores of ``kinds`` inside the block, in this order. None rewrites its file."""
    with ExitStack() as stack:
        stores = [
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
        for store in stores:
            begin_no_rewrites(store)
        yield stores


def begin_no_rewrites(store: Store) -> None:
    """Let a server begin no rewrite of its append-only file, and no checkpoint, by itself. One without this
    setting begins none."""
    with store.client() as client:
        if client.config_get("auto-aof-rewrite-percentage"):
            client.config_set("auto-aof-rewrite-percentage", "0")


def versions() -> dict[str, str]:
    """Return the version of each available peer."""
    said: dict[str, str] = {}
    for kind in KINDS[1:]:
        if kind.available():
            with running(kind) as store, store.client() as client:
                info = client.info("server")
                said[kind.name] = str(info.get("valkey_version") or info["redis_version"])
    return said
