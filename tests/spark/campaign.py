"""The long campaign of the Spark pipeline: `make chaos-spark`.

While a stream grows, drivers and executors are killed at random moments, and drivers between a sink's batch
and Spark's log of it; stores are killed, and started again with their data or an older copy; two drivers run with one
checkpoint. After each life of a query its sink must contain each entry's id once
(chaos/lives.py). Each life is one line of campaigns/chaos-spark.jsonl: its kind is the part, its kills are
the trials. The next run continues with the next seed. A single seed can be repeated, without being recorded:

    python -m tests.spark.campaign --seed 17 --trials 1 --kinds commit
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from headwater.testing.server import server_process
from tests import campaigns, peers
from tests.campaigns import Outcome
from tests.spark.chaos.lives import KILLS_OF, KINDS, OF_SERVERS, Kind, Life, live
from tests.spark.chaos.ways import WAYS

NAME = "chaos-spark"

STORES = {"headwater": 3, "redis-8.2": 1, "valkey-9.1": 1}
"""The relative frequency of each store."""

FAILURE_CHARACTERS = 600
"""How much of a failure is recorded."""


@contextmanager
def store_called(name: str) -> Iterator[str]:
    """Start a store and yield its url."""
    if name == "headwater":
        with server_process("--appendfsync", "no") as server:
            yield server.url
    else:
        with peers.running(name) as peer:
            yield peer.url


def one_life(kind: Kind, seed: int, *, kills: int, way: str | None = None) -> Life:
    """Run the life that ``seed`` determines."""
    chance = random.Random(f"{kind} {seed}")
    chosen = chance.choice([name for name, way in WAYS.items() if kind in way.kinds])
    if kind in OF_SERVERS:
        with server_process("--appendfsync", "always") as server:
            return live(
                kind,
                way or chosen,
                store="headwater",
                url=server.url,
                seed=seed,
                kills=kills,
                server=server,
            )
    store = chance.choices(list(STORES), list(STORES.values()))[0]
    with store_called(store) as url:
        return live(kind, way or chosen, store=store, url=url, seed=seed, kills=kills)


def outcome_of(life: Life, seconds: float) -> Outcome:
    """Return the record of a life: at most one failure, of which the driver's log is left out."""
    failures = []
    if life.failures:
        failures.append(
            f"{life.way} on {life.store}: {'; '.join(life.failures)}"[:FAILURE_CHARACTERS]
        )
    return Outcome(life.kind, (life.seed, life.seed), life.trials, "kills", failures, seconds)


def next_seed() -> int:
    """Return the lowest seed that no life of any kind has used."""
    return max(campaigns.next_seed(NAME, kind) for kind in KINDS)


def main() -> int:
    """Run the campaign; the exit status is 1 if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=100, help="kills of each kind")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no life after")
    parser.add_argument("--kinds", default=",".join(KINDS), help="of " + ", ".join(KINDS))
    parser.add_argument("--way", choices=list(WAYS), help="use only this way")
    parser.add_argument("--seed", type=int, help="the first seed; by default the next unused one")
    wanted = parser.parse_args()
    # Exit normally on SIGTERM, so that started processes are ended too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    kinds: list[Kind] = [kind for kind in KINDS if kind in wanted.kinds.split(",")]
    seed = wanted.seed or next_seed()
    began, failed = time.monotonic(), 0
    done = dict.fromkeys(kinds, 0)
    # Alternate the kinds, so that an interrupted run has tried each.
    while any(count < wanted.trials for count in done.values()):
        for kind in [kind for kind in kinds if done[kind] < wanted.trials]:
            if time.monotonic() - began > wanted.seconds:
                return 1 if failed else 0
            started = time.monotonic()
            kills = min(KILLS_OF[kind], wanted.trials - done[kind])
            life = one_life(kind, seed, kills=kills, way=wanted.way)
            if wanted.seed is None:
                campaigns.record(NAME, outcome_of(life, time.monotonic() - started))
            done[kind] += max(1, life.trials)
            failed += bool(life.failures)
            print(_said(life, done[kind], wanted.trials), flush=True)
            seed += 1
    print(f"{failed} lives failed")
    return 1 if failed else 0


def _said(life: Life, done: int, of: int) -> str:
    verdict = "; ".join(life.failures) or f"{life.entries} entries, each once"
    return f"{life.kind} {done}/{of}, seed {life.seed}, {life.way} on {life.store}: {verdict}"


if __name__ == "__main__":
    sys.exit(main())
