"""Replaying a journal, compared with executing its commands in process, by processor time.

Each measurement is a separate process (replayed.py) on the client's core. The journal is in memory (``/dev/shm``)
where there is such a directory, so that writing it costs the executing process little. The time of replaying
the prepared commands alone is subtracted.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.machine import ROOT
from benchmarks.rows import OURS, OWN_VALUE, TIMES, Row, Target
from benchmarks.storage.servers import FAILURES, Unmeasured, reason
from benchmarks.storage.sizes import Sizes
from benchmarks.stores import cores, on_cores

SECTION: Final = "replay"
NAMES: Final = {
    "xadd": "replay against executing, XADD",
    "consume": "replay against executing, deliver and ack",
    "xdel": "replay against executing, XDEL",
}
TARGET: Final = Target(1.0, 0.6, by=OWN_VALUE)
MEMORY: Final = Path("/dev/shm")

WITHIN_SECONDS: Final = 600.0
REPEATS: Final = 3
"""Repetitions of each measurement in a round."""


def replays(sizes: Sizes, scratch: Path) -> Iterator[Row]:
    """Yield a row for each kind of commands."""
    for kind, name in NAMES.items():
        row = Row(SECTION, name, TIMES, better="less", target=TARGET)
        try:
            for _ in range(sizes.rounds):
                with tempfile.TemporaryDirectory(prefix="hw-", dir=place(scratch)) as directory:
                    add_round(row, kind, sizes.replayed_entries, Path(directory))
        except FAILURES as error:
            row.missing = reason(error)
        yield row


def place(scratch: Path) -> Path:
    """Return the directory in which journals are written."""
    return MEMORY if MEMORY.is_dir() else scratch


def add_round(row: Row, kind: str, entries: int, directory: Path) -> None:
    """Execute and replay several times; add the ratio of the least times, because disturbances only add time."""
    executing, replaying, base = [], [], []
    operations = 1
    for turn in range(REPEATS):
        place_of_turn = directory / str(turn)
        done = in_own_process("execute", kind, str(entries), str(place_of_turn))
        full, prepared = (
            in_own_process("replay", str(place_of_turn / name)) for name in ("full", "base")
        )
        if full["left"] != done["left"]:
            raise Unmeasured(f"the replay of {kind} leaves {full['left']}, not {done['left']}")
        operations = done["operations"]
        executing.append(done["cpu_seconds"])
        replaying.append(full["cpu_seconds"])
        base.append(prepared["cpu_seconds"])
        shutil.rmtree(place_of_turn)
    spent = min(replaying) - min(base)
    row.of(OURS).add(
        ratio(spent, min(executing)),
        executing_us=min(executing) * 1e6 / operations,
        replaying_us=spent * 1e6 / operations,
    )


def ratio(replaying: float, executing: float) -> float:
    """Return the ratio of processor times. Raises `Unmeasured` if the work was too short to be measured."""
    if replaying <= 0 or executing <= 0:
        raise Unmeasured(
            "the replay took no longer than that of the commands that prepare it: there are too few entries, or "
            "the machine's speed changes"
        )
    return replaying / executing


def in_own_process(*words: str) -> dict[str, Any]:
    """Run replayed.py and return what it prints. Raises `Unmeasured` with its error."""
    with on_cores({cores()[1]}):
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.storage.replayed", *words],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=WITHIN_SECONDS,
        )
    if done.returncode or not done.stdout:
        last = done.stderr.strip().splitlines()[-1:] or [f"status {done.returncode}"]
        raise Unmeasured(f"{' '.join(words[:2])}: {last[0]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found
