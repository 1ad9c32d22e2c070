"""The long campaign of the Spark pipeline: `make chaos-spark`.

Drivers and executors are killed at random moments, and drivers between a sink's batch and Spark's
log of it, while a stream grows; after each life of a query its sink must hold each entry's id once
(chaos/lives.py). Each life is one line of artifacts/chaos-spark.jsonl: seed, what was killed when,
what failed. The next run goes on with the next seed. A seed runs again by itself:

    python -m tests.spark.campaign --seed 17 --trials 1 --kinds commit
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import random
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headwater.testing.server import server_process
from tests import peers
from tests.spark.chaos.lives import KILLS_OF, KINDS, Kind, Life, live
from tests.spark.chaos.ways import WAYS

ARTIFACT = Path(__file__).parents[2] / "artifacts" / "chaos-spark.jsonl"
FIRST_SEED = 1

STORES = {"headwater": 3, "redis-8.2": 1, "valkey-9.1": 1}
"""How often each is the store of a life, in proportion."""


@contextmanager
def store_called(name: str) -> Iterator[str]:
    """The url of a store of its own."""
    if name == "headwater":
        with server_process("--appendfsync", "no") as server:
            yield server.url
    else:
        with peers.running(name) as peer:
            yield peer.url


def one_life(kind: Kind, seed: int, *, kills: int, way: str | None = None) -> Life:
    """The life that ``seed`` stands for."""
    chance = random.Random(f"{kind} {seed}")
    chosen = chance.choice([name for name, way in WAYS.items() if kind in way.kinds])
    store = chance.choices(list(STORES), list(STORES.values()))[0]
    with store_called(store) as url:
        return live(kind, way or chosen, store=store, url=url, seed=seed, kills=kills)


def record(life: Life, seconds: float, artifact: Path = ARTIFACT) -> None:
    """Add a line; a claim without it does not count."""
    artifact.parent.mkdir(exist_ok=True)
    line = {
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        **asdict(life),
        "trials": life.trials,
        "seconds": round(seconds, 1),
    }
    with artifact.open("a") as file:
        file.write(json.dumps(line) + "\n")


def recorded(artifact: Path = ARTIFACT) -> list[dict[str, Any]]:
    """The lines of the runs before."""
    if not artifact.exists():
        return []
    return [json.loads(line) for line in artifact.read_text().splitlines()]


def next_seed(lines: list[dict[str, Any]]) -> int:
    """The seed that no life has had."""
    return 1 + max((line["seed"] for line in lines), default=FIRST_SEED - 1)


def main() -> int:
    """Run; the exit status says whether anything failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=100, help="kills of each kind")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no life after")
    parser.add_argument("--kinds", default=",".join(KINDS), help="of " + ", ".join(KINDS))
    parser.add_argument("--way", choices=list(WAYS), help="one way only")
    parser.add_argument("--seed", type=int, help="the first; by default the next")
    wanted = parser.parse_args()
    # Whoever ends the campaign ends what it started, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    kinds: list[Kind] = [kind for kind in KINDS if kind in wanted.kinds.split(",")]
    seed = wanted.seed or next_seed(recorded())
    began, failed = time.monotonic(), 0
    done = dict.fromkeys(kinds, 0)
    # The kinds in turn, so that a run that is cut short has tried each.
    while any(count < wanted.trials for count in done.values()):
        for kind in [kind for kind in kinds if done[kind] < wanted.trials]:
            if time.monotonic() - began > wanted.seconds:
                return 1 if failed else 0
            started = time.monotonic()
            kills = min(KILLS_OF[kind], wanted.trials - done[kind])
            life = one_life(kind, seed, kills=kills, way=wanted.way)
            record(life, time.monotonic() - started)
            done[kind] += max(1, life.trials)
            failed += bool(life.failures)
            print(_said(life, done[kind], wanted.trials), flush=True)
            seed += 1
    print(f"{failed} lives failed; appended to {ARTIFACT.relative_to(Path.cwd())}")
    return 1 if failed else 0


def _said(life: Life, done: int, of: int) -> str:
    verdict = "; ".join(life.failures) or f"{life.entries} entries, each once"
    return f"{life.kind} {done}/{of}, seed {life.seed}, {life.way} on {life.store}: {verdict}"


if __name__ == "__main__":
    sys.exit(main())
