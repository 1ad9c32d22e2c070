"""Records the runs of the long campaigns in ``campaigns/NAME.jsonl``, which is committed.

A line is one part of one run: date, commit, build, part, seeds, trials and their unit, failures, seconds.
A claim without such a line does not count. The next run uses the seeds after the last one, so no run
repeats another. A run with a given seed repeats an earlier one and is not recorded. `make docs` summarizes
the files in docs/reference/reliability.md.

The samples in `make slice` append to `SLICE` instead, which is not committed: they run on every machine
and for every unfinished change.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks import machine

DIRECTORY: Final = machine.ROOT / "campaigns"
SLICE: Final = machine.ROOT / "artifacts" / "campaigns"

COMMIT: Final = machine.commit()
"""The commit at the start of the run: another one may be made before it ends."""

SHOWN: Final = 2000
"""Characters of a failure that a line stores. The seed reproduces the rest."""

Line = dict[str, Any]


class Outcome(NamedTuple):
    """One part of a run. ``seeds`` are the first and the last one, or None if the part uses no random
    numbers. ``trials`` counts ``unit``: commands, crashes, kills."""

    part: str
    seeds: tuple[int, int] | None
    trials: int
    unit: str
    failures: Sequence[str]
    seconds: float


def line_of(outcome: Outcome) -> Line:
    """The line that is recorded for ``outcome``."""
    return {
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "commit": COMMIT,
        "build": machine.build_kind().partition(" ")[0],
        "part": outcome.part,
        "seeds": None if outcome.seeds is None else list(outcome.seeds),
        "trials": outcome.trials,
        "unit": outcome.unit,
        "failures": [text[:SHOWN] for text in outcome.failures],
        "seconds": round(outcome.seconds, 1),
    }


def record(campaign: str, outcome: Outcome, *, directory: Path = DIRECTORY) -> Path:
    """Append a line for ``outcome`` and return the file's path."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{campaign}.jsonl"
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line_of(outcome), ensure_ascii=False) + "\n")
    return path


def lines(campaign: str, *, directory: Path = DIRECTORY) -> list[Line]:
    """Return all recorded lines of a campaign, oldest first."""
    path = directory / f"{campaign}.jsonl"
    if not path.exists():
        return []
    return [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]


def next_seed(campaign: str, part: str, *, first: int = 1, directory: Path = DIRECTORY) -> int:
    """Return the first seed that no run of this part has used."""
    found = lines(campaign, directory=directory)
    used: list[int] = [one["seeds"][1] for one in found if one["part"] == part and one["seeds"]]
    return max([first - 1, *used]) + 1


def campaigns(directory: Path = DIRECTORY) -> list[str]:
    """Return the names of all campaigns with recorded runs."""
    return sorted(path.stem for path in directory.glob("*.jsonl"))
