"""Redis with `io-threads` beside Headwater, whose loop is one thread.

Shown, not judged. The servers have every core but the client's; where there are only two, both, and
the client takes its share of one of them: with so few, threads of input and output can gain little.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from benchmarks.asked import Asked
from benchmarks.rows import OURS, Row
from benchmarks.stores import HEADWATER, REDIS, USABLE, Kind, cores, measured
from benchmarks.throughput import one_row
from benchmarks.workloads import WORKLOADS, tidy

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
    """All but the client's where that leaves two or more, else all."""
    others = USABLE - {cores()[1]}
    return set(others if len(others) >= 2 else USABLE)


def best(row: Row) -> str:
    """The name of the peer with the most operations a second."""
    others = {name: series.median for name, series in row.series.items() if name != OURS}
    return max(others, key=lambda name: others[name])


def rows(asked: Asked) -> Iterator[Row]:
    """Some rows of the table with nothing kept on disk."""
    chosen = [one for one in WORKLOADS if one.name in SHOWN and asked.wants(one.name)]
    if not chosen:
        return
    with measured(KINDS, server_cores=server_cores()) as stores:
        for workload in chosen:
            row = one_row("io-threads", workload, stores, asked, target=None)
            row.against = best(row)
            row.note = f"the ratio is to {row.against}, the best"
            yield row
            tidy(workload, stores)
