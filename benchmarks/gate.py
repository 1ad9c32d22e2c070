"""``make bench-gate``: checks within a minute whether a change has made a hot command slower.

Compares the server's processor time per operation with that of Redis 8.2.3 in the same run, which varies
less than operations per second on a machine with other work. A row fails if the ratio is below `SLACK`
of the required one, also when it is measured up to `REPEATS` times more, for twice as long: other work can
halve a ratio for a second. It is not measured again when the minute is over: if so many rows fail, the
cause is not noise. Exits with 1 if a row fails, and prints its measurements and bounds.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from benchmarks import machine
from benchmarks.rows import CPU_RATIO, REDIS, Row, Target
from benchmarks.selection import Selection
from benchmarks.show import number
from benchmarks.stores import WITH_REDIS, Store, cores, measured
from benchmarks.throughput import one_row
from benchmarks.workloads import PLAIN_ROW, WORKLOADS, Workload, clean_up

SLACK: Final = 0.8
ROUNDS: Final = 3
SECONDS: Final = 0.25
REPEATS: Final = 3
"""How often a row that fails is measured again."""
WITHIN_SECONDS: Final = 55.0
"""A row is measured again only if the first measurements of all other rows still fit into this time."""

JUDGED: Final = tuple(one for one in WORKLOADS if one.fsync is None and one.name != PLAIN_ROW)
"""The workloads that can be checked in a minute: without waiting for a disk, and compiled."""


def by_cpu(workload: Workload) -> Target:
    """Return the workload's target, applied to processor time."""
    return replace(workload.target, by=CPU_RATIO, required_of={})


def judge(
    workloads: Sequence[Workload],
    stores: Sequence[Store],
    *,
    rounds: int = ROUNDS,
    seconds: float = SECONDS,
    within_seconds: float = WITHIN_SECONDS,
) -> list[Row]:
    """Measure and print the rows. For a row that was measured again, the last measurement counts."""
    rows: list[Row] = []
    began, repeating = time.monotonic(), 0.0
    for done, workload in enumerate(workloads, 1):
        row = one_row("gate", workload, stores, Selection(rounds, seconds), target=by_cpu(workload))
        measured_once = time.monotonic()
        each = (measured_once - began - repeating) / done
        for repeat in range(1, REPEATS + 1):
            ends = time.monotonic() + each * (2 + len(workloads) - done)
            if passes(row) or ends >= began + within_seconds:
                break
            longer = Selection(rounds, 2 * seconds)
            row = one_row("gate", workload, stores, longer, target=by_cpu(workload))
            row.note = f"measured {repeat + 1} times"
        repeating += time.monotonic() - measured_once
        rows.append(row)
        print(sentence(row), flush=True)
        clean_up(workload, stores)
    return rows


def bound(row: Row) -> float:
    """Return the ratio below which a row fails."""
    assert row.target is not None, "by_cpu() gives every row one"
    return SLACK * row.target.required


def passes(row: Row) -> bool:
    """Return whether the row's ratio is at least its bound."""
    value = row.value()
    return value is not None and value >= bound(row)


def sentence(row: Row) -> str:
    """Return the row as a line: the costs of both, the ratio, the required ratio and the bound."""
    ours, theirs = (row.of(name).other("cpu_us") for name in ("headwater", REDIS))
    assert row.target is not None, "by_cpu() gives every row one"
    said = "ok  " if passes(row) else "FAIL"
    note = f" ({row.note})" if row.note else ""
    return (
        f"{said} {row.name:<36} {number(ours):>7} µs, {number(theirs):>7} µs of {REDIS}:"
        f" ratio {number(row.value()):>6}, required {row.target.required:g},"
        f" bound {bound(row):.2f}{note}"
    )


def main(words: Iterable[str] | None = None) -> int:
    """Check the rows. Returns 0 if all pass, 1 if one fails, 2 if Redis is missing."""
    parser = argparse.ArgumentParser(prog="make bench-gate", description=__doc__)
    parser.add_argument("--rows", action="append", metavar="TEXT", help="rows with TEXT in them")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="per measurement")
    options = parser.parse_args(list(words) if words is not None else sys.argv[1:])
    if not all(kind.available() for kind in WITH_REDIS):
        print(f"{REDIS} is missing (make peers): nothing to compare with", file=sys.stderr)
        return 2
    selection = Selection(texts=options.rows or ())
    os.sched_setaffinity(0, {cores()[1]})
    began = time.monotonic()
    print(f"headwater {machine.build_kind()}, {machine.commit()[:8]}; processor time per operation")
    with measured(WITH_REDIS) as stores:
        chosen = [one for one in JUDGED if selection.wants(one.name)]
        rows = judge(chosen, stores, seconds=options.seconds)
    failed = [row for row in rows if not passes(row)]
    print(f"{len(rows) - len(failed)} of {len(rows)} pass, {time.monotonic() - began:.0f} s")
    return 1 if failed or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
