"""The long campaign of conformance: `make conform`.

Random histories against each real server, one in three of keys and values; scenes of four clients who
wait, watch and unblock each other; then odd requests. What was done and what failed stands in
artifacts/conform.json: seeds, commands, failures. A seed runs again by itself:

    python -m tests.conformance.campaign --seed 1007 --commands 1000 --scenes 0 --fuzz-seconds 0
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests import peers
from tests.conformance.fuzzing import Fuzz
from tests.conformance.histories import History
from tests.conformance.histories_keys import KeyHistory
from tests.conformance.random_scenes import RandomScene
from tests.conformance.test_histories import agree
from tests.conformance.test_random_scenes import unlike

ARTIFACT = Path(__file__).parents[2] / "artifacts" / "conform.json"
FIRST_SEED = 1000
HISTORY = 1000
SCENE = 500
"""Commands of one history and of one scene: long enough for states that nobody writes down, short enough to shrink."""


def histories(seed: int, commands: int) -> dict[str, Any]:
    """Histories of `HISTORY` commands, the servers in turn."""
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
    """Scenes of `SCENE` lines; 7.0 wakes clients otherwise, so it is left out."""
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
    """Odd requests for so long."""
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


def main() -> int:
    """Run both; the exit status says whether anything failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commands", type=int, default=500_000)
    parser.add_argument("--scenes", type=int, default=200, help="of each server")
    parser.add_argument("--fuzz-seconds", type=float, default=300.0)
    parser.add_argument("--seed", type=int, default=FIRST_SEED)
    wanted = parser.parse_args()
    started = time.monotonic()
    report: dict[str, Any] = {
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "histories": histories(wanted.seed, wanted.commands),
        "scenes": scenes(wanted.seed, wanted.scenes),
        "fuzz": fuzz(wanted.seed, wanted.fuzz_seconds),
    }
    report["seconds"] = round(time.monotonic() - started)
    ARTIFACT.parent.mkdir(exist_ok=True)
    ARTIFACT.write_text(json.dumps(report, indent=2) + "\n")
    failed = [
        failure for part in ("histories", "scenes", "fuzz") for failure in report[part]["failures"]
    ]
    for failure in failed:
        print(failure["what"])
    print(f"written to {ARTIFACT.relative_to(Path.cwd())}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
