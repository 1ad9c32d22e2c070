"""What was done to the processes of a trial, and when: a repeated run must have its reason here.

Rule 1. A run that is repeated is explained by what happened to its process, its connections or the
        server between the first run and the second, or by the machine, which let a process stand still.
        A process that stood still may also be the second: it runs what it had buffered before.
Rule 2. Times are of the monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

STALL: Final = "stall"

AFTERMATH_SECONDS: Final = {STALL: 1.5, "SIGSTOP": 1.5, "SIGKILL": 0.3, "segfault": 0.3}
"""How long after its end an event has effects. A process that stood still runs what it had buffered before it
learns that its leases are lost, and a death is seen by a poll."""

DEATHS: Final = ("SIGKILL", "segfault")

OUTAGE_SECONDS: Final = 2.5
"""The same for what hit a connection or the server: an attempt to connect that began in the silence ends after
the deadline of a second, and what was read meanwhile is claimed a second later."""


class Event(NamedTuple):
    """``kind`` hit process ``pid``, or all of them, from ``began`` to ``ended``."""

    kind: str
    pid: int | None
    began: float
    ended: float


class Run(NamedTuple):
    """A handler got a message."""

    at: float
    pid: int


def read_runs(directory: Path) -> tuple[dict[tuple[str, int], list[Run]], list[Event]]:
    """All runs by consumer and message, in the order of time, and the stalls of the machine."""
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


def reason(first: Run, second: Run, events: Iterable[Event]) -> str | None:
    """Why the message ran again, None if nothing explains it."""
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
    """What hit the process last before it ran the message."""
    found = [e for e in events if e.pid in (None, first.pid) and e.began < first.at]
    if not found:
        return "nothing hit that process before"
    last = max(found, key=lambda event: event.ended)
    return f"{last.kind} hit it from {last.began:.3f} to {last.ended:.3f}"


def repeated(
    runs: dict[tuple[str, int], list[Run]], events: list[Event]
) -> tuple[Counter[str], list[str]]:
    """Repeated runs by their reasons, and those that have none."""
    reasons: Counter[str] = Counter()
    unexplained = []
    # What we did comes before what the machine did.
    ordered = sorted(events, key=lambda event: event.kind == STALL)
    for (consumer, number), found in runs.items():
        for first, second in pairwise(found):
            why = reason(first, second, ordered)
            if why is None:
                unexplained.append(
                    f"{consumer} ran message {number} in process {first.pid} at {first.at:.3f} and in "
                    f"process {second.pid} at {second.at:.3f}, for no reason; {_before(first, ordered)}"
                )
            else:
                reasons[why] += 1
    return reasons, unexplained
