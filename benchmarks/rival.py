"""redis-benchmark's own figures: the client that others publish with.

It is a heavier client than ours and is itself what is measured at one request a round trip; it is
shown so that figures published elsewhere can be placed beside these.
"""

from __future__ import annotations

import csv
import subprocess
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from benchmarks.asked import Asked
from benchmarks.rows import Row
from benchmarks.stores import KINDS, Store, measured, on_cores
from tests import peers

XADD: Final = ("XADD", "bench:0", "*", "item", "tea-green-0001", "price", "1234")


class Subject(NamedTuple):
    """A command line: so many clients, requests a batch, requests a second of measuring."""

    name: str
    clients: int
    pipeline: int
    requests_per_second: int


SUBJECTS: Final = (
    Subject("redis-benchmark XADD, c=50 P=1", 50, 1, 60_000),
    Subject("redis-benchmark XADD, c=50 P=16", 50, 16, 400_000),
)


def rows(asked: Asked) -> Iterator[Row]:
    """Both, or why there are none."""
    for subject in SUBJECTS:
        if not asked.wants(subject.name):
            continue
        row = Row("redis-benchmark", subject.name, "/s")
        if peers.redis_benchmark() is None:
            row.missing = "redis-benchmark is not here (make peers)"
        else:
            with measured(KINDS) as stores:
                for _ in range(asked.rounds):
                    for store in stores:
                        add_round(row, store, subject, asked.seconds)
        yield row


def add_round(row: Row, store: Store, subject: Subject, seconds: float) -> None:
    """One run of the program."""
    store.empty()
    total = max(1000, int(subject.requests_per_second * seconds))
    before = store.cpu_seconds()
    said = _run(store, total, subject)
    spent = store.cpu_seconds() - before
    figures = next(csv.DictReader(said))
    row.of(store.name).add(
        float(figures["rps"]),
        cpu_us=spent / total * 1e6,
        p50_us=float(figures["p50_latency_ms"]) * 1000,
        p99_us=float(figures["p99_latency_ms"]) * 1000,
    )


def _run(store: Store, total: int, subject: Subject) -> Sequence[str]:
    program = peers.redis_benchmark()
    assert program is not None, "rows() has looked"
    words = [
        str(program), "-h", store.host, "-p", str(store.port), "-c", str(subject.clients),
        "-P", str(subject.pipeline), "-n", str(total), "--csv", *XADD,
    ]  # fmt: skip
    with on_cores({store.client_core}):
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode or "rps" not in done.stdout:
        raise RuntimeError(f"{' '.join(words[1:])}: {(done.stderr or done.stdout).strip()}")
    lines = done.stdout.splitlines()
    return lines[next(at for at, line in enumerate(lines) if '"rps"' in line) :]
