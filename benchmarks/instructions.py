"""``python -m benchmarks.instructions``: counts the user-space instructions per operation of the hot commands
with valgrind, in process. Prints a table and writes JSON.

Unlike a time, a count is the same on a busy machine: two runs of one commit differ by less than a
thousandth. So a count can show a change of a few percent, which a time cannot. `benchmarks.compare`
compares two commits.

valgrind runs `benchmarks.counted` for each row. Its three marks end a part, the preparation and two counted ones, and
valgrind writes a file for each part and thread. Three measures make a count reproducible: only the thread that runs
the commands is counted (others allocate journal files ahead, at times that the system chooses), the clock advances by
the same step each time it is read (steady/clock.c), and ``PYTHONHASHSEED`` is fixed. Instructions in the kernel are not
counted: the cost of system calls is visible only in times.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks import counted, machine
from benchmarks.counted import ROWS, Counted

RESULTS: Final = Path("artifacts", "instructions.json")

WITHIN_SECONDS: Final = 1800.0

MAIN_THREAD: Final = "01"
"""The main thread's number in the file names that valgrind writes."""

CLOCK: Final = Path(__file__).parent / "steady" / "clock.c"

_TOTALS: Final = re.compile(r"^totals: (\d+)$", re.MULTILINE)


class CannotCount(Exception):
    """valgrind is missing, or the counted program failed; the message says which, and what to do."""


def valgrind() -> str:
    """Return the path of valgrind. Raises `CannotCount`."""
    found = shutil.which("valgrind")
    if found is None:
        raise CannotCount(
            "valgrind is not installed, so instructions cannot be counted "
            "(on Debian and Ubuntu: apt-get install valgrind)"
        )
    return found


def chosen(texts: Sequence[str]) -> list[Counted]:
    """Return the rows with one of ``texts`` in their names; without texts, all. Raises `CannotCount`."""
    found = [row for row in ROWS if not texts or any(text in row.name for text in texts)]
    if not found:
        raise CannotCount(f"no row matches {', '.join(texts)}; rows: {names()}")
    return found


def names() -> str:
    """Return the names of all rows, for messages."""
    return ", ".join(row.name for row in ROWS)


def per_operation(rows: Sequence[Counted], *, sources: Path | None = None) -> dict[str, float]:
    """Return the instructions per operation of each row, by name. ``sources`` is the ``src`` directory of
    another commit; by default the installed Headwater is counted. Raises `CannotCount`."""
    valgrind()
    with tempfile.TemporaryDirectory(prefix="hw-count-") as scratch:
        clock = _steady_clock(Path(scratch, "clock.so"))
        return {
            row.name: _counted(row, Path(scratch, str(ROWS.index(row))), sources, clock)
            for row in rows
        }


def _counted(row: Counted, place: Path, sources: Path | None, clock: Path) -> float:
    """Count one row, in a process of its own: what the allocator does depends on the rows before, by 2 %."""
    stores, parts = place / "stores", place / "parts"
    stores.mkdir(parents=True)
    parts.mkdir()
    _run(row, stores, parts, sources, clock)
    first, second = (_total(parts / f"part.{number}-{MAIN_THREAD}") for number in (2, 3))
    return (second - first) / (row.steps * row.operations)


def _steady_clock(library: Path) -> Path:
    """Compile the clock of the counted process."""
    compiler = os.environ.get("CC") or "cc"
    words = [*compiler.split(), "-shared", "-fPIC", "-O2", "-o", str(library), str(CLOCK)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise CannotCount(
            f"no C compiler was found ({compiler}); on Debian and Ubuntu: apt-get install gcc"
        ) from None
    if done.returncode:
        raise CannotCount(f"{' '.join(words)}:\n{done.stderr}")
    return library


def _run(row: Counted, stores: Path, parts: Path, sources: Path | None, clock: Path) -> None:
    words = [valgrind(), "--quiet", "--tool=callgrind", f"--dump-before={counted.MARK}"]
    words += ["--separate-threads=yes", f"--callgrind-out-file={parts / 'part'}"]
    words += [sys.executable, "-m", "benchmarks.counted"]
    words += [str(stores), str(ROWS.index(row))]
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    environment["LD_PRELOAD"] = str(clock)
    if sources is not None:
        environment["PYTHONPATH"] = str(sources)
    try:
        done = subprocess.run(
            words,
            cwd=machine.ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=WITHIN_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise CannotCount(f"counting did not end within {WITHIN_SECONDS:.0f} seconds") from None
    if done.returncode:
        raise CannotCount(f"benchmarks.counted failed: {done.stderr.strip()[-2000:]}")


def _total(part: Path) -> int:
    """Return what valgrind counted between two marks."""
    try:
        text = part.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise CannotCount(
            f"valgrind did not write {part.name}: check that it saw {counted.MARK}"
        ) from None
    return int(_TOTALS.findall(text)[-1])


def report(rows: Sequence[Counted], *, sources: Path | None = None) -> dict[str, Any]:
    """Count the rows; return the counts, and what was counted with which valgrind."""
    counts = per_operation(rows, sources=sources)
    said = subprocess.run([valgrind(), "--version"], capture_output=True, text=True, check=True)
    return {
        "commit": machine.commit(),
        "build": machine.build_kind(),
        "machine": machine.describe_machine(),
        "valgrind": said.stdout.strip().removeprefix("valgrind-"),
        "instructions_per_operation": {name: round(counts[name], 1) for name in counts},
    }


def write(found: dict[str, Any], path: Path) -> None:
    """Write the report as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def main(words: Iterable[str] | None = None) -> int:
    """Count, print, write. Returns 1 if counting is impossible."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.instructions", description=__doc__)
    parser.add_argument("--rows", action="append", metavar="TEXT", help="rows with TEXT in them")
    parser.add_argument("--output", type=Path, default=RESULTS, help=f"JSON file ({RESULTS})")
    options = parser.parse_args(list(words) if words is not None else sys.argv[1:])
    try:
        found = report(chosen(options.rows or ()))
    except CannotCount as why:
        print(why, file=sys.stderr)
        return 1
    for name, count in found["instructions_per_operation"].items():
        print(f"{name:<42}{count:>12,.0f}")
    write(found, options.output)
    print(f"instructions per operation; written: {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
