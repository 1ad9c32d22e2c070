"""From an append to the consumer that was blocked: ten of them, ten thousand entries a second.

An entry carries the moment at which it was due to be sent, so that a server that stands still is
charged for all that it kept waiting.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from benchmarks.asked import Asked
from benchmarks.rows import Row, Target
from benchmarks.stores import KINDS, Store, measured

CONSUMERS: Final = 10
RATE: Final = 10_000
LEAST_SECONDS: Final = 2.0
"""So that twenty entries and more are beyond p99.9."""

TARGET: Final = Target(1.0, 0.8)
SHARES: Final = ("p50", "p99", "p99.9")


def rows(asked: Asked, fsync: str | None = None) -> Iterator[Row]:
    """A row for each share of the entries; one measurement gives all three. ``fsync`` gives every
    store an append-only file."""
    names = [f"append to a blocked reader, {share}" for share in SHARES]
    if not any(asked.wants(name) for name in names):
        return
    found = [Row(fsync or "latency", name, "µs", better="less", target=TARGET) for name in names]
    with measured(KINDS, fsync=fsync) as stores:
        for _ in range(asked.rounds):
            for store in stores:
                add_round(found, store, max(LEAST_SECONDS, asked.seconds))
    yield from found


def add_round(found: list[Row], store: Store, seconds: float) -> None:
    """One round of one store."""
    store.empty()
    with store.client() as client:
        client.xgroup_create("bench:wake", "g", "$", mkstream=True)
    sample = store.load("deliver", seconds, CONSUMERS, RATE, "bench:wake", "g")
    shares = (sample.p50_us, sample.p99_us, sample.p999_us)
    for row, figure in zip(found, shares, strict=True):
        row.of(store.name).add(figure, cpu_us=sample.cpu_us, delivered_per_s=sample.rate)
