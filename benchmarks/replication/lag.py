"""The time from an append on the primary until a client that is blocked on the replica has it, under a steady load."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import redis

from benchmarks.replication.pairs import Pair, pairs
from benchmarks.rows import OWN_VALUE, Row, Target
from benchmarks.storage.servers import Unmeasured, rotated
from benchmarks.storage.sizes import Sizes
from benchmarks.workloads import FIELDS_2, additions

SECTION: Final = "lag"
LAG: Final = "lag of a replica at 50,000 writes/s, p99"

RATE: Final = 50_000
BATCH: Final = 100
PROBE: Final = "bench:probe"
LEAST_SECONDS: Final = 2.0
LEAST_SHARE: Final = 0.95
"""The share of the load that must have been sent in time."""


def rows(sizes: Sizes, _scratch: Path) -> Iterator[Row]:
    """Yield the row of the lag."""
    row = Row(SECTION, LAG, "ms", better="less", target=Target(5.0, 1.0, by=OWN_VALUE))
    row.note = "the replica, the writer and the reader share one core"
    with pairs() as found:
        for turn in range(sizes.rounds):
            for pair in rotated(found, turn):
                pair.empty()
                lags = sorted(measure(pair, max(LEAST_SECONDS, sizes.seconds)))
                p99 = lags[int(len(lags) * 0.99)]
                row.of(pair.name).add(1000 * p99, p50_ms=1000 * statistics.median(lags))
    yield row


def measure(pair: Pair, seconds: float) -> list[float]:
    """Return the seconds that probes took which were sent every ten batches. Raises `Unmeasured` if the load was less
    than `RATE`."""
    reader = Reader(pair)
    reader.start()
    batch = b"".join(additions(FIELDS_2, times=BATCH))
    batches = int(seconds * RATE / BATCH)
    with (
        pair.primary.client() as client,
        redis.Redis(pair.primary.host, pair.primary.port) as probe,
    ):
        link = client.connection_pool.get_connection()
        link.connect()
        began = time.perf_counter()
        for number in range(batches):
            due = began + number * BATCH / RATE
            while (early := due - time.perf_counter()) > 0:
                time.sleep(early)
            link.send_packed_command([batch])
            if number % 10 == 0:
                probe.xadd(PROBE, {"sent": repr(time.perf_counter())})
            for _ in range(BATCH):
                link.read_response()
        took = time.perf_counter() - began
        probe.xadd(PROBE, {"end": "1"})
    reader.join()
    if took > seconds / LEAST_SHARE:
        raise Unmeasured(
            f"{pair.name}: {RATE} writes a second took {took / seconds:.2f} of the time"
        )
    return reader.lags


class Reader(threading.Thread):
    """Reads the probes on the replica until the last one."""

    def __init__(self, pair: Pair) -> None:
        super().__init__(name="reader of probes")
        self.lags: list[float] = []
        self._replica = pair.replica

    def run(self) -> None:
        position = "0"
        with self._replica.client() as client:
            while True:
                found = client.xread({PROBE: position}, block=5000)
                arrived = time.perf_counter()
                for _stream, entries in found or []:
                    position = entries[-1][0]
                    sent = [fields.get(b"sent") for _id, fields in entries]
                    self.lags += [arrived - float(one) for one in sent if one]
                    if None in sent:
                        return
