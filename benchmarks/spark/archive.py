"""Reading an archive, compared with `spark.read.parquet` of the same files in the same run.

    archive   headwater.spark.read: Spark's reader for the files, the source for later entries
    source    format("headwater"): every row goes through Arrow IPC from a Python process to the JVM
    parquet   spark.read.parquet: reads neither the manifest nor the stream

All read the same columns of the same files to noop, in turn, in several rounds. The ratio is that of
``archive`` to ``parquet``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import redis

from headwater.spark import read, session
from headwater.spark.archive.archiver import Archiver
from headwater.spark.archive.trimming import Trimming
from headwater.spark.core.ddl import parse_schema
from headwater.spark.core.options import parse_options
from headwater.testing.server import server_process

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS: Final = 2_000_000
ROUNDS: Final = 5
SCHEMA: Final = "order_id bigint, item string, price decimal(10, 2), quantity int, placed timestamp"
READ: Final = SCHEMA + ", id string"
REQUIRED: Final = 0.8

_ITEMS: Final = [
    f"item {number:04d} of the catalogue, in its usual packing" for number in range(500)
]


def fill(client: redis.Redis, rows: int) -> None:
    """Add entries of five fields and 155 bytes, with the ids of one day."""
    step = max(1, 86_400_000 // rows)
    for start in range(0, rows, 5000):
        pipeline = client.pipeline(transaction=False)
        for number in range(start, min(rows, start + 5000)):
            second = number % 86_400
            pipeline.execute_command(
                *("XADD", "orders", f"{1_763_683_200_000 + number * step}-0"),
                *("order_id", number, "item", _ITEMS[number % 500]),
                *("price", f"{number % 10_000 / 100:.2f}", "quantity", number % 9 + 1),
                "placed",
                f"2026-11-21T{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}Z",
            )
        pipeline.execute()


def measure(spark: SparkSession, *, rows: int = ROWS, rounds: int = ROUNDS) -> dict[str, Any]:
    """Return the rows per second of the three readers, and of archiving; medians of ``rounds``."""
    with tempfile.TemporaryDirectory() as place, server_process("--appendfsync", "no") as server:
        with redis.Redis.from_url(server.url, protocol=2) as client:
            fill(client, rows)
        given = {"url": server.url, "stream": "orders"}
        path = Path(place) / "archive"
        began = time.perf_counter()
        archiver = Archiver(parse_options(given), parse_schema(SCHEMA), path, Trimming())
        (done,) = archiver.run(spark)
        archiving = time.perf_counter() - began
        assert done.entries == done.trimmed == rows, done

        def ours() -> DataFrame:
            return read(spark, "orders", url=server.url, schema=READ, archive=path)

        def source() -> DataFrame:
            reader = spark.read.format("headwater").options(**given, archive=str(path))
            return reader.schema(READ).load()

        def parquet() -> DataFrame:
            return spark.read.parquet(str(path / "orders")).select(*parse_schema(READ).names)

        frames = {"archive": ours, "source": source, "parquet": parquet}
        assert {frame().count() for frame in frames.values()} == {rows}
        seconds: dict[str, list[float]] = {name: [] for name in frames}
        for _round in range(rounds):
            for name, frame in frames.items():
                seconds[name].append(_timed(frame))
    pace = {name: rows / statistics.median(took) for name, took in seconds.items()}
    return {
        "rows": rows,
        "bytes_per_row": done.bytes / rows,
        "archiving_rows_per_s": rows / archiving,
        **{f"{name}_rows_per_s": of for name, of in pace.items()},
        "ratio": pace["archive"] / pace["parquet"],
        "required_ratio": REQUIRED,
    }


def _timed(frame: Callable[[], DataFrame]) -> float:
    began = time.perf_counter()
    frame().write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    spark = session(master="local[2]")
    try:
        found = measure(spark, rows=arguments.rows, rounds=arguments.rounds)
    finally:
        spark.stop()
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
