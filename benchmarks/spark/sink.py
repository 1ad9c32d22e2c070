"""Writing rows to a stream, exactly once, on Headwater and on Redis 8.2.

A streaming query reads a Parquet file of rows with five fields (155 bytes) in one batch. The time is that of the batch's
tasks and of publishing, without the query's start: ``addBatch`` in Spark's progress.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import redis

from benchmarks.spark.streams import opened_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS: Final = 500_000
ROUNDS: Final = 5
STORES: Final = ("headwater", "redis-8.2")
COLUMNS: Final = (
    "id AS order_id",
    "concat('item ', lpad(id % 500, 4, '0'), ' of the catalogue, in its usual packing') AS item",
    "CAST(id % 10000 / 100 AS DECIMAL(10, 2)) AS price",
    "CAST(id % 9 + 1 AS INT) AS quantity",
    "timestamp_seconds(1763683200 + id % 86400) AS placed",
)

REQUIRED: Final = 60_000
GOAL: Final = 150_000


def measure(spark: SparkSession, *, rows: int = ROWS, rounds: int = ROUNDS) -> dict[str, Any]:
    """Return the rows per second of each store: the median of ``rounds``, and the slowest and fastest."""
    found: dict[str, Any] = {"rows": rows}
    with tempfile.TemporaryDirectory() as place:
        files = str(Path(place) / "rows")
        # Spark makes a task for each file: one for each core.
        spark.range(rows).selectExpr(*COLUMNS).repartition(2).write.parquet(files)
        for name in STORES:
            with opened_store(name) as (url, client):
                speeds = [
                    _speed(spark, files, url, client, str(Path(place) / f"{name}-{number}"))
                    for number in range(rounds + 1)
                ][1:]
            found[name] = {
                "rows_per_s": statistics.median(speeds),
                "range": [min(speeds), max(speeds)],
            }
    return found


def _speed(spark: SparkSession, files: str, url: str, client: redis.Redis, at: str) -> float:
    client.flushall()
    query = (
        spark.readStream.schema(spark.read.parquet(files).schema)
        .parquet(files)
        .writeStream.format("headwater")
        .options(url=url, stream="orders", checkpointLocation=at)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    written = [one for one in query.recentProgress if one["numInputRows"]]
    rows = sum(one["numInputRows"] for one in written)
    assert client.xlen("orders") == rows, (client.xlen("orders"), rows)
    return float(rows * 1000 / sum(one["durationMs"]["addBatch"] for one in written))


def show(found: dict[str, Any]) -> None:
    """Print the rows per second of each store."""
    print(f"{found['rows']:,} rows to a stream, exactly once, thousand rows/s")
    for name in STORES:
        low, high = found[name]["range"]
        print(
            f"{name:<12}{found[name]['rows_per_s'] / 1e3:>8.0f}  ({low / 1e3:.0f} to {high / 1e3:.0f})"
        )


def missed(found: dict[str, Any]) -> list[str]:
    """Describe each store that is slower than required."""
    return [
        f"{name}: {found[name]['rows_per_s']:,.0f} rows/s, required are {REQUIRED:,} (goal {GOAL:,})"
        for name in STORES
        if found[name]["rows_per_s"] < REQUIRED
    ]
