"""``make bench-replication``: what a replica costs, in the same run on Headwater, Redis 8.2.3 and Valkey 9.1.2.

    plain        a primary with one replica: XADD in pipelines, reading and acknowledging
    synchronous  replies that wait for the replica; the peers end each pipeline with WAIT 1 0
    copy         a new replica takes a copy of a million entries
    cold         the same, with most entries of Headwater's primary on disk
    meanwhile    writers while replicas take copies, compared with those without
    lag          from an append on the primary until a client blocked on the replica has it, 50,000 writes/s

The time of a failover is measured by `make failover`. Prints a table and writes JSON: a complete run to
benchmarks/results/replication/, another one to artifacts/bench-replication.json. Exits with 1 if a row misses its
required value or cannot be measured, and says which, with its figures or the reason.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from benchmarks.parts import Benchmark, Part
from benchmarks.replication import copies, lag, rates
from benchmarks.storage.page import REPLICATION

PARTS: Final[dict[str, Part]] = {
    "plain": Part(rates.plain, (rates.ADD, rates.READ, rates.READ_ONE)),
    "synchronous": Part(rates.synchronous, (rates.SYNCHRONOUS, rates.SYNCHRONOUS_P99)),
    "copy": Part(copies.hot, (copies.COPY,)),
    "cold": Part(copies.cold, (copies.COPY_COLD,)),
    "meanwhile": Part(copies.meanwhile, (copies.P99,)),
    "lag": Part(lag.rows, (lag.LAG,)),
}
BENCHMARK: Final = Benchmark(
    "make bench-replication",
    __doc__ or "",
    PARTS,
    directory=REPLICATION,
    part=Path("artifacts", "bench-replication.json"),
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.run(BENCHMARK.parser().parse_args()))
