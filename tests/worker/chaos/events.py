"""Faults in a trial and their times. Each repeated run of a handler must be explained by one of them.

Rule 1. A repeated run is explained by an event between the first run and the second that affected its
        process, its connections or the server, or by a stall of the machine. It may also be a pause or
        a stall of the second process, which then runs what it had buffered.
Rule 2. Times are of the monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

STALL: Final = "stall"
HOLD: Final = "hold"

AFTERMATH_SECONDS: Final = {STALL: 1.5, HOLD: 1.5, "SIGSTOP": 1.5, "SIGKILL": 0.3, "segfault": 0.3}
"""Seconds after its end in which an event still has effects. A process that was paused runs what it had
buffered before it learns that its leases are lost, and deaths are detected by polling."""

DEATHS: Final = ("SIGKILL", "segfault")

ENDS: Final = 4_000
"""How many bytes at the end of a file `latest` reads."""

OUTAGE_SECONDS: Final = 2.5
"""The same for faults of a connection or the server. An attempt to connect that began during the fault ends
after its deadline of a second, and entries read meanwhile are claimed a second later."""


class Event(NamedTuple):
    """An event of ``kind`` that affected process ``pid``, or all if None, from ``began`` to ``ended``."""

    kind: str
    pid: int | None
    began: float
    ended: float


class Run(NamedTuple):
    """The start of a handler with a message."""

    at: float
    pid: int


def read_runs(directory: Path) -> tuple[dict[tuple[str, int], list[Run]], list[Event]]:
    """All runs by consumer and message, ordered by time, and the stalls of the machine."""
    runs: dict[tuple[str, int], list[Run]] = {}
    stalls = []
    for path in directory.glob("runs-*"):
        pid = int(path.name.partition("-")[2])
        for line in path.read_text().splitlines():
            word, first, second = line.split()
            if word == STALL:
                stalls.append(Event(STALL, pid, float(first), float(second)))
            else:
                runs.setdefault((word, int(first)), []).append(Run(float(second), pid))
    for found in runs.values():
        found.sort()
    return runs, stalls


def holds(runs: Iterable[Run], seconds: float) -> list[Event]:
    """The events of a message whose runs hold the interpreter's lock for so long: others may claim what its process has."""
    return [Event(HOLD, run.pid, run.at, run.at + seconds) for run in runs]


def latest(file: Path) -> list[tuple[str, int, float]]:
    """Consumer, message and start of the last runs of this file: reading all of it takes seconds, and what asks has the
    proxies of the workers in its event loop."""
    with file.open("rb") as opened:
        opened.seek(max(0, file.stat().st_size - ENDS))
        lines = [line.split() for line in opened.read().decode().splitlines()]
    return [
        (line[0], int(line[1]), float(line[2]))
        for line in lines[-ENDS // 100 :]
        if line[0] != STALL
    ]


def ran_since(directory: Path, moment: float) -> set[int]:
    """The processes that have handled a message since ``moment``."""
    found = set()
    for path in directory.glob("runs-*"):
        runs = latest(path)
        if runs and runs[-1][2] >= moment:
            found.add(int(path.name.partition("-")[2]))
    return found


def reason(first: Run, second: Run, events: Iterable[Event]) -> str | None:
    """The kind of the event that explains the second run, or None."""
    for event in events:
        if event.began > second.at:
            continue
        over = event.ended + AFTERMATH_SECONDS.get(event.kind, OUTAGE_SECONDS)
        if event.pid in (None, first.pid):
            explains = over >= first.at
        else:
            explains = event.pid == second.pid and event.kind not in DEATHS and over >= second.at
        if explains:
            return event.kind
    return None


def _before(first: Run, events: Iterable[Event]) -> str:
    """A description of the last event that affected the process before it ran the message."""
    found = [e for e in events if e.pid in (None, first.pid) and e.began < first.at]
    if not found:
        return "no event before affected that process"
    last = max(found, key=lambda event: event.ended)
    return f"{last.kind} affected it from {last.began:.3f} to {last.ended:.3f}"


def repeated(
    runs: dict[tuple[str, int], list[Run]], events: list[Event]
) -> tuple[Counter[str], list[str]]:
    """Numbers of repeated runs by cause, and descriptions of those without a cause."""
    reasons: Counter[str] = Counter()
    unexplained = []
    # Injected faults take precedence over stalls of the machine.
    ordered = sorted(events, key=lambda event: event.kind == STALL)
    for (consumer, number), found in runs.items():
        for first, second in pairwise(found):
            why = reason(first, second, ordered)
            if why is None:
                unexplained.append(
                    f"{consumer} ran message {number} in process {first.pid} at {first.at:.3f} and in "
                    f"process {second.pid} at {second.at:.3f}, without a cause; {_before(first, ordered)}"
                )
            else:
                reasons[why] += 1
    return reasons, unexplained
