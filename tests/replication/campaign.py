"""The long campaign of the link between a primary and its replicas: `make replication`.

- ``machine``: histories of three members in one process, with cuts, kills, restarts, promotions and chains:
  members with the same history and offset are in the same state (`machine`)
- ``fuzz``: mutated bytes of a link, which are refused or read as they were sent
- ``cuts``: a primary and a replica under load, whose link is cut at any byte, falls silent or is slow, and whose
  replica is killed: the replica goes on where it was, without a copy, and has the same state (`cuts`)

Each run uses new seeds and appends a line per part to campaigns/replication.jsonl. A single seed can be repeated,
which is not recorded: ``python -m tests.replication.campaign --only machine --seed 17 --histories 1``.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Final

from tests import campaigns
from tests.campaigns import Outcome
from tests.replication.cuts import trial
from tests.replication.fuzzing import wrongly_read
from tests.replication.machine import Machine

NAME: Final = "replication"
EVENTS: Final = 120
"""Events of a history."""
MUTATIONS: Final = 1000
"""Mutated messages of a seed."""
CUTS: Final = 50
"""Faults of a trial."""


def histories(seed: int, count: int) -> Iterator[tuple[int, int, str]]:
    """Yield seed, number of histories and failure of each history."""
    for number in range(seed, seed + count):
        yield number, 1, _failure(partial(_history, number))


def _history(seed: int) -> None:
    machine = Machine(seed)
    for _ in range(EVENTS):
        machine.step()
    machine.settle()


def fuzz(seed: int, messages: int) -> Iterator[tuple[int, int, str]]:
    """Yield seed, number of mutated messages and failure."""
    for number in range(seed, seed + -(-messages // MUTATIONS)):
        try:
            wrong = wrongly_read(Random(number), MUTATIONS)
            failure = f"read, but not sent: {wrong[0]}" if wrong else ""
        except Exception:
            failure = traceback.format_exc()
        yield number, MUTATIONS, failure


def cuts(seed: int, count: int) -> Iterator[tuple[int, int, str]]:
    """Yield seed, number of faults and failure of each trial."""
    for number in range(seed, seed + -(-count // CUTS)):
        yield number, CUTS, _failure(partial(_cuts, number))


def _cuts(seed: int) -> None:
    asyncio.run(trial(seed, CUTS))


def _failure(run: Callable[[], None]) -> str:
    try:
        run()
    except Exception:
        return traceback.format_exc()
    return ""


PARTS: Final = {
    "machine": (histories, "histories"),
    "fuzz": (fuzz, "mutated messages"),
    "cuts": (cuts, "faults of the link"),
}


def main() -> int:
    """Run the parts. Returns 1 if something failed."""
    made = argparse.ArgumentParser(
        prog="make replication",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--only", default=",".join(PARTS), help=f"some of {','.join(PARTS)}")
    made.add_argument("--machine", type=int, default=10_000, metavar="HISTORIES")
    made.add_argument("--fuzz", type=int, default=1_000_000, metavar="MESSAGES")
    made.add_argument("--cuts", type=int, default=1_000, metavar="FAULTS")
    made.add_argument("--seed", type=int, help="first seed; the run is not recorded")
    options = made.parse_args()
    wanted = options.only.split(",")
    if not set(wanted) <= set(PARTS):
        made.error(f"--only takes some of {','.join(PARTS)}, not {options.only!r}")
    failed = 0
    for part in wanted:
        run, unit = PARTS[part]
        seed = campaigns.next_seed(NAME, part) if options.seed is None else options.seed
        began, done, failures, last = time.monotonic(), 0, [], seed
        for last, number, failure in run(seed, getattr(options, part)):
            done += number
            if failure:
                failures.append(f"seed {last}: {failure}")
                print(failures[-1], flush=True)
        seconds = time.monotonic() - began
        if options.seed is None:
            outcome = Outcome(part, (seed, last), done, unit, failures, seconds)
            campaigns.record(NAME, outcome)
        print(f"{part}: {done:,} {unit}, {len(failures)} failures, {seconds:.0f} s", flush=True)
        failed += len(failures)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
