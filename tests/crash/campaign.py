"""The long campaign of crashes: `make crash`.

- ``journal``: crashes in memory before every operation of random histories, under each policy
- ``errors``: each operation of random histories fails with EIO in turn
- ``nodes``: the same with commands, whose replies are compared, and checkpoints
- ``calls``: a real server or its helper, killed before a random system call
- ``kills``: a real server with four clients, killed with SIGKILL at random points

Each run uses new seeds and appends a line for each part to campaigns/crash.jsonl. To repeat a single seed
without recording it: ``python -m tests.crash.campaign --only journal --seed 104 --seeds 1``.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Final

from headwater.config.storage import FsyncPolicy
from tests import campaigns
from tests.campaigns import Outcome
from tests.crash.call_campaign import CallCampaign
from tests.crash.journal_campaign import Campaign, failing
from tests.crash.node_campaign import NodeCampaign
from tests.crash.test_server_kill import kill_points

NAME: Final = "crash"
POLICIES: Final[tuple[FsyncPolicy, ...]] = ("always", "everysec", "no")
PARTS: Final = ("journal", "errors", "nodes", "calls", "kills")
TURNS: Final = 80
IMAGES: Final = 5
TRIALS_OF_ONE: Final = 200
"""Number of servers that are killed with the same data directory, before a system call."""
POINTS_OF_ONE: Final = 50
"""Number of kills with the same data directory."""


def journal(seed: int, seeds: int) -> tuple[int, list[str]]:
    """Return the number of crashes tried and the failures."""
    trials, failures = 0, []
    for policy in POLICIES:
        for one in range(seed, seed + seeds):
            done = Campaign(policy, seed=one, turns=TURNS, images=IMAGES).run()
            trials += done.trials
            failures += [f"seed {one}: {text}" for text in done.failures]
    return trials, failures


def errors(seed: int, seeds: int) -> tuple[int, list[str]]:
    """Return the number of failed operations tried and the failures."""
    trials, failures = 0, []
    for policy in POLICIES:
        for one in range(seed, seed + seeds):
            done, found = failing(policy, seed=one)
            trials += done
            failures += [f"seed {one}: {text}" for text in found]
    return trials, failures


def nodes(seed: int, seeds: int) -> tuple[int, list[str]]:
    """Return the number of crashes tried and the failures."""
    trials, failures = 0, []
    for one in range(seed, seed + seeds):
        done = NodeCampaign(one, images=IMAGES).run()
        trials += done.trials
        failures += done.failures
    return trials, failures


def calls(seed: int, seeds: int) -> tuple[int, list[str]]:
    """Return the number of kills of a server and the failures."""
    trials, failures = 0, []
    for one in range(seed, seed + seeds):
        done = CallCampaign(one, TRIALS_OF_ONE).run()
        trials += done.servers
        failures += done.wrong
    return trials, failures


def kills(seed: int, seeds: int) -> tuple[int, list[str]]:
    """Return the number of kills of a real server and the failures."""
    failures = []
    for one in range(seed, seed + seeds):
        failures += [f"seed {one}: {text}" for text in kill_points(POINTS_OF_ONE, one)]
    return seeds * POINTS_OF_ONE, failures


def run(part: str, seed: int, seeds: int) -> Outcome:
    """Run one part with ``seeds`` seeds."""
    parts = {"journal": journal, "errors": errors, "nodes": nodes, "calls": calls, "kills": kills}
    units = {"journal": "crashes", "errors": "failed operations", "nodes": "crashes"}
    began = time.monotonic()
    trials, failures = parts[part](seed, seeds)
    last = seed + seeds - 1
    return Outcome(
        part, (seed, last), trials, units.get(part, "kills"), failures, time.monotonic() - began
    )


def main() -> int:
    """Run the parts. Return 1 if there was a failure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {','.join(PARTS)}")
    parser.add_argument(
        "--seeds", type=int, default=20, help="number for each part and policy (20)"
    )
    parser.add_argument("--seed", type=int, help="the first seed; default: the next unused one")
    wanted = parser.parse_args()
    parts = wanted.only.split(",")
    if not set(parts) <= set(PARTS):
        parser.error(f"--only accepts some of {','.join(PARTS)}, not {wanted.only!r}")
    failed = 0
    for part in parts:
        seed = wanted.seed or campaigns.next_seed(NAME, part)
        outcome = run(part, seed, wanted.seeds)
        if wanted.seed is None:
            campaigns.record(NAME, outcome)
        failed += len(outcome.failures)
        print(f"{part}: {outcome.trials} {outcome.unit}, {len(outcome.failures)} failures")
        for text in outcome.failures:
            print(text)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
