"""``make bench-gate``: within a minute, whether a change has made a hot command dearer.

Judges the server's processor time an operation against Redis 8.2.3 in the same run, which is steadier
than operations a second on a machine that does other things too. A row falls through when the ratio is
below `SLACK` of what is required; it is measured once again before that is believed, twice as long, as
long as the minute lasts: where so many rows fall through, it is not for noise. Exits with 1 and says
which rows, with their figures and bounds.
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
from benchmarks.asked import Asked
from benchmarks.rows import CPU_RATIO, REDIS, Row, Target
from benchmarks.show import figure
from benchmarks.stores import WITH_REDIS, Store, cores, measured
from benchmarks.throughput import one_row
from benchmarks.workloads import PLAIN_ROW, WORKLOADS, Workload, tidy

SLACK: Final = 0.8
ROUNDS: Final = 3
SECONDS: Final = 0.25
WITHIN_SECONDS: Final = 55.0
"""No second measurement begins that would leave too little time for the first ones of other rows."""

JUDGED: Final = tuple(one for one in WORKLOADS if one.fsync is None and one.name != PLAIN_ROW)
"""What can be judged in a minute: nothing that waits for a disk, compiled modules only."""


def by_cpu(workload: Workload) -> Target:
    """The workload's target, held against processor time."""
    return replace(workload.target, by=CPU_RATIO, required_of={})


def judge(
    workloads: Sequence[Workload],
    stores: Sequence[Store],
    *,
    rounds: int = ROUNDS,
    seconds: float = SECONDS,
    within_seconds: float = WITHIN_SECONDS,
) -> list[Row]:
    """The rows; of one that falls through and was measured twice the second figures count."""
    rows: list[Row] = []
    began, repeating = time.monotonic(), 0.0
    for done, workload in enumerate(workloads, 1):
        row = one_row("gate", workload, stores, Asked(rounds, seconds), target=by_cpu(workload))
        now = time.monotonic()
        each = (now - began - repeating) / done
        if not passes(row) and now + each * (2 + len(workloads) - done) < began + within_seconds:
            longer = Asked(rounds, 2 * seconds)
            row = one_row("gate", workload, stores, longer, target=by_cpu(workload))
            row.note = "measured twice"
            repeating += time.monotonic() - now
        rows.append(row)
        print(sentence(row), flush=True)
        tidy(workload, stores)
    return rows


def bound(row: Row) -> float:
    """The ratio below which a row falls through."""
    assert row.target is not None, "by_cpu() gives every row one"
    return SLACK * row.target.required


def passes(row: Row) -> bool:
    """Whether the row's ratio is at its bound or above."""
    value = row.value()
    return value is not None and value >= bound(row)


def sentence(row: Row) -> str:
    """The row in words: what it costs on both sides, the ratio, required and bound."""
    ours, theirs = (row.of(name).other("cpu_us") for name in ("headwater", REDIS))
    assert row.target is not None, "by_cpu() gives every row one"
    said = "ok  " if passes(row) else "FAIL"
    note = f" ({row.note})" if row.note else ""
    return (
        f"{said} {row.name:<36} {figure(ours):>7} µs beside {figure(theirs):>7} µs of {REDIS}:"
        f" ratio {figure(row.value()):>6}, required {row.target.required:g},"
        f" bound {bound(row):.2f}{note}"
    )


def main(words: Iterable[str] | None = None) -> int:
    """Judge; 0 when all rows pass, 1 when one does not, 2 when it cannot be judged here."""
    parser = argparse.ArgumentParser(prog="make bench-gate", description=__doc__)
    parser.add_argument("--rows", action="append", metavar="TEXT", help="rows with TEXT in them")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each measurement")
    options = parser.parse_args(list(words) if words is not None else sys.argv[1:])
    if not all(kind.available() for kind in WITH_REDIS):
        print(f"{REDIS} is not here (make peers): nothing to judge against", file=sys.stderr)
        return 2
    asked = Asked(texts=options.rows or ())
    os.sched_setaffinity(0, {cores()[1]})
    began = time.monotonic()
    print(f"headwater {machine.build_kind()}, {machine.commit()[:8]}; processor time an operation")
    with measured(WITH_REDIS) as stores:
        chosen = [one for one in JUDGED if asked.wants(one.name)]
        rows = judge(chosen, stores, seconds=options.seconds)
    failed = [row for row in rows if not passes(row)]
    print(f"{len(rows) - len(failed)} of {len(rows)} pass, {time.monotonic() - began:.0f} s")
    return 1 if failed or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
