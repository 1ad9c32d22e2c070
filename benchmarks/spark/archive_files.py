"""An archive of many files, compared with one of ten files.

    steps   a week's entries, archived in 10,000 steps and in ten: all are read
    days    10,000 days, which are 10,000 files, and ten days: one day is read of either

The source reads them (``format("headwater")``) to noop, in turn, in several rounds.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import redis

from headwater.spark.archive.archiver import Archiver
from headwater.spark.core.ddl import parse_schema
from headwater.spark.core.options import parse_options
from headwater.testing.server import server_process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES: Final = 10_000
FEW: Final = 10
ENTRIES: Final = 1_000_000
ROUNDS: Final = 5
REQUIRED: Final = 2.0
SCHEMA: Final = "order_id bigint, item string"

_DAY_MS: Final = 86_400_000
_START_MS: Final = 1_763_683_200_000


class Read(NamedTuple):
    """A stream that is archived at ``path`` in steps; with ``day`` only that day is read."""

    path: str
    stream: str
    step_entries: int
    day: int | None = None


def measure(
    spark: SparkSession, *, files: int = FILES, entries: int = ENTRIES, rounds: int = ROUNDS
) -> dict[str, Any]:
    """Return the seconds of each read, medians of ``rounds``, and the ratios of many files to few."""
    a_day = entries // files
    found: dict[str, Any] = {"files": files, "entries": entries, "required_ratio": REQUIRED}
    with tempfile.TemporaryDirectory() as top, server_process("--appendfsync", "no") as server:
        reads = {
            "steps": Read(f"{top}/steps", "week", a_day),
            "few_steps": Read(f"{top}/few", "week", entries // FEW),
            "days": Read(f"{top}/days", "days", entries, files // 2),
            "few_days": Read(f"{top}/days", "few days", entries, FEW // 2),
        }
        with redis.Redis.from_url(server.url, protocol=2) as client:
            _fill(client, "week", entries, 7 * _DAY_MS // entries)
            _fill(client, "days", entries, _DAY_MS // a_day)
            _fill(client, "few days", FEW * a_day, _DAY_MS // a_day)
        for name, read in reads.items():
            began = time.perf_counter()
            _archive(server.url, read)
            found[f"{name}_archiving_s"] = time.perf_counter() - began
        found["files_after_steps"] = len(list(Path(top, "steps").rglob("day=*/*.parquet")))
        seconds: dict[str, list[float]] = {name: [] for name in reads}
        for _round in range(rounds + 1):
            for name, read in reads.items():
                seconds[name].append(_timed(spark, server.url, read))
    for name, took in seconds.items():
        found[f"{name}_s"] = statistics.median(took[1:])  # the first round loads classes
        found[f"{name}_range_s"] = [min(took[1:]), max(took[1:])]
    for name in ("steps", "days"):
        found[f"{name}_ratio"] = found[f"{name}_s"] / found[f"few_{name}_s"]
    return found


def _fill(client: redis.Redis, stream: str, entries: int, apart_ms: int) -> None:
    for start in range(0, entries, 5000):
        pipeline = client.pipeline(transaction=False)
        for number in range(start, min(entries, start + 5000)):
            fields: Any = {"order_id": number, "item": f"item {number % 500} of the catalogue"}
            pipeline.xadd(stream, fields, id=f"{_START_MS + number * apart_ms}-0")
        pipeline.execute()


def _archive(url: str, read: Read) -> None:
    options = parse_options({"url": url, "stream": read.stream})
    schema, path = parse_schema(SCHEMA), Path(read.path)
    for _done in Archiver(options, schema, path, step_entries=read.step_entries).run():
        pass


def _timed(spark: SparkSession, url: str, read: Read) -> float:
    frame = spark.read.format("headwater").schema(SCHEMA)
    frame = frame.options(url=url, archive=read.path, stream=read.stream)
    if read.day is not None:
        begin = _START_MS + read.day * _DAY_MS
        frame = frame.options(startingId=f"{begin}-0", endingId=f"{begin + _DAY_MS - 1}-0")
    began = time.perf_counter()
    frame.load().write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def show(found: dict[str, Any]) -> None:
    """Print the ratios."""
    print(f"an archive of {found['files']:,} files, compared with one of {FEW}: seconds")
    for name in ("steps", "days"):
        many, few, ratio = found[f"{name}_s"], found[f"few_{name}_s"], found[f"{name}_ratio"]
        print(f"{name:<12}{many:>8.3f}{few:>8.3f}{ratio:>8.2f}")


def missed(found: dict[str, Any]) -> list[str]:
    """Return a sentence for each ratio above the required one."""
    return [
        f"{name}: {found[f'{name}_ratio']:.2f} times an archive of {FEW} files, required is {REQUIRED}"
        for name in ("steps", "days")
        if found[f"{name}_ratio"] > REQUIRED
    ]
