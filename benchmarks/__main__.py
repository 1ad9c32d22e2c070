"""``make bench``: Headwater, Redis 8.2.3, Valkey 9.1.2 and Redis 7.0.15, measured in the same run.

    throughput       operations per second, without a journal (and with fsync always)
    everysec         throughput, scans and latency with an append-only file, flushed every second
    scans            one call on a million pending entries, a long list, a long string
    latency          from an append to the blocked consumer
    memory           of entries, pending entries, small streams, ten million entries
    restart          with a million entries, all of them pending
    command-line     processor time of a command divided by that of ``python -c pass``
    growth           cost at ten million entries divided by that at ten thousand
    embedded         in the program's process: burner-redis, fakeredis, redis-py
    io-threads       Redis with I/O threads
    redis-benchmark  what that program reports for the same servers

The servers run on one core and the client on another. The servers are measured in turn, in several
rounds. Prints a table and writes JSON: a complete run to benchmarks/results/, a part of one (--only,
--rows) to artifacts/bench.json.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from benchmarks import (
    command_line,
    embedded,
    growth,
    latency,
    memory,
    redis_benchmark,
    restart,
    results,
    scans,
    show,
    threads,
    throughput,
)
from benchmarks.rows import Row
from benchmarks.selection import Selection
from benchmarks.stores import cores


def everysec_rows(selection: Selection) -> Iterator[Row]:
    """Yield rows that an append-only file can affect, measured with one on all stores."""
    for part in (throughput, scans, latency):
        yield from part.rows(selection, fsync="everysec")


SECTIONS: Final[dict[str, Callable[[Selection], Iterator[Row]]]] = {
    "throughput": throughput.rows,
    "everysec": everysec_rows,
    "scans": scans.rows,
    "latency": latency.rows,
    "memory": memory.rows,
    "restart": restart.rows,
    "command-line": command_line.rows,
    "growth": growth.rows,
    "embedded": embedded.rows,
    "io-threads": threads.rows,
    "redis-benchmark": redis_benchmark.rows,
}


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="make bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--only", choices=SECTIONS, action="append", help="this section; repeatable")
    made.add_argument(
        "--rows", action="append", metavar="TEXT", help="rows with TEXT in their name; repeatable"
    )
    made.add_argument("--rounds", type=int, default=5, help="measurements of each row (default 5)")
    made.add_argument("--seconds", type=float, default=2.0, help="per measurement (default 2)")
    made.add_argument("--output", type=Path, help="JSON file; an existing one is updated")
    return made


def main(words: Iterable[str] | None = None) -> int:
    """Measure, print, write. Returns 0 also if targets are missed; ``make bench-gate`` checks them."""
    options = parser().parse_args(list(words) if words is not None else sys.argv[1:])
    selection = Selection(options.rounds, options.seconds, options.rows or ())
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
        for row in SECTIONS[name](selection):
            show.row(row)
            found.append(row)
            results.add(report, [row])
            results.write(report, path)
    show.summary(found)
    print(f"written: {path}" + ("; make bench-docs writes the page from it" if whole else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
