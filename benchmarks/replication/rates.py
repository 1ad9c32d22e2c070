"""Operations per second on a primary with one replica, answered at once or when the replica has them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.load import Sample, request
from benchmarks.replication.pairs import Pair, pairs
from benchmarks.rows import OURS, Row, Target
from benchmarks.storage.servers import rotated
from benchmarks.storage.sizes import Sizes
from benchmarks.stores import Store
from benchmarks.workloads import FIELDS_2, additions, consume, empty, with_group, xadd

SECTION: Final = "with a replica"
ADD: Final = "XADD 2 fields, c=50 P=16, one replica"
READ: Final = "XREADGROUP + XACK of 100, c=8, one replica"
READ_ONE: Final = "XREADGROUP + XACK of 1, c=50, one replica"
SYNCHRONOUS: Final = "XADD 2 fields, c=50 P=16, answered by a replica"
SYNCHRONOUS_P99: Final = "XADD 2 fields, c=50 P=16, answered by a replica, p99"

PIPELINE: Final = 16
CONNECTIONS: Final = 50


def plain(sizes: Sizes, _scratch: Path) -> Iterator[Row]:
    """Yield the rows of a primary that does not wait for its replica."""
    subjects = (
        (ADD, xadd(FIELDS_2, connections=CONNECTIONS, pipeline=PIPELINE), empty),
        (READ, consume(8, 100), with_group),
        (READ_ONE, consume(50, 1), with_group),
    )
    with pairs() as found:
        for name, run, prepare in subjects:
            row = Row(SECTION, name, "/s", target=Target(1.3, 2.0))
            for turn in range(sizes.rounds):
                for pair in rotated(found, turn):
                    prepare(pair.primary)
                    pair.settle()
                    add(row, pair, run(pair.primary, sizes.seconds))
            for pair in found:
                pair.empty()
            yield row


def synchronous(sizes: Sizes, _scratch: Path) -> Iterator[Row]:
    """Yield the rows of replies that wait for a replica. The peers have ``WAIT 1 0`` at the end of each pipeline."""
    rate = Row(SECTION, SYNCHRONOUS, "/s", target=Target(1.2, 1.5))
    p99 = Row(SECTION, SYNCHRONOUS_P99, "µs", better="less", target=Target(1.0, 0.8))
    ours = xadd(FIELDS_2, connections=CONNECTIONS, pipeline=PIPELINE)
    with pairs((("synchronous-replicas", "1"),)) as found:
        for turn in range(sizes.rounds):
            for pair in rotated(found, turn):
                pair.empty()
                run = ours if pair.name == OURS else waiting
                sample = run(pair.primary, sizes.seconds)
                add(rate, pair, sample)
                p99.of(pair.name).add(sample.p99_us, p50_us=sample.p50_us)
    yield rate
    yield p99


def waiting(store: Store, seconds: float) -> Sample:
    """Add entries in pipelines that end with WAIT, which is not counted as an operation."""
    added = additions(FIELDS_2)
    requests: list[bytes] = []
    for at in range(0, len(added), PIPELINE):
        requests += [*added[at : at + PIPELINE], request(b"WAIT", b"1", b"0")]
    sample = store.load("repeat", seconds, CONNECTIONS, PIPELINE + 1, requests=requests)
    return sample._replace(operations=sample.operations * PIPELINE // (PIPELINE + 1))


def add(row: Row, pair: Pair, sample: Sample) -> None:
    """Add one round of a pair to the row."""
    row.of(pair.name).add(
        sample.rate,
        cpu_us=sample.cpu_us,
        p50_us=sample.p50_us,
        p99_us=sample.p99_us,
        client_busy=sample.client_busy,
    )
