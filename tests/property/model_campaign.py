"""The part of the campaign that compares with the naive model: Headwater's own commands together with all
others, in pipelines. Replies are compared one by one; the invariants and the whole state every fifty steps,
and at the end the state that the journal restores.

    python -m tests.conformance.campaign --only model --seed 1017 --model 1
"""

from __future__ import annotations

import time
from collections import Counter
from random import Random
from typing import Any

from tests.property.machine_pending import PendingMachine
from tests.property.machine_pipelined import PipelinedMachine, Step

STEPS_OF_ONE = 500
LOOK_EVERY = 50
SHRINK_SECONDS = 120.0
SHOWN = 60

_NAMES = [name for name, often in PendingMachine.STEPS.items() for _ in range(often)]


def history(seed: int) -> list[Step]:
    """Return the steps of a seed. Every fifth seed begins with a large store."""
    random = Random(seed)
    found = [Step("fill", random.getrandbits(32))] if seed % 5 == 2 else []
    while len(found) < STEPS_OF_ONE:
        what = "resize" if len(found) % LOOK_EVERY == 1 else random.choice(_NAMES)
        found.append(Step(what, random.getrandbits(32)))
    return found


class Run:
    """One history on a new store. ``what`` describes the failure; it is empty if there was none."""

    def __init__(self, steps: list[Step]) -> None:
        self.what = ""
        self.machine = PipelinedMachine()
        try:
            self._do(steps)
        except Exception as error:
            self.what = str(error) if isinstance(error, AssertionError) else repr(error)
            self.machine.patches.undo()

    def _do(self, steps: list[Step]) -> None:
        for number, step in enumerate(steps):
            self.machine.do(step)
            if number % LOOK_EVERY == LOOK_EVERY - 1:
                self.machine.check()
        self.machine.check()
        self.machine.teardown()


def explained(steps: list[Step]) -> str:
    """Return the shortest part of a failing history that also fails, as commands, and the failure."""
    deadline = time.monotonic() + SHRINK_SECONDS
    size, start = len(steps) // 2, 0
    while size and time.monotonic() < deadline:
        shorter = steps[:start] + steps[start + size :]
        if Run(shorter).what:
            steps = shorter
        else:
            start += size
        if start >= len(steps):
            size, start = size // 2, 0
    steps = _without_pairs(steps)
    run = Run(steps)
    lines = [f"{len(steps)} steps: {' '.join(step.what for step in steps[:SHOWN])}"]
    shown = run.machine.sent[-SHOWN:]
    lines += [" ".join(repr(word)[:80] for word in words) for words in shown]
    return "\n".join([*lines, run.what[:4000]])


def _without_pairs(steps: list[Step]) -> list[Step]:
    """Remove neighbours that can only be removed together, such as a MULTI and its EXEC."""
    start = 0
    while len(steps) <= SHOWN and start + 2 <= len(steps):
        shorter = steps[:start] + steps[start + 2 :]
        if shorter and Run(shorter).what:
            steps, start = shorter, 0
        else:
            start += 1
    return steps


def model(seed: int, commands: int) -> dict[str, Any]:
    """Run histories until ``commands`` commands were compared. Return what was done and what failed."""
    first, counted = seed, Counter[str]()
    failures: list[dict[str, Any]] = []
    while counted.total() < commands:
        steps = history(seed)
        run = Run(steps)
        counted += run.machine.counted
        if run.what:
            failures.append({"seed": seed, "what": explained(steps)})
        seed += 1
        if seed % 50 == 0:
            print(f"model: {counted.total()} commands, {len(failures)} failures", flush=True)
    return {
        "first_seed": first,
        "last_seed": seed - 1,
        "commands": counted.total(),
        "by_command": dict(sorted(counted.items())),
        "failures": failures,
    }
