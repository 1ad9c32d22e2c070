"""A new replica takes a copy of everything: how long it takes, and what writers notice meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from benchmarks.replication.pairs import arguments, follow, replica_of, wait_for_offset
from benchmarks.rows import OURS, OWN_VALUE, TIMES, Row, Target
from benchmarks.storage.servers import FAILURES, Unmeasured, available, configure, fill, rotated
from benchmarks.storage.sizes import Sizes
from benchmarks.stores import Kind, Store, running
from benchmarks.workloads import FIELDS_5, xadd

SECTION: Final = "full copy"
COPY: Final = "a replica takes a full copy, entries of 150 B"
COPY_COLD: Final = "a replica takes a full copy, most entries on disk"
P99: Final = "writers while replicas take copies, p99 of without"

KEPT: Final = "bench:kept"
WRITTEN: Final = "bench:0"
"""The stream that `benchmarks.workloads.xadd` writes to; removed after each measurement."""

RUN: Final = xadd(FIELDS_5, connections=50, pipeline=16)
LEAST_COVERED: Final = 0.4
"""The share of the time in which a copy has to be under way; starting the next replica takes time as well."""


def hot(sizes: Sizes, scratch: Path) -> Iterator[Row]:
    """Yield the row of a copy whose entries are in memory."""
    yield from _copies(Row(SECTION, COPY, "s", better="less", target=Target(1.0, 0.5)), sizes)


def cold(sizes: Sizes, scratch: Path) -> Iterator[Row]:
    """Yield the row of a copy of a store with most of its entries on disk; the peers have all in memory."""
    row = Row(SECTION, COPY_COLD, "s", better="less", target=Target(1.0, 0.5))
    row.note = f"stream-hot-bytes {sizes.hot_bytes:,}"
    yield from _copies(row, sizes, (("stream-hot-bytes", str(sizes.hot_bytes)),))


def _copies(row: Row, sizes: Sizes, settings: tuple[tuple[str, str], ...] = ()) -> Iterator[Row]:
    with ExitStack() as stack:
        primaries = []
        for kind in available():
            primary = stack.enter_context(running(kind, *arguments(kind)))
            if kind.peer is None:
                configure(primary, settings)
            fill(primary, KEPT, sizes.entries, FIELDS_5)
            primary.wait_idle()
            primaries.append((kind, primary))
        for turn in range(sizes.rounds):
            for kind, primary in rotated(primaries, turn):
                with replica_of(primary, kind) as replica:
                    seconds = follow(primary, replica)
                    check_copy(primary, replica, sizes.entries)
                    row.of(kind.name).add(seconds)
    yield row


def check_copy(primary: Store, replica: Store, entries: int) -> None:
    """Raise `Unmeasured` if the replica does not have the entries."""
    wait_for_offset(primary, replica)
    with replica.client() as client:
        found = client.xlen(KEPT)
    if found != entries:
        raise Unmeasured(f"{replica.name}: the replica has {found} of {entries} entries")


def meanwhile(sizes: Sizes, scratch: Path) -> Iterator[Row]:
    """Yield the row of writers on a primary whose replicas take one copy after the other."""
    row = Row(SECTION, P99, TIMES, better="less", target=Target(2.0, 1.2, by=OWN_VALUE))
    with ExitStack() as stack:
        primaries = []
        for kind in available():
            primary = stack.enter_context(running(kind, *arguments(kind)))
            fill(primary, KEPT, sizes.entries, FIELDS_5)
            primaries.append((kind, primary))
        for turn in range(sizes.rounds):
            for kind, primary in rotated(primaries, turn):
                without = RUN(primary, sizes.seconds)
                remove(primary)
                with Copies(primary, kind) as copies:
                    during = RUN(primary, sizes.seconds)
                remove(primary)
                check_covered(kind.name, copies.covered)
                row.of(kind.name).add(
                    during.p99_us / without.p99_us,
                    p99_us=during.p99_us,
                    p99_without_us=without.p99_us,
                    rate=during.rate,
                    rate_without=without.rate,
                    covered=copies.covered,
                )
    yield row


def remove(store: Store) -> None:
    """Remove what was written, so that stores do not grow from round to round."""
    with store.client() as client:
        client.delete(WRITTEN)
    store.wait_idle()


def check_covered(name: str, covered: float) -> None:
    """Raise `Unmeasured` if copies were under way for too little of the time."""
    if name == OURS and covered < LEAST_COVERED:
        raise Unmeasured(
            f"{name}: a copy was under way in only {covered:.0%} of the time; use more --entries"
        )


class Copies(threading.Thread):
    """Lets one new replica after the other take a copy inside a ``with`` block.

    ``covered`` is the share of the time in which one was under way. The block begins with the first one. Raises
    `Unmeasured` if a copy fails.
    """

    def __init__(self, primary: Store, kind: Kind) -> None:
        super().__init__(name="copies")
        self.covered = 0.0
        self._primary = primary
        self._kind = kind
        self._begun = threading.Event()
        self._stop_wanted = threading.Event()
        self._failure: BaseException | None = None

    def __enter__(self) -> Self:
        self.start()
        self._begun.wait()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop_wanted.set()
        self.join()
        if error is None and self._failure is not None:
            raise Unmeasured(f"{self._primary.name}: a copy failed: {self._failure}")

    def run(self) -> None:
        copying, began = 0.0, None
        try:
            while not self._stop_wanted.is_set():
                with replica_of(self._primary, self._kind) as replica:
                    began = began or time.perf_counter()
                    self._begun.set()
                    copying += follow(self._primary, replica)
        except FAILURES as error:
            self._failure = error
        finally:
            self._begun.set()
        if began is not None:
            self.covered = copying / (time.perf_counter() - began)
