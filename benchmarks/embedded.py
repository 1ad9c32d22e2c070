"""XADD to an embedded store, compared with burner-redis, fakeredis, and redis-py with a real Redis.

Every measurement is a separate process (in_process.py) on the client's core.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.machine import ROOT
from benchmarks.rows import OURS, REDIS, Row, Target
from benchmarks.selection import Selection
from benchmarks.stores import cores, durability, on_cores
from tests import peers

BURNER: Final = "burner-redis"
FAKE: Final = "fakeredis"


class Subject(NamedTuple):
    """A row: what each store's process runs, and the peer that the target refers to."""

    name: str
    of: dict[str, str]
    target: Target
    against: str


SUBJECTS: Final = (
    Subject(
        "embedded XADD, bytes to bytes",
        {OURS: "node", BURNER: "burner"},
        Target(3.0, 5.0),
        BURNER,
    ),
    Subject(
        "embedded XADD, 100 at a time",
        {OURS: "node-100", BURNER: "burner-100"},
        Target(3.0, 5.0, judged=False),
        BURNER,
    ),
    Subject(
        "embedded XADD through redis-py",
        {OURS: "client", REDIS: "socket", FAKE: "fake", BURNER: "burner"},
        Target(1.5, 2.0),
        REDIS,
    ),
)


def rows(selection: Selection) -> Iterator[Row]:
    """Yield the selected rows; Redis listens on a unix socket."""
    chosen = [subject for subject in SUBJECTS if selection.wants(subject.name)]
    server_core, client_core = cores()
    with ExitStack() as stack:
        path: Path | None = None
        if any("socket" in one.of.values() for one in chosen) and peers.path(REDIS):
            with on_cores({server_core}):
                peer = stack.enter_context(peers.running(REDIS, *durability(None), unixsocket=True))
            path = peer.unixsocket
        for subject in chosen:
            row = Row(
                "embedded", subject.name, "/s", target=subject.target, against=subject.against
            )
            for _ in range(selection.rounds):
                for store, word in subject.of.items():
                    if word == "socket" and path is None:
                        continue
                    add_round(row, store, word, selection.seconds, path, client_core)
            yield row


def add_round(
    row: Row, store: str, subject: str, seconds: float, path: Path | None, core: int
) -> None:
    """Measure one round of one store; note it in the row if its library is not installed."""
    with on_cores({core}):
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.in_process", subject, str(seconds), str(path or "")],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(f"benchmarks.in_process {subject}: {done.stderr.strip()}")
    said = json.loads(done.stdout)
    if "missing" in said:
        row.note = f"{store} not available: {said['missing']}"
        return
    rate = said["operations"] / said["seconds"]
    row.of(store).add(rate, us_per_operation=1e6 / rate)
