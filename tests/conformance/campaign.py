"""The long campaign of conformance: `make conform`.

Random histories against each real server, one in three of keys and values, then odd requests. What
was done and what failed stands in artifacts/conform.json: seeds, commands, failures. A seed runs again
by itself:

    python -m tests.conformance.campaign --seed 1007 --commands 1000 --fuzz-seconds 0
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
from tests.conformance.test_histories import agree

ARTIFACT = Path(__file__).parents[2] / "artifacts" / "conform.json"
FIRST_SEED = 1000
HISTORY = 1000
"""Commands of one history: long enough for states that nobody writes down, short enough to shrink."""


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
    parser.add_argument("--fuzz-seconds", type=float, default=300.0)
    parser.add_argument("--seed", type=int, default=FIRST_SEED)
    wanted = parser.parse_args()
    started = time.monotonic()
    report: dict[str, Any] = {
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "histories": histories(wanted.seed, wanted.commands),
        "fuzz": fuzz(wanted.seed, wanted.fuzz_seconds),
    }
    report["seconds"] = round(time.monotonic() - started)
    ARTIFACT.parent.mkdir(exist_ok=True)
    ARTIFACT.write_text(json.dumps(report, indent=2) + "\n")
    failed = report["histories"]["failures"] + report["fuzz"]["failures"]
    for failure in failed:
        print(failure["what"])
    print(f"written to {ARTIFACT.relative_to(Path.cwd())}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
