"""``python -m benchmarks.stalls``: how long other clients wait for one long command, compared with Redis.

A second connection sends one PING after another while the command is sent, run and replied to. The stall
is the longest time that a PING took; ``total`` is the time from the first byte of the command to the last
byte of its reply. Each measurement starts a new server, so that no command reuses memory that an earlier one
allocated. A ratio divides Headwater's median by Redis's in the same run. Exits with 1 if a stall is more than
twice Redis's and more than 5 ms, also when it is measured a second time.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Final

from benchmarks.load import request
from benchmarks.machine import build_kind
from benchmarks.rows import OURS, REDIS
from benchmarks.stores import WITH_REDIS, Kind, Store, cores, durability, running

BOUND: Final = 2.0
"""The highest permitted ratio of Headwater's stall to Redis's."""

LEAST_STALL_MS: Final = 5.0
"""A stall up to this always passes: the scheduler alone can delay a PING by as much."""

ROUNDS: Final = 3
MIB: Final = 1024 * 1024
TIMEOUT_SECONDS: Final = 120.0
"""How long a reply may take."""

PAUSE_SECONDS: Final = 0.0005
"""The pause between a PONG and the next PING."""

_RECEIVE_BYTES: Final = 4 * MIB


class Pings:
    """Sends PINGs over a separate connection, in a thread, from its creation until `stop`."""

    def __init__(self, store: Store) -> None:
        self.longest = 0.0
        """The longest time that a PING took, in seconds."""
        self._ended = threading.Event()
        self._socket = socket.create_connection((store.host, store.port), timeout=TIMEOUT_SECONDS)
        self._ping()  # the first one also waits for the connection to be accepted
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> float:
        """Stop, and return the longest time that a PING took, in seconds."""
        self._ended.set()
        self._thread.join()
        self._socket.close()
        return self.longest

    def _run(self) -> None:
        while not self._ended.is_set():
            self.longest = max(self.longest, self._ping())
            time.sleep(PAUSE_SECONDS)

    def _ping(self) -> float:
        began = time.perf_counter()
        self._socket.sendall(b"PING\r\n")
        assert self._socket.recv(64) == b"+PONG\r\n"
        return time.perf_counter() - began


@dataclass(frozen=True)
class Measured:
    """One measurement of one store."""

    stall_ms: float
    total_ms: float
    peak_mib: float
    """The process's peak resident memory so far."""


@dataclass(frozen=True)
class Subject:
    """A long command. ``prepare`` fills a store and is not measured; ``run`` sends the command and reads
    the reply."""

    name: str
    prepare: Callable[[Store], None]
    run: Callable[[socket.socket], None]
    fsync: str | None = None
    """The server's ``appendfsync``; None is without a journal."""


@dataclass
class StallRow:
    """The measurements of a subject, by store."""

    name: str
    measurements: dict[str, list[Measured]] = field(default_factory=dict)
    note: str = ""

    def median(self, store: str, name: str) -> float:
        """Return the median of the field ``name`` of `Measured`."""
        return statistics.median(float(getattr(one, name)) for one in self.measurements[store])

    def ratio(self, name: str = "stall_ms") -> float:
        """Return Headwater's median of a field of `Measured`, divided by Redis's."""
        return self.median(OURS, name) / self.median(REDIS, name)

    def passes(self) -> bool:
        """Return whether the stall is within `BOUND`, or at most `LEAST_STALL_MS`."""
        return self.ratio() <= BOUND or self.median(OURS, "stall_ms") <= LEAST_STALL_MS

    def sentence(self) -> str:
        """Return the row as a line of text, with its verdict."""
        verdict = "ok  " if self.passes() else "FAIL"
        parts = [
            f"{name} stall {self.median(name, 'stall_ms'):7.0f} ms, total "
            f"{self.median(name, 'total_ms'):7.0f} ms, peak {self.median(name, 'peak_mib'):5.0f} MiB"
            for name in (OURS, REDIS)
        ]
        note = f" ({self.note})" if self.note else ""
        return (
            f"{verdict} {self.name}: {'; '.join(parts)}; stall {self.ratio():.2f}, total "
            f"{self.ratio('total_ms'):.2f}, memory {self.ratio('peak_mib'):.2f} times Redis's{note}"
        )


# --- the commands -----------------------------------------------------------------------------------


def read_replies(client: socket.socket, end: bytes) -> None:
    """Read until the received bytes end in ``end``."""
    space = bytearray(_RECEIVE_BYTES)
    view = memoryview(space)
    tail = b""
    while not tail.endswith(end):
        count = client.recv_into(view)
        assert count, "the server has closed the connection"
        tail = (tail + bytes(view[max(0, count - len(end)) : count]))[-len(end) :]


QUEUED: Final = {
    "XADD": (request(b"XADD", b"bench:s", b"*", b"item", b"tea", b"amount", b"12"),),
    "SET": (request(b"SET", b"bench:position", b"1526569498055-0"),),
    "INCR": (request(b"INCR", b"bench:count"),),
    "XACK": (request(b"XACK", b"bench:s", b"g", b"1-1"),),
    "mixed": (
        request(b"XADD", b"bench:s", b"*", b"item", b"tea", b"amount", b"12"),
        request(b"SET", b"bench:position", b"1526569498055-0"),
        request(b"XACK", b"bench:s", b"g", b"1-1"),
        request(b"INCR", b"bench:count"),
    ),
}
"""The commands that a transaction queues in turn, by the name of the row."""


