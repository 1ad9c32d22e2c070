"""The latency from an append to a blocked consumer: ten consumers, ten thousand entries per second.

An entry carries the time at which it was due to be sent. So if the server pauses, all entries that it
delays count with their full delay.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from benchmarks.rows import Row, Target
from benchmarks.selection import Selection
from benchmarks.stores import KINDS, Store, measured

CONSUMERS: Final = 10
RATE: Final = 10_000
LEAST_SECONDS: Final = 2.0
"""Long enough that at least twenty entries are beyond p99.9."""

TARGET: Final = Target(1.0, 0.8)
SHARES: Final = ("p50", "p99", "p99.9")


def rows(selection: Selection, fsync: str | None = None) -> Iterator[Row]:
    """Yield a row for each percentile; one measurement gives all three. ``fsync`` gives every store an
    append-only file."""
    names = [f"append to a blocked reader, {share}" for share in SHARES]
    if not any(selection.wants(name) for name in names):
        return
    found = [Row(fsync or "latency", name, "µs", better="less", target=TARGET) for name in names]
    with measured(KINDS, fsync=fsync) as stores:
        for _ in range(selection.rounds):
            for store in stores:
                add_round(found, store, max(LEAST_SECONDS, selection.seconds))
    yield from found


def add_round(found: list[Row], store: Store, seconds: float) -> None:
    """Measure one round of one store."""
    store.empty()
    with store.client() as client:
        client.xgroup_create("bench:wake", "g", "$", mkstream=True)
    sample = store.load("deliver", seconds, CONSUMERS, RATE, "bench:wake", "g")
    shares = (sample.p50_us, sample.p99_us, sample.p999_us)
    for row, latency in zip(found, shares, strict=True):
        row.of(store.name).add(latency, cpu_us=sample.cpu_us, delivered_per_s=sample.rate)
