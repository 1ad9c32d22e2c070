"""Operations a second and processor time an operation: the rows of workloads.py, round after round."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from benchmarks.asked import Asked
from benchmarks.load import Sample
from benchmarks.rows import Row, Target
from benchmarks.stores import Kind, Store, measured
from benchmarks.workloads import WORKLOADS, Workload, tidy

UNIT = "/s"


def rows(asked: Asked, fsync: str | None = None) -> Iterator[Row]:
    """The table with nothing kept on disk, but where a row says so; with ``fsync`` those that do not
    say so, with an append-only file on every side."""
    chosen = [one for one in WORKLOADS if asked.wants(one.name) and not (fsync and one.fsync)]
    yield from measure(fsync or "throughput", chosen, asked, fsync=fsync)


def measure(
    section: str,
    workloads: Sequence[Workload],
    asked: Asked,
    *,
    fsync: str | None = None,
) -> Iterator[Row]:
    """A row for each workload. Stores in memory stand for all workloads that use the like of them;
    what is kept on disk goes with its row, for it is gigabytes."""
    for _, group in groupby(workloads, key=lambda one: _stores_of(one, fsync)):
        alike = list(group)
        with measured(alike[0].kinds, fsync=alike[0].fsync or fsync) as stores:
            for workload in alike:
                yield one_row(section, workload, stores, asked, target=workload.target)
                tidy(workload, stores)


def _stores_of(workload: Workload, fsync: str | None) -> tuple[Sequence[Kind], str]:
    """Workloads that follow each other with the same of these share their stores."""
    on_disk = workload.fsync or fsync
    return workload.kinds, workload.name if on_disk else ""


def one_row(
    section: str,
    workload: Workload,
    stores: Sequence[Store],
    asked: Asked,
    *,
    target: Target | None,
) -> Row:
    """The workload on all stores, in turn; another one begins each round."""
    row = Row(section, workload.name, UNIT, target=target)
    for turn in range(asked.rounds):
        begin = turn % len(stores)
        for store in (*stores[begin:], *stores[:begin]):
            workload.prepare(store)
            add(row, store, workload.run(store, asked.seconds))
    return row


def add(row: Row, store: Store, sample: Sample) -> None:
    """One round more of a store."""
    row.of(store.name).add(
        sample.rate,
        cpu_us=sample.cpu_us,
        p50_us=sample.p50_us,
        p99_us=sample.p99_us,
        client_busy=sample.client_busy,
    )
