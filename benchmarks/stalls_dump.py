"""How long DUMP and RESTORE of a large stream take, and how long they stall other clients, compared with
Redis 8.2 in the same run. A part of ``make bench-scale``; ``make slice`` runs it as a gate.

    one connection     DUMP s ──────▶ payload, RESTORE t 0 payload REPLACE ──────▶ OK
    another            PING  PING  PING  PING …     the longest time that one takes is the stall

The stream has 200,000 entries of two fields in a group, all pending with ten consumers. Both servers write
a journal with everysec, and may use every core. The bounds apply to Headwater only. That of the stall does not depend
on Redis's result; that of the total is half a second, or half as much again as Redis takes on a machine where that is
longer. If a row of Headwater is over a bound, all rows are measured twice more and the best
results count.
"""

from __future__ import annotations

import argparse
import socket
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import redis

from benchmarks.machine import build_kind
from benchmarks.rows import OURS
from benchmarks.stores import USABLE, WITH_REDIS, Store, measured

ENTRIES: Final = 200_000
MOST_STALL_MS: Final = 50.0
MOST_TOTAL_MS: Final = 500.0
MOST_RATIO: Final = 1.5
"""The longest total in multiples of Redis's, on a machine where that is more than `MOST_TOTAL_MS`."""
FIELDS: Final = ("field", "######", "user", "user-#####")

_PING: Final = b"*1\r\n$4\r\nPING\r\n"
_PAUSE_S: Final = 0.0005
"""The pause between two PINGs. Without it the PINGs would load the server."""


@dataclass(frozen=True)
class Row:
    """One command on one server."""

    command: str
    store: str
    total_ms: float
    stall_ms: float

    def over(self, rows: Iterable[Row]) -> bool:
        """Return whether this is a row of Headwater over a bound, given all rows of the run."""
        peers = [row.total_ms for row in rows if row.command == self.command and row.store != OURS]
        most_ms = max(MOST_TOTAL_MS, MOST_RATIO * min(peers, default=0.0))
        return self.store == OURS and (self.total_ms > most_ms or self.stall_ms > MOST_STALL_MS)

    def text(self) -> str:
        return (
            f"{self.command:8} {self.store:12} total {self.total_ms:8.1f} ms   "
            f"longest PING {self.stall_ms:7.1f} ms"
        )


class Pinger(threading.Thread):
    """Sends one PING after another until `end`."""

    def __init__(self, store: Store) -> None:
        super().__init__(daemon=True)
        self.longest = 0.0
        self._ended = threading.Event()
        self._begun = threading.Event()
        self._socket = socket.create_connection((store.host, store.port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def run(self) -> None:
        with self._socket:
            while not self._ended.is_set():
                began = time.perf_counter()
                self._socket.sendall(_PING)
                self._socket.recv(16)
                self.longest = max(self.longest, time.perf_counter() - began)
                self._begun.set()
                time.sleep(_PAUSE_S)

    def begin(self) -> None:
        """Start, and ignore the time of the first PING."""
        self.start()
        self._begun.wait()
        self.longest = 0.0

    def end(self) -> float:
        """Stop, and return the longest time that a PING took, in milliseconds."""
        self._ended.set()
        self.join()
        return 1000 * self.longest


def fill(store: Store, entries: int) -> None:
    """Make the stream that is dumped."""
    with store.client() as client:
        client.flushall()
    store.fill("s", entries, FIELDS)
    store.deliver("s", "g", entries)
    store.wait_idle()


def measure(store: Store) -> list[Row]:
    """Measure DUMP, and RESTORE of its payload."""
    rows: list[Row] = []
    payload = b""
    with store.client() as client:
        client.ping()
        for command in ("DUMP", "RESTORE"):
            store.wait_idle()
            pinger = Pinger(store)
            pinger.begin()
            began = time.perf_counter()
            payload = _run(client, command, payload)
            total = time.perf_counter() - began
            rows.append(Row(command, store.name, 1000 * total, pinger.end()))
    return rows


def _run(client: redis.Redis, command: str, payload: bytes) -> bytes:
    if command == "DUMP":
        return client.dump("s") or b""
    client.restore("t", 0, payload, replace=True)
    return payload


def rounds(found: list[Store], entries: int, count: int) -> list[Row]:
    """Return the best of ``count`` measurements of each row: disturbances only add time."""
    for store in found:
        fill(store, entries)
    best: dict[tuple[str, str], Row] = {}
    for _ in range(count):
        for store in found:
            for row in measure(store):
                there = best.get((row.command, row.store), row)
                best[row.command, row.store] = Row(
                    row.command,
                    row.store,
                    min(row.total_ms, there.total_ms),
                    min(row.stall_ms, there.stall_ms),
                )
    return [best[key] for key in sorted(best)]


def failing(rows: list[Row]) -> bool:
    """Return whether any row is over its bounds."""
    return any(row.over(rows) for row in rows)


def gate(entries: int = ENTRIES) -> list[Row]:
    """Measure and print the rows, again if one is over its bound."""
    with measured(WITH_REDIS, fsync="everysec", server_cores=set(USABLE)) as found:
        rows = rounds(found, entries, 1)
        if failing(rows):
            rows = rounds(found, entries, 2)
    for row in rows:
        print(("FAIL  " if row.over(rows) else "      ") + row.text(), flush=True)
    return rows


def main() -> int:
    """Measure and print. Returns 1 if a compiled store exceeds a bound."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=ENTRIES)
    kind = build_kind()
    print(f"DUMP and RESTORE; headwater {kind}")
    rows = gate(parser.parse_args().entries)
    return 1 if failing(rows) and not kind.startswith("plain") else 0


if __name__ == "__main__":
    sys.exit(main())
