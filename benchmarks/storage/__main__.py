"""``make bench-storage``: what storage costs, in the same run on Headwater, Redis 8.2.3 and Valkey 9.1.2.

    empty       process start to first PONG, empty directory
    clean       start with all entries pending after a clean stop; the peers have a snapshot
    killed      start after SIGKILL with a journal of 64 MB; the peers have a file of the same commands
    scaled      start and memory with 2M entries on disk and stream-hot-bytes scaled; reported only
    huge        the same with 100M entries and default settings; an hour, only with --only huge
    replay      replaying against executing in process: XADD, deliver and ack, XDEL
    checkpoint  writers while a checkpoint or Redis's rewrite runs on the other core
    append      appends to a stream 20 times stream-hot-bytes
    cold        XRANGE walking cold data, page cache cold and warm
    anywhere    XRANGE anywhere in 10M entries, against 10,000
    disk        bytes on disk per entry after a checkpoint; the peers' snapshot
    trimmed     files after minutes of XADD MAXLEN ~ 10000; --minutes 60 is the required hour

Prints a table and writes JSON: a complete run to benchmarks/results/storage/, a part of one, or one with other
sizes, to artifacts/bench-storage.json. Exits with 1 if a row misses its required value or cannot be measured,
and says which, with its figures or the reason.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks import results, show
from benchmarks.rows import OURS, Row
from benchmarks.storage import anywhere, cold, disk, huge, replays, starts, writers
from benchmarks.storage.page import DIRECTORY
from benchmarks.storage.servers import FAILURES, STORES, reason
from benchmarks.storage.sizes import Sizes
from benchmarks.stores import cores

PART: Final = Path("artifacts", "bench-storage.json")


class Part(NamedTuple):
    """What --only selects: a measurement, and the names of the rows that it yields."""

    measure: Callable[[Sizes, Path], Iterator[Row]]
    names: tuple[str, ...]


PARTS: Final[dict[str, Part]] = {
    "empty": Part(starts.empty, (starts.EMPTY,)),
    "clean": Part(starts.clean, (starts.CLEAN,)),
    "killed": Part(starts.killed, (starts.KILLED, starts.KILLED_MIXED)),
    "scaled": Part(huge.scaled, (huge.SCALED, huge.SCALED_MEMORY)),
    "huge": Part(huge.huge, (huge.HUGE, huge.HUGE_MEMORY)),
    "replay": Part(replays.replays, tuple(replays.NAMES.values())),
    "checkpoint": Part(writers.writers, (writers.RATE, writers.P99)),
    "append": Part(cold.append, (cold.APPEND,)),
    "cold": Part(cold.reads, (cold.READ_COLD, cold.READ_WARM)),
    "anywhere": Part(anywhere.anywhere, (anywhere.SUBJECT.name,)),
    "disk": Part(disk.entry_bytes, (disk.BYTES,)),
    "trimmed": Part(disk.trimmed, (disk.TRIMMED,)),
}
ON_REQUEST: Final = ("huge",)
"""What a run without --only leaves out."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="make bench-storage",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    usual = Sizes()
    made.add_argument("--only", choices=PARTS, action="append", help="this row; repeatable")
    made.add_argument("--rounds", type=int, default=usual.rounds, help="of each row (default 5)")
    made.add_argument(
        "--seconds", type=float, default=usual.seconds, help="of a measured load (default 2)"
    )
    made.add_argument(
        "--entries", type=int, default=usual.entries,
        help="all sizes are proportional to it (default a million: those of the table)",
    )  # fmt: skip
    made.add_argument(
        "--minutes", type=float, default=usual.minutes, help="of the row trimmed (default 2)"
    )
    made.add_argument("--output", type=Path, help="JSON file")
    return made


def measured(name: str, sizes: Sizes) -> Iterator[Row]:
    """Yield the rows of a part. Those that cannot be measured have no number and say why."""
    part = PARTS[name]
    left = list(part.names)
    with tempfile.TemporaryDirectory(prefix="hw-storage-", ignore_cleanup_errors=True) as scratch:
        try:
            for row in part.measure(sizes, Path(scratch)):
                left.remove(row.name)
                yield row
        except FAILURES as error:
            why = reason(error)
            yield from (Row(name, missed, "", missing=why) for missed in left)


def failed(rows: Iterable[Row]) -> list[Row]:
    """Return the rows that miss a required value, or have none."""
    return [row for row in rows if row.verdict() in {"missed", "not available"}]


def sentence(row: Row) -> str:
    """Return what a failed row has missed, with its figures, or why it was not measured."""
    if row.missing:
        return f"FAIL {row.name}: {row.missing}"
    value, target = row.value(), row.target
    if value is None or target is None:
        absent = row.against if OURS in row.series else OURS
        return f"FAIL {row.name}: there is no measurement of {absent}"
    word = "at most" if row.better == "less" else "at least"
    return f"FAIL {row.name}: {show.number(value)}, required {word} {show.number(target.required)}"


def path_of(options: argparse.Namespace, report: results.Report) -> Path:
    """Return the file for the results: in the repository only for a complete run of the usual sizes."""
    if options.output:
        return Path(options.output)
    usual = Sizes()
    whole = not options.only and (options.entries, options.seconds) == (
        usual.entries,
        usual.seconds,
    )
    return DIRECTORY / results.name(report) if whole else PART


def main(words: Sequence[str] | None = None) -> int:
    """Measure, print, write. Returns 1 if a row failed, 2 if a peer is missing."""
    options = parser().parse_args(words)
    sizes = Sizes(options.rounds, options.seconds, options.entries, options.minutes)
    absent = [kind.name for kind in STORES if not kind.available()]
    if absent:
        print(f"missing: {', '.join(absent)} (make peers)", file=sys.stderr)
        return 2
    report = results.begin(rounds=sizes.rounds, seconds=sizes.seconds)
    report["entries"] = sizes.entries
    path = path_of(options, report)
    os.sched_setaffinity(0, {cores()[1]})
    show.head(report)
    found: list[Row] = []
    for name in options.only or [one for one in PARTS if one not in ON_REQUEST]:
        show.section(name)
        for row in measured(name, sizes):
            show.row(row)
            found.append(row)
            results.add(report, [row])
            results.write(report, path)
    show.summary(found)
    print(f"written: {path}")
    missed = failed(found)
    for row in missed:
        print(sentence(row))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
