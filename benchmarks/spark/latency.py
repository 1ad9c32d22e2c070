"""The latency from an append to foreachBatch, in micro-batches of one row, compared with Spark's minimum.

The minimum is the latency of Spark's socket source: it stores nothing, plans nothing and reads its lines in
the JVM, so what remains is the cost of planning, checkpoint and foreachBatch, which any source has. The same
query runs on both sources in turn, with the default trigger and the same sink, in several rounds.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import redis

from headwater.spark import session
from headwater.testing.server import server_process

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SAMPLES: Final = 30
ROUNDS: Final = 3
WARM: Final = 5
"""Rows of a round that do not count, because the first batches compile their plans."""

PATIENCE_SECONDS: Final = 60.0
"""How long to wait for a row."""

Send = Callable[[int], None]


@contextmanager
def headwater_source(spark: SparkSession) -> Iterator[tuple[DataFrame, Send]]:
    """Open a stream on a new server; yield its DataFrame and a function that adds a row."""
    with (
        server_process("--appendfsync", "no") as server,
        redis.Redis.from_url(server.url, protocol=2) as client,
    ):
        client.xadd("s", {"n": -1})
        reader = spark.readStream.format("headwater").options(url=server.url, stream="s")
        yield reader.schema("n bigint").load(), lambda n: client.xadd("s", {"n": n})


@contextmanager
def socket_source(spark: SparkSession) -> Iterator[tuple[DataFrame, Send]]:
    """Open a socket source; yield its DataFrame and a function that sends a row."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        host, port = listener.getsockname()
        lines = spark.readStream.format("socket").options(host=host, port=str(port)).load()
        connected: list[socket.socket] = []

        def send(n: int) -> None:
            if not connected:
                connected.append(listener.accept()[0])
            connected[0].sendall(f"{n}\n".encode())

        try:
            yield lines.selectExpr("CAST(value AS bigint) AS n"), send
        finally:
            for connection in connected:
                connection.close()


SOURCES: Final[
    dict[str, Callable[[SparkSession], AbstractContextManager[tuple[DataFrame, Send]]]]
] = {"headwater": headwater_source, "socket": socket_source}


class Sink:
    """The function of foreachBatch, which records when each row arrives."""

    def __init__(self) -> None:
        self._seen: dict[int, float] = {}
        self._error: Exception | None = None
        self._changed = threading.Condition()

    def __call__(self, rows: DataFrame, _batch: int) -> None:
        try:
            found = [row.n for row in rows.collect()]
        except Exception as error:
            self._error = error  # Spark reports only its text, or nothing (StackOverflowError)
            raise
        at = time.perf_counter()
        with self._changed:
            self._seen.update(dict.fromkeys(found, at))
            self._changed.notify_all()

    def seen(self, n: int, query: StreamingQuery) -> float:
        """Wait for row ``n`` and return the time at which it arrived. Raises the error that ended
        ``query``."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        with self._changed:
            while not self._changed.wait_for(lambda: n in self._seen, 1):
                error = self._error or query.exception()
                if error is not None:
                    raise error
                assert time.monotonic() < deadline, f"row {n} has not arrived: {query.status}"
        return self._seen[n]


def round_of(spark: SparkSession, name: str, samples: int) -> tuple[list[float], list[Any]]:
    """Run one round: return the latencies in milliseconds, and for each batch the durations of its parts, as
    Spark reports them."""
    sink, taken = Sink(), list[float]()
    chance = random.Random(1)
    with tempfile.TemporaryDirectory() as directory, SOURCES[name](spark) as (frame, send):
        writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", directory)
        query = writer.start()
        try:
            for n in range(WARM + samples):
                # Rows arrive at random times, not in step with the end of the last batch.
                time.sleep(chance.uniform(0.05, 0.15))
                sent = time.perf_counter()
                send(n)
                taken.append((sink.seen(n, query) - sent) * 1000)
            query.processAllAvailable()
            progress = [one["durationMs"] for one in query.recentProgress if one["numInputRows"]]
        finally:
            query.stop()
    return taken[WARM:], progress[-samples:]


def measure(*, samples: int = SAMPLES, rounds: int = ROUNDS) -> dict[str, Any]:
    """Measure both sources: return p50 and p95 of the latency in milliseconds, and the median duration of each
    part of a batch."""
    quiet = {"spark.sql.streaming.numRecentProgressUpdates": str(WARM + samples + 10)}
    spark = session(app="latency", master="local[2]", config=quiet)
    spark.sparkContext.setLogLevel("FATAL")
    latencies: dict[str, list[float]] = {name: [] for name in SOURCES}
    parts: dict[str, list[Any]] = {name: [] for name in SOURCES}
    for _ in range(rounds):
        for name in SOURCES:
            taken, progress = round_of(spark, name, samples)
            latencies[name] += taken
            parts[name] += progress
    return {name: _summary(latencies[name], parts[name]) for name in SOURCES}


def _summary(latencies: list[float], parts: list[Any]) -> dict[str, Any]:
    cuts = statistics.quantiles(latencies, n=20)
    return {
        "samples": len(latencies),
        "p50_ms": round(statistics.median(latencies), 1),
        "p95_ms": round(cuts[18], 1),
        "batch_ms": {
            part: statistics.median(one.get(part, 0) for one in parts) for part in sorted(parts[0])
        },
    }


def show(found: dict[str, Any]) -> None:
    """Print the table."""
    print("append to foreachBatch, rows one by one, default trigger (ms)")
    columns = (
        *("triggerExecution", "latestOffset", "queryPlanning"),
        *("addBatch", "walCommit", "commitOffsets"),
    )
    print(f"{'':<12}{'p50':>8}{'p95':>8}" + "".join(f"{name:>18}" for name in columns))
    for name, one in found.items():
        batch = "".join(f"{one['batch_ms'].get(part, 0):>18.0f}" for part in columns)
        print(f"{name:<12}{one['p50_ms']:>8.0f}{one['p95_ms']:>8.0f}{batch}")


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark.latency", description=__doc__)
    parser.add_argument("--samples", type=int, default=SAMPLES, help="rows per round")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds per source")
    parser.add_argument("--output", type=Path, help="write the results to this JSON file")
    options = parser.parse_args()
    found = measure(samples=options.samples, rounds=options.rounds)
    show(found)
    if options.output:
        options.output.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
