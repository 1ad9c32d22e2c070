"""``make bench-spark``: measures the Spark source and its peers in the same run.

    throughput  rows per second to count, to noop and to Parquet
    latency     from an append to foreachBatch
    archive     reading an archive, compared with Spark's own reader
    files       reading an archive of 10,000 files, compared with one of ten
    sink        writing rows to a stream exactly once
    streams     a thousand streams in one query, compared with one

Everything runs on two cores: Spark as ``local[2]``, and the server in a separate process. Prints a table
for each section, writes JSON, and exits with status 1 if a required value was missed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from benchmarks.machine import build_kind
from benchmarks.spark import archive, archive_files, latency, sink, streams, throughput
from headwater.spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RESULTS: Final = Path("artifacts", "bench-spark.json")
LATENCY_MS: Final = 200
LATENCY_GOAL_MS: Final = 100


class Selection(NamedTuple):
    """The options of the command line."""

    rows: list[int] | None
    rounds: int | None

    def given(self, *, rows: bool = True) -> dict[str, Any]:
        """Return the given options as arguments of a section that takes one number of rows."""
        words: dict[str, Any] = {}
        if rows and self.rows:
            words["rows"] = self.rows[-1]
        if self.rounds:
            words["rounds"] = self.rounds
        return words


class Section(NamedTuple):
    """One subject: functions that measure it, show it, and describe each required value that was missed."""

    measure: Callable[[SparkSession, Selection], dict[str, Any]]
    show: Callable[[dict[str, Any]], None]
    missed: Callable[[dict[str, Any]], list[str]]


def _throughput(spark: SparkSession, selection: Selection) -> dict[str, Any]:
    return throughput.measure(
        spark, rows=selection.rows or throughput.ROWS, rounds=selection.rounds or throughput.ROUNDS
    )


def _latency(_spark: SparkSession, selection: Selection) -> dict[str, Any]:
    return latency.measure(**selection.given(rows=False))


def _latency_missed(found: dict[str, Any]) -> list[str]:
    p50 = found["headwater"]["p50_ms"]
    if p50 <= LATENCY_MS:
        return []
    return [f"p50 is {p50:.0f} ms, required are {LATENCY_MS} (goal {LATENCY_GOAL_MS})"]


def _archive(spark: SparkSession, selection: Selection) -> dict[str, Any]:
    return archive.measure(spark, **selection.given())


def _files(spark: SparkSession, selection: Selection) -> dict[str, Any]:
    return archive_files.measure(spark, **selection.given(rows=False))


def _streams(spark: SparkSession, selection: Selection) -> dict[str, Any]:
    return streams.measure(spark, **selection.given(rows=False))


def _sink(spark: SparkSession, selection: Selection) -> dict[str, Any]:
    return sink.measure(spark, **selection.given())


def _archive_show(found: dict[str, Any]) -> None:
    print("an archive's rows to noop, million rows/s")
    for name in ("archive", "source", "parquet"):
        print(f"{name:<12}{found[f'{name}_rows_per_s'] / 1e6:>8.2f}")
    print(f"{'ratio':<12}{found['ratio']:>8.2f}")


def _archive_missed(found: dict[str, Any]) -> list[str]:
    required = found["required_ratio"]
    if found["rows"] < throughput.LEAST_ROWS or found["ratio"] >= required:
        return []
    return [f"{found['ratio']:.2f} times spark.read.parquet, required is {required}"]


SECTIONS: Final[dict[str, Section]] = {
    "throughput": Section(_throughput, throughput.show, throughput.missed),
    "latency": Section(_latency, latency.show, _latency_missed),
    "archive": Section(_archive, _archive_show, _archive_missed),
    "files": Section(_files, archive_files.show, archive_files.missed),
    "sink": Section(_sink, sink.show, sink.missed),
    "streams": Section(_streams, streams.show, streams.missed),
}


def two_cores() -> None:
    """Pin this process and its children, the server and Spark's JVM, to two cores."""
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[:2]))


def main(words: Iterable[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make bench-spark", description=__doc__)
    parser.add_argument(
        "--only", choices=SECTIONS, action="append", help="this section; repeatable"
    )
    parser.add_argument("--rows", type=int, action="append", help="per measurement; repeatable")
    parser.add_argument("--rounds", type=int, help="measurements of each row")
    parser.add_argument("--output", type=Path, default=RESULTS, help=f"JSON file ({RESULTS})")
    options = parser.parse_args(list(words) if words is not None else sys.argv[1:])
    two_cores()
    # Spark's Python processes import the peers' sources from here.
    root = str(Path(__file__).resolve().parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    spark = session(app="bench-spark", master="local[2]")
    spark.sparkContext.setLogLevel("ERROR")
    print(
        f"headwater ({build_kind()}) in Spark {spark.version}, local[2], load {os.getloadavg()[0]:.1f}"
    )
    found: dict[str, dict[str, Any]] = {}
    said: list[str] = []
    try:
        for name in options.only or SECTIONS:
            section = SECTIONS[name]
            found[name] = section.measure(spark, Selection(options.rows, options.rounds))
            section.show(found[name])
            said += [f"{name}: {sentence}" for sentence in section.missed(found[name])]
    finally:
        spark.stop()
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(as_json(found, said), indent=2) + "\n")
    print(f"written: {options.output}")
    for sentence in said:
        print(f"missed: {sentence}")
    return 1 if said else 0


def as_json(found: dict[str, dict[str, Any]], said: list[str]) -> dict[str, Any]:
    """Return the results with what is needed to interpret them: date, build, machine, load."""
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "build": build_kind(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "load": os.getloadavg()[0],
        "sections": found,
        "missed": said,
    }


if __name__ == "__main__":
    sys.exit(main())
