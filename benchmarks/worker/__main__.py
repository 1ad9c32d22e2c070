"""``make bench-worker``: measures the worker, its peers and a raw redis-py loop in the same run.

    throughput  50,000 JSON messages of 75 B, a no-op handler, one process, as a ratio to the raw loop
    delayed     50,000 messages that are due at once; send_many with after= and dedupe=, as a ratio to it without
    endurance   memory over 1,000,000 messages; recovery of 1,000 entries after a SIGKILL

The servers run on one core and the workers on another. Stores are measured in turn, in several rounds.
Peers are installed below build/bench-worker when they are first needed. Prints a table and writes JSON: a
complete run to benchmarks/results/worker/, a part of one to artifacts/bench-worker.json.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from benchmarks import results, show
from benchmarks.rows import Row
from benchmarks.selection import Selection
from benchmarks.stores import cores
from benchmarks.worker import delayed, endurance, throughput

MESSAGES: Final = 50_000
LASTING: Final = 1_000_000

DIRECTORY: Final = results.DIRECTORY / "worker"
PART: Final = Path("artifacts", "bench-worker.json")

SECTIONS: Final[dict[str, tuple[Callable[[Selection, int], Iterator[Row]], int]]] = {
    "throughput": (throughput.rows, MESSAGES),
    "delayed": (delayed.rows, MESSAGES),
    "endurance": (endurance.rows, LASTING),
}


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="make bench-worker",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--only", choices=SECTIONS, action="append", help="this section; repeatable")
    made.add_argument(
        "--rows", action="append", metavar="TEXT", help="rows with TEXT in their name; repeatable"
    )
    made.add_argument("--rounds", type=int, default=5, help="measurements of each row (default 5)")
    made.add_argument("--messages", type=int, help="per measurement, instead of the default")
    made.add_argument("--output", type=Path, help="JSON file")
    return made


def main(words: Iterable[str] | None = None) -> int:
    """Measure, print, write. Returns 1 if a required value was missed."""
    options = parser().parse_args(list(words) if words is not None else sys.argv[1:])
    selection = Selection(options.rounds, 0.0, options.rows or ())
    report = results.begin(rounds=options.rounds, seconds=0.0)
    whole = not options.only and not options.rows and not options.messages
    path = options.output or (DIRECTORY / results.name(report) if whole else PART)
    os.sched_setaffinity(0, {cores()[1]})
    show.head(report)
    missed = 0
    for name in options.only or SECTIONS:
        measure, messages = SECTIONS[name]
        show.section(name)
        for row in measure(selection, options.messages or messages):
            show.row(row)
            results.add(report, [row])
            results.write(report, path)
            missed += row.verdict() == "missed"
    print(f"written: {path}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
