"""The long campaign of conformance: `make conform`.

It runs all parts, or those that ``--only`` names:

- ``histories``: random histories against each real server, one in three with keys and values
- ``streams``: a million commands of streams, as pipelines, against Redis 8.2.3
- ``model``: two hundred thousand commands that only Headwater has, against the naive model
- ``scenes``: four clients that block, watch and unblock each other
- ``odd``: every command with each argument replaced by unusual values
- ``fuzz``: random malformed requests

Each run uses new seeds and appends a line per part to campaigns/conform.jsonl: seeds, commands,
failures. A single seed can be repeated, which is not recorded:

    python -m tests.conformance.campaign --only histories --seed 1007 --commands 1
    python -m tests.conformance.campaign --only streams --seed 5017 --streams 1

With ``--cold`` all entries are on disk, in blocks of 400 bytes, and replies are written in pieces.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests import campaigns, peers
from tests.blocks import everything_cold
from tests.campaigns import Outcome
from tests.conformance.fuzzing import Fuzz
from tests.conformance.histories import History
from tests.conformance.histories_keys import KeyHistory
from tests.conformance.odd_arguments import Sweep
from tests.conformance.random_scenes import RandomScene
from tests.conformance.stream_campaign import streams
from tests.conformance.test_histories import agree
from tests.conformance.test_random_scenes import unlike
from tests.property.model_campaign import model

NAME = "conform"
FIRST_SEED = 10_000
"""The first seed of the first recorded run. Earlier runs used lower ones."""
HISTORY = 1000
SCENE = 500
"""Commands of a history and of a scene: many enough to reach unusual states, few enough to shrink."""


def histories(seed: int, commands: int) -> dict[str, Any]:
    """Run histories of `HISTORY` commands on each server."""
    found: dict[str, Any] = {"first_seed": seed, "commands": 0, "servers": {}, "failures": []}
    names = list(peers.PEERS)
    for name in names:
        with peers.running(name, unixsocket=True) as server:
            share = 0
            while share * len(names) < commands:
                try:
                    agree(seed, server, HISTORY, of=KeyHistory if seed % 3 == 0 else History)
                except pytest.fail.Exception as failure:
                    found["failures"].append({"seed": seed, "server": name, "what": str(failure)})
                share += HISTORY
                seed += 1
            found["servers"][name] = share
            found["commands"] += share
            print(f"{name}: {share} commands, {len(found['failures'])} failures", flush=True)
    found["last_seed"] = seed - 1
    return found


def scenes(seed: int, count: int) -> dict[str, Any]:
    """Run scenes of `SCENE` lines. Redis 7.0 wakes clients differently and is left out."""
    found: dict[str, Any] = {"first_seed": seed, "commands": 0, "failures": []}
    for name in ("redis-8.2", "valkey-9.1"):
        with peers.running(name, unixsocket=True) as server:
            for _ in range(count):
                what = unlike(RandomScene(seed, name).scene(SCENE), server)
                if what:
                    found["failures"].append({"seed": seed, "server": name, "what": what})
                found["commands"] += SCENE
                seed += 1
        print(f"{name}: {count} scenes, {len(found['failures'])} failures", flush=True)
    found["last_seed"] = seed - 1
    return found


def fuzz(seed: int, seconds: float) -> dict[str, Any]:
    """Run malformed requests for ``seconds``."""
    campaign = Fuzz(seed)
    campaign.rounds(seconds)
    failures = [failure._asdict() for failure in campaign.failures]
    print(f"odd requests: {campaign.requests}, {len(failures)} failures", flush=True)
    return {
        "first_seed": seed,
        "last_seed": campaign.seed,
        "requests": campaign.requests,
        "seconds": seconds,
        "failures": failures,
    }


def odd() -> dict[str, Any]:
    """Run the whole table. It is not random, so there is no seed."""
    sweep = Sweep()
    sweep.all()
    print(f"odd arguments: {sweep.requests}, {len(sweep.failures)} failures", flush=True)
    failures = [{"what": failure.what} for failure in sweep.failures]
    return {"requests": sweep.requests, "failures": failures}


def outcome_of(part: str, found: dict[str, Any], seconds: float) -> Outcome:
    """Return the record of a part."""
    drawn = "first_seed" in found
    seeds = (found["first_seed"], max(found["first_seed"], found["last_seed"])) if drawn else None
    unit = "commands" if "commands" in found else "requests"
    failures = [f"{failure.get('seed', '')} {failure['what']}" for failure in found["failures"]]
    return Outcome(part, seeds, found[unit], unit, failures, seconds)


def main() -> int:
    """Run the parts. The exit status is 1 if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help=f"some of {','.join(PARTS)}")
    parser.add_argument("--commands", type=int, default=500_000)
    parser.add_argument("--streams", type=int, default=1_000_000)
    parser.add_argument("--model", type=int, default=200_000)
    parser.add_argument("--scenes", type=int, default=200, help="number per server")
    parser.add_argument("--fuzz-seconds", type=float, default=300.0)
    parser.add_argument("--seed", type=int, help="first seed; default: the next new one")
    parser.add_argument("--cold", action="store_true", help="with all entries on disk")
    wanted = parser.parse_args()
    if wanted.cold:
        everything_cold(pytest.MonkeyPatch())
    parts = wanted.only.split(",") if wanted.only else list(PARTS)
    if not set(parts) <= PARTS.keys():
        parser.error(f"--only takes some of {','.join(PARTS)}, not {wanted.only!r}")
    failed = 0
    for part in parts:
        began = time.monotonic()
        seed = wanted.seed or _next_seed(part)
        name = f"{part}-cold" if wanted.cold else part
        outcome = outcome_of(name, PARTS[part](wanted, seed), time.monotonic() - began)
        if wanted.seed is None:
            campaigns.record(NAME, outcome)
        failed += len(outcome.failures)
        for failure in outcome.failures:
            print(failure)
    return 1 if failed else 0


def _next_seed(part: str) -> int:
    """Return a seed that neither form of a part has used."""
    used = (part, f"{part}-cold")
    return max(campaigns.next_seed(NAME, name, first=FIRST_SEED) for name in used)


PARTS: dict[str, Callable[[argparse.Namespace, int], dict[str, Any]]] = {
    "histories": lambda wanted, seed: histories(seed, wanted.commands),
    "streams": lambda wanted, seed: streams(seed, wanted.streams),
    "model": lambda wanted, seed: model(seed, wanted.model),
    "scenes": lambda wanted, seed: scenes(seed, wanted.scenes),
    "odd": lambda _wanted, _seed: odd(),
    "fuzz": lambda wanted, seed: fuzz(seed, wanted.fuzz_seconds),
}


if __name__ == "__main__":
    sys.exit(main())
