"""``make bench``: Headwater beside Redis 8.2.3, Valkey 9.1.2 and Redis 7.0.15, all in one run.

    throughput       operations a second, nothing kept on disk (and fsync always)
    everysec         this, scans and latency with an append-only file, flushed every second
    scans            one call on a million pending entries
    latency          from an append to the consumer that was blocked
    memory           of entries, pending entries, small streams, ten million entries
    restart          with a million entries, a million pending
    growth           at ten million entries against the same at ten thousand
    embedded         in the process that wants it: burner-redis, fakeredis, redis-py
    io-threads       Redis with threads of input and output
    redis-benchmark  what that program says of the same servers

The servers run on one core, the client on another, and are measured in turn, round after round.
Prints a table and writes JSON: the whole to benchmarks/results/, a part (--only, --rows) to
artifacts/bench.json.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from benchmarks import (
    embedded,
    growth,
    latency,
    memory,
    restart,
    results,
    rival,
    scans,
    show,
    threads,
    throughput,
)
from benchmarks.asked import Asked
from benchmarks.rows import Row
from benchmarks.stores import cores


def everysec_rows(asked: Asked) -> Iterator[Row]:
    """What an append-only file can cost, with one on every side."""
    for part in (throughput, scans, latency):
        yield from part.rows(asked, fsync="everysec")


SECTIONS: Final[dict[str, Callable[[Asked], Iterator[Row]]]] = {
    "throughput": throughput.rows,
    "everysec": everysec_rows,
    "scans": scans.rows,
    "latency": latency.rows,
    "memory": memory.rows,
    "restart": restart.rows,
    "growth": growth.rows,
    "embedded": embedded.rows,
    "io-threads": threads.rows,
    "redis-benchmark": rival.rows,
}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="make bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--only", choices=SECTIONS, action="append", help="this section, repeatable")
    made.add_argument(
        "--rows", action="append", metavar="TEXT", help="rows with TEXT in their name, repeatable"
    )
    made.add_argument("--rounds", type=int, default=5, help="measurements of each (default 5)")
    made.add_argument("--seconds", type=float, default=2.0, help="of each measurement (default 2)")
    made.add_argument(
        "--output", type=Path, help="JSON file; rows are put into it when it is there"
    )
    return made


def main(words: Iterable[str] | None = None) -> int:
    """Measure, print, write; 0 whatever was reached: ``make bench-gate`` judges."""
    options = parser().parse_args(list(words) if words is not None else sys.argv[1:])
    asked = Asked(options.rounds, options.seconds, options.rows or ())
    report = results.begin(rounds=options.rounds, seconds=options.seconds)
    whole = not options.only and not options.rows
    path = options.output or (results.DIRECTORY / results.name(report) if whole else results.PART)
    if options.output:
        try:
            report = results.continued(path, report)
        except results.OtherResults as why:
            print(why, file=sys.stderr)
            return 1
    os.sched_setaffinity(0, {cores()[1]})
    show.head(report)
    found: list[Row] = []
    for name in options.only or SECTIONS:
        show.section(name)
        for row in SECTIONS[name](asked):
            show.row(row)
            found.append(row)
            results.add(report, [row])
            results.write(report, path)
    show.summary(found)
    print(f"written: {path}" + ("; make bench-docs makes the page of it" if whole else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
