"""``make bench-compare REF=v0.1``: compares this commit with another one, in the same run.

First it counts the user-space instructions per operation of the hot commands
(`benchmarks.instructions`). The ratio is this commit's count divided by the other's: below 1 is
cheaper. The run fails if a row is above ``--most`` (1.02).

Then it measures both servers in turn, as peers are measured. The ratio is this commit's rate divided by
the other's: above 1, this commit is faster. The spread of the rounds' ratios is shown too; a difference
within the spread is noise. The other commit is checked out into a worktree below ``build/compare`` (an
existing one is reused), and compiled there if this commit is compiled.

``--only instructions`` or ``--only time`` runs one part only.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks import instructions, machine, results, show
from benchmarks.load import LoadFailed
from benchmarks.rows import CPU, OURS, Row, spread
from benchmarks.selection import Selection
from benchmarks.stores import HEADWATER, Kind, cores, measured
from benchmarks.throughput import one_row
from benchmarks.workloads import PLAIN_ROW, WORKLOADS, clean_up

WORKTREES: Final = machine.ROOT / "build" / "compare"
RESULTS: Final = Path("artifacts", "bench-compare.json")
MOST: Final = 1.02
"""The highest permitted ratio of instructions per operation of a hot command."""


class NoSuchCommit(Exception):
    """REF is not a commit of this repository, or cannot be built; the message says which."""


def commit_of(ref: str) -> str:
    """Return the commit hash of ``ref``, 40 hex digits. Raises `NoSuchCommit`."""
    return _run("git", "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}") or _no_commit(ref)


def _no_commit(ref: str) -> str:
    raise NoSuchCommit(f"{ref} is not a commit here: give a branch, a tag, HEAD~3 or a hash")


def worktree(commit: str) -> Path:
    """Check out the commit and return its directory; compiled if this commit is compiled."""
    place = WORKTREES / commit[:12]
    if not place.exists():
        WORKTREES.mkdir(parents=True, exist_ok=True)
        _run("git", "worktree", "prune")  # `make clean` removes worktrees without telling git
        _run("git", "worktree", "add", "--detach", str(place), commit, needed=True)
    if machine.build_kind().startswith("compiled"):
        print(f"compiling {commit[:12]}", flush=True)
        words = (sys.executable, "setup.py", "--quiet", "build_ext", "--inplace")
        _run(*words, cwd=place, needed=True)
    return place


def kind_of(commit: str, place: Path) -> Kind:
    """Return the other commit's Headwater: the same interpreter and packages, other sources."""
    said = _run(
        *(sys.executable, "-m", "headwater.cli.main", "info", "--short"),
        environment={"PYTHONPATH": str(place / "src")},
    )
    print(f"the other: {said}")
    return Kind(f"{OURS} {commit[:8]}", environment={"PYTHONPATH": str(place / "src")})


def _run(
    *words: str,
    cwd: Path = machine.ROOT,
    needed: bool = False,
    environment: dict[str, str] | None = None,
) -> str:
    own = {**os.environ, **(environment or {})}
    done = subprocess.run(words, cwd=cwd, env=own, capture_output=True, text=True, check=False)
    if done.returncode and needed:
        raise NoSuchCommit(f"{' '.join(words)}: {done.stderr.strip()[-2000:]}")
    return "" if done.returncode else done.stdout.strip()


def compare(other: Kind, selection: Selection) -> Iterable[Row]:
    """Yield a row for each selected workload, with the other commit as the peer."""
    for fsync in (None, "always"):
        chosen = [
            one
            for one in WORKLOADS
            if one.fsync == fsync and one.name != PLAIN_ROW and selection.wants(one.name)
        ]
        if not chosen:
            continue
        with measured((HEADWATER, other), fsync=fsync) as stores:
            for workload in chosen:
                try:
                    row = one_row("compare", workload, stores, selection, target=None)
                except LoadFailed as why:  # an older commit may lack the command
                    row = Row("compare", workload.name, "/s", missing=str(why))
                row.against = other.name
                yield row
                clean_up(workload, stores)


