"""Sends messages through a cluster while it changes at random; `make chaos-clusters`.

    python -m tests.clusters.campaign --rounds 20 --only valkey-9.1
    python -m tests.clusters.campaign --seed 17 --rounds 1        repeats a round

changes   a primary is killed, with its replica up to date or behind; a manual failover; the stream's slot
          moves: four per round, on Redis with a pause between failovers (`Cluster.can_fail_over`)
load      batches all the time; in half of the rounds a replica confirms each message (wait=1), and only
          in those a primary is killed
consumers a plain one with results in the stream's slot or another slot, or two ordered ones
verdict   each confirmed message is handled and has a result, in the same slot exactly one; nothing is
          pending; messages of a key began in order, one at a time
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
import traceback
from collections import deque
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final

from tests import campaigns
from tests.campaigns import Outcome
from tests.clusters import clusters
from tests.clusters.clusters import Cluster
from tests.clusters.conftest import CLUSTERED
from tests.clusters.flow import Flow, far, flowing, near
from tests.clusters.ordered_flow import OrderedFlow, flowing_in_order
from tests.clusters.test_cluster_changes import hand_over, kill, kill_ahead

CHANGES = 4
KILLS = {"kill": kill, "kill ahead": kill_ahead}

ROUND_SECONDS = 300
"""A round that takes longer counts as stuck. Most rounds take 5 to 30 seconds."""

ORDERED = 0.4
"""The share of rounds whose consumer has `order_by`."""

KEPT: Final = Path("artifacts", "chaos-clusters")
"""The directory for the node logs of failed rounds."""


async def play(cluster: Cluster, seed: int) -> str:
    """Run one round and return its summary. Raises AssertionError if a message is lost or stuck."""
    rng = random.Random(seed)
    into = rng.choice((near, far))
    wait = rng.choice((None, 1))
    kinds = ("kill", "kill ahead", "hand over", "move") if wait else ("hand over", "move", "move")
    changes = [rng.choice(kinds) for _change in range(CHANGES)]
    flows: AbstractAsyncContextManager[Flow | OrderedFlow]
    if rng.random() < ORDERED:
        flows = flowing_in_order(cluster, wait=wait)
    else:
        flows = flowing(cluster.name, cluster.url, into=into, wait=wait)
    async with flows as flow:
        for change in changes:
            await asyncio.sleep(rng.uniform(0, 0.5))  # a change may come at any moment
            await _change(cluster, change, flow.stream)
        await flow.more(200)
    return f"{', '.join(changes)}: {flow.summary()}"


async def _change(cluster: Cluster, name: str, stream: str) -> None:
    if name in KILLS:
        # Without an up-to-date replica there would be no new primary.
        await asyncio.to_thread(clusters.until, cluster.healthy, "every shard has its replica")
        await KILLS[name](cluster, stream)
    elif name == "hand over":
        await hand_over(cluster, stream)
    else:
        await asyncio.to_thread(cluster.move, stream)


def part(name: str, *, first: int, rounds: int) -> Outcome:
    """Run ``rounds`` rounds on one peer, with seeds from ``first`` on."""
    began = time.monotonic()
    failures: list[str] = []
    left = deque(range(first, first + rounds))
    while left:
        with clusters.cluster(name) as cluster:
            while left:
                seed = left.popleft()
                try:
                    cluster.reset()
                    summary = asyncio.run(asyncio.wait_for(play(cluster, seed), ROUND_SECONDS))
                    print(f"{name} {seed}: {summary}", flush=True)
                except Exception:
                    failures.append(f"{name} {seed}: {traceback.format_exc()}")
                    print(failures[-1], f"the nodes' logs: {_kept(cluster, seed)}", flush=True)
                    break  # the next round gets a new cluster
    seeds = (first, first + rounds - 1)
    return Outcome(name, seeds, rounds * CHANGES, "changes", failures, time.monotonic() - began)


def _kept(cluster: Cluster, seed: int) -> Path:
    """Copy the node logs of a failed round and return their directory."""
    directory = KEPT / f"{cluster.name}-{seed}"
    directory.mkdir(parents=True, exist_ok=True)
    for node in cluster.nodes:
        (directory / f"{node.port}.log").write_text(node.peer.log(), encoding="utf-8")
    return directory


def main() -> int:
    """Run the rounds and record them. Returns 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--only", choices=CLUSTERED)
    parser.add_argument("--seed", type=int)
    options = parser.parse_args()
    failed = 0
    for name in CLUSTERED if options.only is None else (options.only,):
        first = options.seed or campaigns.next_seed("clusters", name)
        outcome = part(name, first=first, rounds=options.rounds)
        failed += len(outcome.failures)
        if options.seed is None:
            campaigns.record("clusters", outcome)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
