"""Operations per second and processor time per operation, for the rows of workloads.py."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from benchmarks.load import Sample
from benchmarks.rows import Row, Target
from benchmarks.selection import Selection
from benchmarks.stores import Kind, Store, measured
from benchmarks.workloads import WORKLOADS, Workload, clean_up

UNIT = "/s"


def rows(selection: Selection, fsync: str | None = None) -> Iterator[Row]:
    """Yield the rows, without a journal unless a row sets ``fsync``. With ``fsync``, yield the rows that do
    not set it, with an append-only file on all stores."""
    chosen = [one for one in WORKLOADS if selection.wants(one.name) and not (fsync and one.fsync)]
    yield from measure(fsync or "throughput", chosen, selection, fsync=fsync)


def measure(
    section: str,
    workloads: Sequence[Workload],
    selection: Selection,
    *,
    fsync: str | None = None,
) -> Iterator[Row]:
    """Yield a row for each workload. Consecutive workloads share stores of the same kinds, but only in
    memory: each workload with a journal has its own stores, because it writes gigabytes."""
    for _, group in groupby(workloads, key=lambda one: _stores_of(one, fsync)):
        alike = list(group)
        with measured(alike[0].kinds, fsync=alike[0].fsync or fsync) as stores:
            for workload in alike:
                yield one_row(section, workload, stores, selection, target=workload.target)
                clean_up(workload, stores)


def _stores_of(workload: Workload, fsync: str | None) -> tuple[Sequence[Kind], str]:
    """Return a key: consecutive workloads with the same key share their stores."""
    on_disk = workload.fsync or fsync
    return workload.kinds, workload.name if on_disk else ""


def one_row(
    section: str,
    workload: Workload,
    stores: Sequence[Store],
    selection: Selection,
    *,
    target: Target | None,
) -> Row:
    """Measure the workload on all stores in turn; each round begins with another store."""
    row = Row(section, workload.name, UNIT, target=target)
    for turn in range(selection.rounds):
        begin = turn % len(stores)
        for store in (*stores[begin:], *stores[:begin]):
            workload.prepare(store)
            add(row, store, workload.run(store, selection.seconds))
    return row


def add(row: Row, store: Store, sample: Sample) -> None:
    """Add one round of a store to the row."""
    row.of(store.name).add(
        sample.rate,
        cpu_us=sample.cpu_us,
        p50_us=sample.p50_us,
        p99_us=sample.p99_us,
        client_busy=sample.client_busy,
    )