def exec_of(name: str, commands: int) -> Subject:
    """Return the subject: MULTI, ``commands`` queued commands, EXEC. ``name`` is a key of `QUEUED`."""
    requests = QUEUED[name]
    queued = b"".join(requests) * (commands // len(requests))

    def prepare(store: Store) -> None:
        with store.client() as client:
            client.xgroup_create("bench:s", "g", mkstream=True)

    def run(client: socket.socket) -> None:
        client.sendall(request(b"MULTI"))
        read_replies(client, b"+OK\r\n")
        for part in _parts(queued, len(queued) // 100 or 1):
            client.sendall(part)
        expected = commands * len(b"+QUEUED\r\n")
        while expected > 0:
            expected -= len(client.recv(_RECEIVE_BYTES))
        client.sendall(request(b"EXEC") + request(b"ECHO", b"end"))
        read_replies(client, b"$3\r\nend\r\n")

    return Subject(f"EXEC of {commands:,} commands, {name}", prepare, run)


def _parts(data: bytes, size: int) -> Iterator[memoryview]:
    view = memoryview(data)
    for at in range(0, len(data), size):
        yield view[at : at + size]


def xinfo_full_of(entries: int) -> Subject:
    """Return the subject: XINFO STREAM FULL COUNT 0 of a stream whose entries are all pending."""

    def prepare(store: Store) -> None:
        store.fill("bench:s", entries, ("item", "########"))
        store.deliver("bench:s", "g", entries)
        store.wait_idle()

    def run(client: socket.socket) -> None:
        client.sendall(
            request(b"XINFO", b"STREAM", b"bench:s", b"FULL", b"COUNT", b"0")
            + request(b"ECHO", b"end")
        )
        read_replies(client, b"$3\r\nend\r\n")

    return Subject(f"XINFO STREAM FULL COUNT 0, {entries:,} entries pending", prepare, run)


def xadd_of(mib: int, fsync: str | None) -> Subject:
    """Return the subject: XADD of an entry with one value of ``mib`` MiB."""
    value = os.urandom(MIB) * mib

    def run(client: socket.socket) -> None:
        client.sendall(
            b"*5\r\n$4\r\nXADD\r\n$7\r\nbench:s\r\n$3\r\n1-1\r\n$4\r\nitem\r\n$%d\r\n" % len(value)
        )
        client.sendall(value)
        client.sendall(b"\r\n")
        read_replies(client, b"$3\r\n1-1\r\n")

    journal = "no journal" if fsync is None else f"appendfsync {fsync}"
    return Subject(f"XADD of {mib} MiB, {journal}", lambda _store: None, run, fsync)


def subjects(*, short: bool) -> Iterator[Callable[[], Subject]]:
    """Yield functions that make the subjects, whose requests are large. ``short`` is a faster version for
    ``make slice``."""
    for name in ("XADD", "SET", "INCR", "mixed"):
        yield lambda name=name: exec_of(name, 40_000 if short else 100_000)  # type: ignore[misc]
    yield lambda: xinfo_full_of(200_000 if short else 1_000_000)
    for fsync in (None, "everysec"):
        yield lambda fsync=fsync: xadd_of(100 if short else 500, fsync)  # type: ignore[misc]


# --- measuring ----------------------------------------------------------------------------------------


@contextmanager
def connection(store: Store) -> Iterator[socket.socket]:
    """Open a client's socket, with a long timeout."""
    address = (store.host, store.port)
    with closing(socket.create_connection(address, timeout=TIMEOUT_SECONDS)) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield client


def measure(subject: Subject, kind: Kind) -> Measured:
    """Make one measurement, with a new server."""
    words = durability(subject.fsync, peer=kind.peer is not None)
    with running(kind, *words) as store, connection(store) as client:
        subject.prepare(store)
        pings = Pings(store)
        began = time.perf_counter()
        subject.run(client)
        total = time.perf_counter() - began
        time.sleep(0.2)  # work that follows the command can stall other clients too
        return Measured(1000 * pings.stop(), 1000 * total, store.peak_bytes() / MIB)


def row_of(subject: Subject, rounds: int) -> StallRow:
    """Measure both stores in turn, ``rounds`` times each."""
    row = StallRow(subject.name)
    for _ in range(rounds):
        for kind in WITH_REDIS:
            row.measurements.setdefault(kind.name, []).append(measure(subject, kind))
    return row


def judge(makers: Iterable[Callable[[], Subject]], rounds: int) -> list[StallRow]:
    """Measure, print and return the rows. A row that fails is measured again, with two more rounds, and only the
    second result counts."""
    rows: list[StallRow] = []
    for make in makers:
        subject = make()
        row = row_of(subject, rounds)
        if not row.passes():
            row = row_of(subject, rounds + 2)
            row.note = "measured twice"
        rows.append(row)
        print(row.sentence(), flush=True)
    return rows


def main(words: Sequence[str] | None = None) -> int:
    """Measure and print. Returns 0 if all rows pass, 1 if one fails or none is chosen, 2 if Redis is missing."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stalls", description=__doc__)
    parser.add_argument("--short", action="store_true", help="smaller commands, for make slice")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--rows", action="append", metavar="TEXT", help="rows with TEXT in them")
    options = parser.parse_args(words)
    if not all(kind.available() for kind in WITH_REDIS):
        print(f"{REDIS} is missing (make peers): nothing to compare with", file=sys.stderr)
        return 2
    os.sched_setaffinity(0, {cores()[1]})
    print(f"Stall of other clients while one command runs; headwater {build_kind()}")
    chosen = [
        make
        for make in subjects(short=options.short)
        if not options.rows or any(text in make().name for text in options.rows)
    ]
    rows = judge(chosen, options.rounds)
    print(
        f"{sum(row.passes() for row in rows)} of {len(rows)} pass (bound {BOUND:g} times Redis's)"
    )
    return 0 if rows and all(row.passes() for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
