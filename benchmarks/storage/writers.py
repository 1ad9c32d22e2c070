"""Writers while a checkpoint runs on the other core, compared with those without, and with Redis's rewrite."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from benchmarks.load import Sample
from benchmarks.rows import OURS, OWN_VALUE, TIMES, Row, Target
from benchmarks.storage.rewriting import Rewriter
from benchmarks.storage.servers import Unmeasured, available, fill, rotated, running_stored
from benchmarks.storage.sizes import Sizes
from benchmarks.stores import Store, cores
from benchmarks.workloads import FIELDS_5, xadd

SECTION: Final = "checkpoint"
RATE: Final = "writers during a checkpoint, throughput of without"
P99: Final = "writers during a checkpoint, p99"

KEPT: Final = "bench:kept"
WRITTEN: Final = "bench:0"
"""The stream that `benchmarks.workloads.xadd` writes to; removed after each measurement."""

RUN: Final = xadd(FIELDS_5, connections=50, pipeline=16)

LEAST_COVERED: Final = 0.5
"""The share of the time in which a rewrite has to run; the end of a small one is noticed late."""


def writers(sizes: Sizes, scratch: Path) -> Iterator[Row]:
    """Yield the rows of throughput and p99. The stores keep entries, so that a checkpoint takes some time."""
    rate = Row(SECTION, RATE, TIMES, target=Target(0.9, 0.97, by=OWN_VALUE))
    p99 = Row(SECTION, P99, "µs", better="less", target=Target(1.0, 0.5))
    with ExitStack() as stack:
        stores: list[Store] = []
        for kind in available():
            _, store = stack.enter_context(running_stored(kind, scratch / kind.name))
            fill(store, KEPT, sizes.entries, FIELDS_5)
            store.wait_idle()
            stores.append(store)
        for turn in range(sizes.rounds):
            for store in rotated(stores, turn):
                add_round(rate, p99, store, sizes.seconds)
    yield rate
    yield p99


def add_round(rate: Row, p99: Row, store: Store, seconds: float) -> None:
    """Measure a store without a checkpoint and with one, and add both rows' values."""
    without = RUN(store, seconds)
    remove(store)
    with Rewriter(store, cores()[1]) as rewriter:
        during = RUN(store, seconds)
    remove(store)
    check_covered(store.name, rewriter.covered)
    add_samples(rate, p99, store.name, without, during)
    rate.of(store.name).others.setdefault("covered", []).append(rewriter.covered)


def add_samples(rate: Row, p99: Row, name: str, without: Sample, during: Sample) -> None:
    """Add the ratio of the rates, and the p99 during the checkpoint."""
    rate.of(name).add(
        during.rate / without.rate,
        rate=during.rate,
        rate_without=without.rate,
        client_busy=during.client_busy,
    )
    p99.of(name).add(during.p99_us, p50_us=during.p50_us, p99_without_us=without.p99_us)


def check_covered(name: str, covered: float) -> None:
    """Raise `Unmeasured` if Headwater's checkpoints ran for less than half of the time. Peers whose rewrites
    are shorter have the advantage."""
    if name == OURS and covered < LEAST_COVERED:
        raise Unmeasured(
            f"{name}: a checkpoint ran in only {covered:.0%} of the time; use more --entries"
        )


def remove(store: Store) -> None:
    """Remove what was written, so that stores do not grow from round to round."""
    with store.client() as client:
        client.delete(WRITTEN)
    store.wait_idle()
