"""Redis with `io-threads`, compared with Headwater, whose loop is one thread.

These rows have no verdict. The servers may use every core except the client's. If there are only two
cores, they may use both, and the client uses one of them too: I/O threads can gain little then.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from benchmarks.rows import OURS, REDIS, Row
from benchmarks.selection import Selection
from benchmarks.stores import HEADWATER, USABLE, Kind, cores, measured
from benchmarks.throughput import one_row
from benchmarks.workloads import WORKLOADS, clean_up

COUNTS: Final = (1, 2, 4)

SHOWN: Final = (
    "XADD 2 fields, c=50 P=1 (by CPU)",
    "XADD 2 fields, c=50 P=16",
    "XADD 5 fields 150 B, c=50 P=16",
    "XRANGE COUNT 100, c=8",
    "XREADGROUP + XACK of 100, c=8",
)

KINDS: Final = (
    HEADWATER,
    *(
        Kind(f"{REDIS} io-threads {count}", peer=REDIS, arguments=("--io-threads", str(count)))
        for count in COUNTS
    ),
)


def server_cores() -> set[int]:
    """Return all cores except the client's, if these are at least two; otherwise all cores."""
    others = USABLE - {cores()[1]}
    return set(others if len(others) >= 2 else USABLE)


def best(row: Row) -> str:
    """Return the name of the peer with the most operations per second."""
    others = {name: series.median for name, series in row.series.items() if name != OURS}
    return max(others, key=lambda name: others[name])


def rows(selection: Selection) -> Iterator[Row]:
    """Yield some rows of the table without a journal."""
    chosen = [one for one in WORKLOADS if one.name in SHOWN and selection.wants(one.name)]
    if not chosen:
        return
    with measured(KINDS, server_cores=server_cores()) as stores:
        for workload in chosen:
            row = one_row("io-threads", workload, stores, selection, target=None)
            row.against = best(row)
            row.note = f"the ratio is to {row.against}, the best"
            yield row
            clean_up(workload, stores)
