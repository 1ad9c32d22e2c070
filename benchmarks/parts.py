"""Runs the parts of a benchmark of stored servers, prints their rows and writes them, and says what a row has missed."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from benchmarks import results, show
from benchmarks.rows import OURS, Row
from benchmarks.storage.servers import FAILURES, STORES, reason
from benchmarks.storage.sizes import Sizes
from benchmarks.stores import cores


class Part(NamedTuple):
    """What --only selects: a measurement, and the names of the rows that it yields."""

    measure: Callable[[Sizes, Path], Iterator[Row]]
    names: tuple[str, ...]


def measured(name: str, part: Part, sizes: Sizes) -> Iterator[Row]:
    """Yield the rows of the part ``name``. Those that cannot be measured have no number and say why."""
    left = list(part.names)
    with tempfile.TemporaryDirectory(prefix="hw-bench-", ignore_cleanup_errors=True) as scratch:
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


@dataclass(frozen=True)
class Benchmark:
    """A program of several parts. Complete runs write to ``directory``, others to ``part``; ``on_request`` names
    what a run without --only leaves out."""

    command: str
    description: str
    parts: Mapping[str, Part]
    directory: Path
    part: Path
    on_request: tuple[str, ...] = ()

    def parser(self) -> argparse.ArgumentParser:
        """Return the parser of the command line."""
        made = argparse.ArgumentParser(
            prog=self.command,
            description=self.description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        usual = Sizes()
        made.add_argument(
            "--only", choices=self.parts, action="append", help="this row; repeatable"
        )
        made.add_argument(
            "--rounds", type=int, default=usual.rounds, help="of each row (default 5)"
        )
        made.add_argument(
            "--seconds", type=float, default=usual.seconds, help="of a measured load (default 2)"
        )
        made.add_argument(
            "--entries", type=int, default=usual.entries,
            help="all sizes are proportional to it (default a million: those of the table)",
        )  # fmt: skip
        made.add_argument("--output", type=Path, help="JSON file")
        return made

    def path_of(self, options: argparse.Namespace, report: results.Report) -> Path:
        """Return the file for the results: in the repository only for a complete run of the usual sizes."""
        if options.output:
            return Path(options.output)
        usual = Sizes()
        sizes = (options.entries, options.seconds)
        whole = not options.only and sizes == (usual.entries, usual.seconds)
        return self.directory / results.name(report) if whole else self.part

    def run(self, options: argparse.Namespace) -> int:
        """Measure, print, write. Return 1 if a row failed, 2 if a peer is missing."""
        given = {name: value for name, value in vars(options).items() if name in Sizes._fields}
        sizes = Sizes(**given)
        absent = [kind.name for kind in STORES if not kind.available()]
        if absent:
            print(f"missing: {', '.join(absent)} (make peers)", file=sys.stderr)
            return 2
        report = results.begin(rounds=sizes.rounds, seconds=sizes.seconds)
        report["entries"] = sizes.entries
        path = self.path_of(options, report)
        os.sched_setaffinity(0, {cores()[1]})
        show.head(report)
        found: list[Row] = []
        for name in options.only or [one for one in self.parts if one not in self.on_request]:
            show.section(name)
            for row in measured(name, self.parts[name], sizes):
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
