"""The long campaign of crashes: `make crash`, about an hour.

- ``journal``: crashes in memory before every operation of random histories, under each policy
- ``errors``: each operation of random histories fails with EIO in turn
- ``nodes``: crashes with commands, whose replies are compared: storing, checkpoints, compactions, jumps of the clock
- ``disks``: each file operation of such a history fails: EIO, ENOSPC, a full disk
- ``restarts``: random histories with checkpoints at random turns, against the naive model after each restart
- ``flips``: single bits flipped in memory, in each of the four kinds of file
- ``flipped``: real servers with a flipped bit
- ``calls``: a real server or its helper, killed before a random system call
- ``kills``: a real server with four clients, killed with SIGKILL at random points

With odd seeds, files in memory are read in small pieces.

Each run uses new seeds and appends a line for each part to campaigns/crash.jsonl. To repeat a single seed
without recording it: ``python -m tests.crash.campaign --only journal --seed 104 --seeds 1``.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

import pytest

from headwater.config.storage import FsyncPolicy
from tests import campaigns
from tests.campaigns import Outcome
from tests.crash.call_campaign import CallCampaign
from tests.crash.flip_campaign import FlipCampaign
from tests.crash.flipped_servers import FlippedServers
from tests.crash.journal_campaign import Campaign, failing
from tests.crash.journal_tools import small_pieces
from tests.crash.node_campaign import NodeCampaign
from tests.crash.node_failures import failing_nodes
from tests.crash.node_store import tiny_segments
from tests.crash.test_server_kill import kill_points
from tests.property.machine_restarts import restarted

NAME: Final = "crash"
POLICIES: Final[tuple[FsyncPolicy, ...]] = ("always", "everysec", "no")
TURNS: Final = 80
IMAGES: Final = 5
TRIALS_OF_ONE: Final = 200
"""Number of servers that are killed with the same data directory, before a system call."""
PIECE_BYTES: Final = 1000
"""The size of the pieces in which files in memory are read with odd seeds. Smaller ones make a part a third
slower."""
POINTS_OF_ONE: Final = 50
"""Number of kills with the same data directory."""
FLIPS_OF_ONE: Final = 1000
"""Number of bits that are flipped in memory in the files of one history."""
FLIPPED_OF_ONE: Final = 50
"""Number of servers with a flipped bit in the same files."""

Found = tuple[int, list[str]]
"""How often something was tried, and the failures."""


class Part(NamedTuple):
    """What a part runs with a seed. ``seeds`` is its number of them in a long campaign."""

    run: Callable[[int], Found]
    unit: str
    seeds: int


def journal(seed: int, *, turns: int | None = None) -> Found:
    """Crash a journal of so many turns (`TURNS`) under each policy."""
    turns = TURNS if turns is None else turns
    done = [Campaign(one, seed=seed, turns=turns, images=IMAGES).run() for one in POLICIES]
    return sum(one.trials for one in done), [text for one in done for text in one.failures]


def errors(seed: int) -> Found:
    """Let each operation of a journal fail under each policy."""
    found = [failing(one, seed=seed) for one in POLICIES]
    return sum(trials for trials, _ in found), [text for _, failures in found for text in failures]


def nodes(seed: int, *, images: int = IMAGES) -> Found:
    """Crash a node, with its entries in memory and on disk."""
    hot, cold = crashed_nodes(seed, images=images)
    return hot.trials + cold.trials, hot.failures + cold.failures


def crashed_nodes(seed: int, *, images: int) -> tuple[NodeCampaign, NodeCampaign]:
    """Crash a node with its entries in memory, and one with its entries on disk."""
    hot = NodeCampaign(seed, images=images).run()
    with pytest.MonkeyPatch.context() as patches:
        tiny_segments(patches)
        return hot, NodeCampaign(seed, images=images, cold=True).run()


def disks(seed: int, *, every: int = 1) -> Found:
    """Let each operation of a node fail, or every few."""
    with pytest.MonkeyPatch.context() as patches:
        tiny_segments(patches)
        return failing_nodes(seed, every=every)


def restarts(seed: int) -> Found:
    """Compare a store that was restarted with the naive model."""
    _machine, what = restarted(seed)
    return 1, [what] if what else []


def flips(seed: int, *, trials: int = FLIPS_OF_ONE) -> Found:
    """Flip bits in memory."""
    done = FlipCampaign(seed, trials=trials).run()
    return done.outcomes.total(), done.failures


def flipped(seed: int, *, trials: int = FLIPPED_OF_ONE) -> Found:
    """Start servers with a flipped bit."""
    done = FlippedServers(seed, trials).run()
    return done.outcomes.total(), done.failures


def calls(seed: int, *, trials: int = TRIALS_OF_ONE) -> Found:
    """Kill a server or its helper before a system call."""
    done = CallCampaign(seed, trials).run()
    return done.servers + done.helpers, done.wrong


def kills(seed: int, *, points: int = POINTS_OF_ONE) -> Found:
    """Kill a server with four clients."""
    return points, kill_points(points, seed)


PARTS: Final = {
    "journal": Part(journal, "crashes", 5),
    "errors": Part(errors, "failed operations", 20),
    "nodes": Part(nodes, "crashes", 40),
    "disks": Part(disks, "failed operations", 10),
    "restarts": Part(restarts, "histories", 10_000),
    "flips": Part(flips, "flipped bits", 105),
    "flipped": Part(flipped, "servers with a flipped bit", 4),
    "calls": Part(calls, "kills", 52),
    "kills": Part(kills, "kills", 20),
}


def run(part: str, seed: int, seeds: int, one: Callable[[int], Found] | None = None) -> Outcome:
    """Run one part with ``seeds`` seeds. ``one`` replaces its function, for a sample."""
    began, trials, failures = time.monotonic(), 0, list[str]()
    for number in range(seed, seed + seeds):
        with pytest.MonkeyPatch.context() as patches:
            if number % 2:
                small_pieces(patches, PIECE_BYTES)
            tried, found = (one or PARTS[part].run)(number)
        trials += tried
        failures += [text if "seed" in text else f"seed {number}: {text}" for text in found]
    took = time.monotonic() - began
    return Outcome(part, (seed, seed + seeds - 1), trials, PARTS[part].unit, failures, took)


def sample(part: str, seeds: int, one: Callable[[int], Found] | None = None) -> Outcome:
    """Run one part for the slice, with seeds that no run on this machine has used, and record it there."""
    first = campaigns.next_seed(NAME, part, directory=campaigns.SLICE)
    outcome = run(part, first, seeds, one)
    campaigns.record(NAME, outcome, directory=campaigns.SLICE)
    return outcome


def main() -> int:
    """Run the parts. Return 1 if there was a failure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {','.join(PARTS)}")
    default = ", ".join(f"{name} {part.seeds}" for name, part in PARTS.items())
    parser.add_argument("--seeds", type=int, help=f"number for each part ({default})")
    parser.add_argument("--seed", type=int, help="the first seed; default: the next unused one")
    wanted = parser.parse_args()
    parts = wanted.only.split(",")
    if not set(parts) <= set(PARTS):
        parser.error(f"--only accepts some of {','.join(PARTS)}, not {wanted.only!r}")
    failed = 0
    for part in parts:
        seed = wanted.seed or campaigns.next_seed(NAME, part)
        outcome = run(part, seed, wanted.seeds or PARTS[part].seeds)
        if wanted.seed is None:
            campaigns.record(NAME, outcome)
        failed += len(outcome.failures)
        print(
            f"{part}: {outcome.trials} {outcome.unit}, {len(outcome.failures)} failures, "
            f"{outcome.seconds:.0f} s",
            flush=True,
        )
        for text, times in Counter(outcome.failures).items():
            print(text if times == 1 else f"{text} ({times} times)")
    return 1 if failed else 0


if __name__ == "__main__":
    logging.getLogger("headwater").setLevel(logging.CRITICAL + 1)
    sys.exit(main())
