"""Operations per second by redis-benchmark, for comparison with results that are published elsewhere.

Published results usually come from this program. It needs more processor time than this project's client,
and is the bottleneck at one request per round trip.
"""

from __future__ import annotations

import csv
import subprocess
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from benchmarks.rows import Row
from benchmarks.selection import Selection
from benchmarks.stores import KINDS, Store, measured, on_cores
from tests import peers

XADD: Final = ("XADD", "bench:0", "*", "item", "tea-green-0001", "price", "1234")


class Subject(NamedTuple):
    """A row and its command line: connections, requests per batch, and requests to send for each second that
    a round should take."""

    name: str
    clients: int
    pipeline: int
    requests_per_second: int


SUBJECTS: Final = (
    Subject("redis-benchmark XADD, c=50 P=1", 50, 1, 60_000),
    Subject("redis-benchmark XADD, c=50 P=16", 50, 16, 400_000),
)


def rows(selection: Selection) -> Iterator[Row]:
    """Yield the selected rows; without redis-benchmark, rows that say why they were not measured."""
    for subject in SUBJECTS:
        if not selection.wants(subject.name):
            continue
        row = Row("redis-benchmark", subject.name, "/s")
        if peers.redis_benchmark() is None:
            row.missing = "redis-benchmark is missing (make peers)"
        else:
            with measured(KINDS) as stores:
                for _ in range(selection.rounds):
                    for store in stores:
                        add_round(row, store, subject, selection.seconds)
        yield row


def add_round(row: Row, store: Store, subject: Subject, seconds: float) -> None:
    """Run the program once and add its measurement to ``row``."""
    store.empty()
    total = max(1000, int(subject.requests_per_second * seconds))
    before = store.cpu_seconds()
    lines = _run(store, total, subject)
    spent = store.cpu_seconds() - before
    result = next(csv.DictReader(lines))
    row.of(store.name).add(
        float(result["rps"]),
        cpu_us=spent / total * 1e6,
        p50_us=float(result["p50_latency_ms"]) * 1000,
        p99_us=float(result["p99_latency_ms"]) * 1000,
    )


def _run(store: Store, total: int, subject: Subject) -> Sequence[str]:
    """Send ``total`` requests and return the program's table as lines of CSV."""
    program = peers.redis_benchmark()
    assert program is not None, "rows() has checked it"
    words = [
        str(program), "-h", store.host, "-p", str(store.port), "-c", str(subject.clients),
        "-P", str(subject.pipeline), "-n", str(total), "--csv", *XADD,
    ]  # fmt: skip
    with on_cores({store.client_core}):
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode or "rps" not in done.stdout:
        raise RuntimeError(
            f"redis-benchmark {' '.join(words[1:])}: {(done.stderr or done.stdout).strip()}"
        )
    lines = done.stdout.splitlines()
    return lines[next(at for at, line in enumerate(lines) if '"rps"' in line) :]