def sentence(row: Row) -> str:
    """Return a line with the rates and processor times of both commits, and their ratios."""
    if row.missing:
        return f"{row.name:<42}{row.missing}"
    ours, theirs = row.of(OURS), row.of(row.against)
    ratios = row.ratios(row.against)
    apart = [a / b for a, b in zip(ours.measurements, theirs.measurements, strict=True)]
    return (
        f"{row.name:<42}{show.number(theirs.median):>12}{show.number(ours.median):>12}"
        f"{ratios['ratio']:>8.2f}{show.percent(spread(apart)):>8}"
        f"{show.number(theirs.other(CPU)):>10}{show.number(ours.other(CPU)):>10}"
        f"{ratios['cpu']:>8.2f}"
    )


def counts(place: Path, rows: Sequence[str], most: float) -> tuple[dict[str, float], list[str]]:
    """Print and return the ratio of instructions per operation of each row; also return the rows above
    ``most``. Raises `CannotCount`."""
    chosen = instructions.chosen(rows)
    theirs = instructions.per_operation(chosen, sources=place / "src")
    ours = instructions.per_operation(chosen)
    ratios = {name: ours[name] / theirs[name] for name in ours}
    for name, ratio in ratios.items():
        verdict = f"FAIL: above {most:g}" if ratio > most else ""
        print(f"{name:<42}{theirs[name]:>12,.0f}{ours[name]:>12,.0f}{ratio:>9.3f}  {verdict}")
    return ratios, [name for name, ratio in ratios.items() if ratio > most]


def parsed(words: Iterable[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="make bench-compare", description=__doc__)
    parser.add_argument("ref", help="the other commit: a branch, a tag, HEAD~3 or a hash")
    parser.add_argument("--rows", action="append", metavar="TEXT", help="rows with TEXT in them")
    parser.add_argument(
        "--rounds", type=int, default=5, help="measurements of each row (default 5)"
    )
    parser.add_argument("--seconds", type=float, default=1.0, help="per measurement (default 1)")
    parser.add_argument("--only", choices=("instructions", "time"), help="run only this part")
    parser.add_argument(
        "--most", type=float, default=MOST, help=f"highest instruction ratio (default {MOST})"
    )
    parser.add_argument("--output", type=Path, default=RESULTS, help=f"JSON file ({RESULTS})")
    return parser.parse_args(list(words) if words is not None else sys.argv[1:])


def measure(report: dict[str, Any], other: Kind, selection: Selection, output: Path) -> None:
    """Measure the rates and processor times of both servers, print and write them."""
    os.sched_setaffinity(0, {cores()[1]})
    show.head(report)
    label = other.name.rpartition(" ")[2]
    print(
        f"\n{'':<42}{label:>12}{'this':>12}{'ratio':>8}{'spread':>8}{'cpu µs':>10}{'this':>10}{'by cpu':>8}"
    )
    for row in compare(other, selection):
        print(sentence(row), flush=True)
        results.add(report, [row])
        results.write(report, output)


def main(words: Iterable[str] | None = None) -> int:
    """Build, count, measure, print, write. Returns 1 if that fails or a count is above its bound."""
    options = parsed(words)
    selection = Selection(options.rounds, options.seconds, options.rows or ())
    above: list[str] = []
    try:
        if options.only != "time":
            instructions.valgrind()  # fails before anything is built if valgrind is missing
        commit = commit_of(options.ref)
        place = worktree(commit)
        other = kind_of(commit, place)
        report = results.begin(rounds=options.rounds, seconds=options.seconds)
        report["other"] = commit
        if options.only != "time":
            print(f"\n{'instructions per operation':<42}{commit[:8]:>12}{'this':>12}{'ratio':>9}")
            report["instructions"], above = counts(place, options.rows or (), options.most)
            results.write(report, options.output)
    except (NoSuchCommit, instructions.CannotCount) as why:
        print(why, file=sys.stderr)
        return 1
    if options.only != "instructions":
        measure(report, other, selection, options.output)
        print("above 1: this commit is faster")
    print(f"written: {options.output}")
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
