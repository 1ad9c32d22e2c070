"""Where the long campaigns write down what they did: ``campaigns/NAME.jsonl``, committed.

A line is one part of one run: date, commit, build, part, seeds, trials and what they are, failures,
seconds. A claim without such a line does not count. The next run takes the seeds after the last, so that
no run repeats another; a run with a seed of its own choice plays something again and is not written down.
`make docs` sums the files up in docs/reference/reliability.md.

The samples in `make slice` append to `SLICE` instead, which is not committed: they run on every machine,
of every half-finished change.
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
"""As the run began: somebody may commit before it ends."""

SHOWN: Final = 2000
"""Characters of a failure that a line keeps: enough to see what it is; its seed shows the rest."""

Line = dict[str, Any]


class Outcome(NamedTuple):
    """One part of a run. ``seeds`` are the first and the last one, None where nothing is drawn;
    ``trials`` counts ``unit``: commands, crashes, kills."""

    part: str
    seeds: tuple[int, int] | None
    trials: int
    unit: str
    failures: Sequence[str]
    seconds: float


def line_of(outcome: Outcome) -> Line:
    """What is written down of it."""
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
    """Append a line; the file."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{campaign}.jsonl"
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line_of(outcome), ensure_ascii=False) + "\n")
    return path


def lines(campaign: str, *, directory: Path = DIRECTORY) -> list[Line]:
    """All that is written down of a campaign, oldest first."""
    path = directory / f"{campaign}.jsonl"
    if not path.exists():
        return []
    return [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]


def next_seed(campaign: str, part: str, *, first: int = 1, directory: Path = DIRECTORY) -> int:
    """The first seed that no run of this part has had."""
    found = lines(campaign, directory=directory)
    used: list[int] = [one["seeds"][1] for one in found if one["part"] == part and one["seeds"]]
    return max([first - 1, *used]) + 1


def campaigns(directory: Path = DIRECTORY) -> list[str]:
    """Every campaign that something is written down of."""
    return sorted(path.stem for path in directory.glob("*.jsonl"))
