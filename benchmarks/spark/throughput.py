"""Rows per second read from a stream to count, to noop and to Parquet, compared with peers in the same run.

The entries have five fields with varied values, about 155 bytes per row: an integer, a decimal, a string,
a timestamp, a category. Spark runs as ``local[2]``, the server on the same two cores. Before measuring,
the rows and sums of every reader are checked, and each repeats each action for `WARM_SECONDS`: while the JVM
compiles what it runs, it takes up to one of the two cores. Then all readers are measured in turn, in several
rounds. So the figures are those of a query that has run for a minute, not of the first batch.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import redis

from benchmarks.rows import OURS
from benchmarks.spark.sources import (
    FIRST_MS,
    SCHEMA,
    STREAM,
    ConstantSource,
    HiredisSource,
    TuplesSource,
)
from headwater.testing.server import server_process

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS: Final = (1_000_000, 2_000_000)
ROUNDS: Final = 5
WARM_SECONDS: Final = 15.0
ACTIONS: Final = ("count", "noop", "parquet")

TUPLES: Final = "redis-py rows to tuples"
HIREDIS: Final = "hiredis to Arrow"
CONSTANT: Final = "a constant Arrow batch"
PARQUET: Final = "spark.read.parquet"

REQUIRED: Final = {"noop": 0.8e6, "parquet": 0.8e6}
GOALS: Final = {"noop": 1.2e6, "parquet": 1.0e6}
REQUIRED_RATIO: Final = 2.5
LEAST_ROWS: Final = 1_000_000
"""Requirements apply from this many rows on; with fewer, the start of a job dominates."""

_CATEGORIES: Final = ("tea", "coffee", "books", "garden", "kitchen", "music", "toys")
_CHUNK: Final = 5000

Read = Callable[[int], "DataFrame"]


def fill(client: redis.Redis, rows: int) -> int:
    """Add the entries; entry n has the id ``FIRST_MS + n``. Returns the bytes of all values."""
    rng = random.Random(1)
    letters = "".join(rng.choices("abcdefghijklmnopqrstuvwxyz     ", k=4096))
    size = 0
    for start in range(0, rows, _CHUNK):
        pipeline = client.pipeline(transaction=False)
        for number in range(start, min(rows, start + _CHUNK)):
            at, length = rng.randrange(4000), rng.randrange(60, 96)
            micros = rng.randrange(86_400_000_000)
            seconds, fraction = divmod(micros, 1_000_000)
            moment = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
            body = (
                *("order_id", str(rng.randrange(10**9))),
                *("price", f"{rng.randrange(10**6) / 100:.2f}"),
                *("item", letters[at : at + length]),
                *("placed", f"2026-11-21T{moment}.{fraction:06d}Z"),
                *("category", rng.choice(_CATEGORIES)),
            )
            size += sum(map(len, body))
            pipeline.execute_command("XADD", STREAM, f"{FIRST_MS + number}-0", *body)
        pipeline.execute()
    return size


def measure(
    spark: SparkSession, *, rows: Sequence[int] = ROWS, rounds: int = ROUNDS
) -> dict[str, Any]:
    """Return, for each number of rows, reader → action → rows per second in each round."""
    for source in (TuplesSource, HiredisSource, ConstantSource):
        spark.dataSource.register(source)
    with tempfile.TemporaryDirectory() as place, server_process("--appendfsync", "no") as server:
        with redis.Redis.from_url(server.url, protocol=2) as client:
            size = fill(client, max(rows))
        readers = _readers(spark, server.url, Path(place))
        for n in rows:
            readers[OURS](n).write.parquet(str(Path(place) / f"source-{n}"))
            _same(readers, n)
        _warm_up(readers, rows[0], Path(place))
        return {
            "bytes_per_row": round(size / max(rows)),
            "rows": {str(n): _of_size(readers, n, rounds, Path(place)) for n in rows},
        }


def _readers(spark: SparkSession, url: str, place: Path) -> dict[str, Read]:
    def ours(rows: int) -> DataFrame:
        given = {"url": url, "stream": STREAM, "minPartitions": "2"}
        reader = spark.read.format("headwater").options(**given, endingId=str(FIRST_MS + rows - 1))
        return reader.schema(SCHEMA).load()

    def peer(name: str) -> Read:
        return lambda rows: spark.read.format(name).options(url=url, rows=rows).load()

    return {
        TUPLES: peer(TuplesSource.name()),
        HIREDIS: peer(HiredisSource.name()),
        OURS: ours,
        CONSTANT: peer(ConstantSource.name()),
        PARQUET: lambda rows: spark.read.parquet(str(place / f"source-{rows}")),
    }


def _warm_up(readers: dict[str, Read], rows: int, place: Path) -> None:
    for read in readers.values():
        for action in ACTIONS:
            until = time.perf_counter() + WARM_SECONDS
            while time.perf_counter() < until:
                _timed(read(rows), action, place / "out")


def _of_size(
    readers: dict[str, Read], rows: int, rounds: int, place: Path
) -> dict[str, dict[str, list[float]]]:
    found: dict[str, dict[str, list[float]]] = {
        name: {action: [] for action in ACTIONS} for name in readers
    }
    for _ in range(rounds):
        for action in ACTIONS:
            for name, read in readers.items():
                seconds = _timed(read(rows), action, place / "out")
                found[name][action].append(rows / seconds)
    return found


def _same(readers: dict[str, Read], rows: int) -> None:
    """Check that all readers return the same rows."""
    sums = {}
    for name, read in readers.items():
        frame = read(rows).selectExpr(
            "count(*)", "sum(order_id)", "sum(price)", "sum(length(item))", "max(placed)"
        )
        sums[name] = tuple(frame.collect()[0])
    expected = sums[TUPLES]
    assert expected[0] == rows, sums
    assert all(found == expected for name, found in sums.items() if name != CONSTANT), sums
    assert sums[CONSTANT][0] == rows, sums


def _timed(frame: DataFrame, action: str, place: Path) -> float:
    began = time.perf_counter()
    if action == "count":
        frame.count()
    elif action == "noop":
        frame.write.format("noop").mode("overwrite").save()
    else:
        frame.write.mode("overwrite").parquet(str(place))
    return time.perf_counter() - began


def _rate(found: dict[str, dict[str, list[float]]], name: str, action: str) -> float:
    return statistics.median(found[name][action])


def show(measured: dict[str, Any]) -> None:
    """Print the tables: million rows per second, and the ratio to the first row."""
    for rows, found in measured["rows"].items():
        title = f"{int(rows):,} rows of {measured['bytes_per_row']} B, million rows/s"
        print(f"{title:<44}" + "".join(f"{action:>16}" for action in ACTIONS))
        for name in found:
            cells = ""
            for action in ACTIONS:
                rate = _rate(found, name, action)
                times = rate / _rate(found, TUPLES, action)
                cells += f"{rate / 1e6:>9.2f} {times:>5.1f}x"
            print(f"{name:<44}{cells}")


def missed(measured: dict[str, Any]) -> list[str]:
    """Return a sentence for each required value that was missed."""
    said = []
    for rows, found in measured["rows"].items():
        if int(rows) < LEAST_ROWS:
            continue
        for action, required in REQUIRED.items():
            rate = _rate(found, OURS, action)
            if rate < required:
                said.append(
                    f"{int(rows):,} rows to {action}: {rate / 1e6:.2f} million per second, "
                    f"required are {required / 1e6:.1f} (goal {GOALS[action] / 1e6:.1f})"
                )
            times = rate / _rate(found, TUPLES, action)
            if times < REQUIRED_RATIO:
                said.append(
                    f"{int(rows):,} rows to {action}: {times:.2f} times {TUPLES}, "
                    f"required is {REQUIRED_RATIO}"
                )
    return said
