"""The long campaign of the worker: `make chaos-worker`.

  simulated   workers that die, halt or stop at each await, and at random awaits, on a simulated clock
  processes   worker processes, connections and servers that die, stop or fall silent under load
  together    the same with a server that writes one image after the other and is killed as often as the workers
  upgrade     the same for a minute, with workers of an earlier commit (--from) in the same group
  deploy      every 3 s a new worker starts and the oldest stops, for 10 minutes, at 500 messages a second

It checks that nothing is lost, no result is repeated, only poison messages are dead letters, nothing is
pending, no process is idle, and each repeated run of a plain handler has a cause. Each campaign takes new
seeds and appends its results to campaigns/chaos-worker.jsonl. ``--scale 0.01`` makes a short one. A single
trial can be repeated without recording it: ``--only processes --store redis-8.2 --seed 17``.
"""

from __future__ import annotations

import argparse
import datetime as dt
import logging
import math
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests import campaigns
from tests.campaigns import Outcome
from tests.worker.chaos import deploy, simulated, upgrade
from tests.worker.chaos.scenarios import SCENARIOS
from tests.worker.chaos.trial import Plan, Trial, Verdict
from tests.worker.restarts import CHECKPOINTS

NAME: Final = "chaos-worker"
STORES: Final = ("headwater", "redis-8.2")
PARTS: Final = ("simulated", "processes", "together", "upgrade", "deploy")

CRASHES: Final = 30_000
"""Simulated crashes in a full campaign."""

TRIALS: Final = 50
"""Trials with processes in a full campaign, half of them on each store."""

PLAN: Final = Plan(
    kills=40, pauses=10, cuts=10, server_kills=4, segfaults=2, messages=20_200, holds=6
)
"""One of these trials. Together they are 2,000 kills, 500 pauses, 500 cuts, 200 kills of the server and 100
messages that segfault and 300 that hold the interpreter's lock, in over 1,000,000 messages."""

TOGETHER_TRIALS: Final = 10
TOGETHER: Final = Plan(kills=30, pauses=2, cuts=2, server_kills=30, messages=12_000)
"""A trial in which a server that writes one image after the other is killed as often as the workers are: in all, 300
times. A kill hits the server, its helper, or the time between the two."""

KEPT: Final = Path("artifacts", "chaos-worker")
"""Directory for the logs of failed trials."""

SHORTEST: Final = Plan(
    kills=2, pauses=1, cuts=1, server_kills=1, segfaults=1, messages=1_000, holds=1
)


class Count:
    """Counts of all trials of one part on one store."""

    def __init__(self, part: str, seed: int) -> None:
        self.part = part
        self.seeds = (seed, seed)
        self.done: Counter[str] = Counter()
        self.failures: list[str] = []
        self.seconds = 0.0

    def add(self, seed: int, verdict: Verdict, seconds: float) -> None:
        """Add the counts of one trial."""
        self.seeds = (self.seeds[0], seed)
        self.done += verdict.done
        self.done += Counter({f"repeats by {why}": n for why, n in verdict.repeats.items()})
        self.failures += [f"seed {seed}: {text}" for text in verdict.failures]
        self.seconds += seconds

    def outcomes(self) -> Iterator[Outcome]:
        """An outcome for each unit. The outcome of the messages has the failures."""
        for unit, number in sorted(self.done.items()):
            failures = self.failures if unit == "messages" else []
            words = unit.replace("_", " ")
            yield Outcome(
                f"{self.part}: {words}", self.seeds, number, words, failures, self.seconds
            )


def run_together(scale: float) -> list[Outcome]:
    """Kill workers and a server that writes images."""
    part = f"together on {CHECKPOINTS}"
    count = Count(part, campaigns.next_seed(NAME, f"{part}: messages"))
    for number in range(max(1, round(TOGETHER_TRIALS * scale))):
        seed = count.seeds[0] + number
        verdict, seconds = run_trial("together", CHECKPOINTS, seed, TOGETHER, "")
        count.add(seed, verdict, seconds)
    return list(count.outcomes())


def scaled(scale: float) -> tuple[int, Plan]:
    """How many trials to run, and of which plan, for this share of a full campaign."""
    trials = max(len(STORES), math.ceil(TRIALS * scale))
    share = scale * TRIALS / trials
    plan = Plan(
        *(max(least, round(full * share)) for full, least in zip(PLAN, SHORTEST, strict=True))
    )
    return trials, plan


def run_simulated(seed: int, scale: float) -> list[Outcome]:
    """Interrupt each await of each scenario in each way, then random awaits."""
    wanted = round(CRASHES * scale)
    began = time.monotonic()
    stride = max(1, round(1 / scale / 10))
    done, failures = simulated.Played(), []
    for scenario in SCENARIOS:
        for how in (None, simulated.How.HALT, simulated.How.STOP):
            more, wrong = simulated.play(simulated.each_step(scenario, stride=stride, how=how))
            done += more
            failures += wrong
    more, wrong = simulated.play(simulated.several(seed), crashes=wanted - done["crashes"])
    done += more
    failures += wrong
    seconds = time.monotonic() - began
    return [
        Outcome(
            "simulated" if unit == "crashes" else f"simulated: {unit}",
            (seed, seed),
            number,
            unit,
            failures if unit == "crashes" else [],
            seconds,
        )
        for unit, number in sorted(done.items())
    ]


def run_trial(part: str, store: str, seed: int, plan: Plan, ref: str) -> tuple[Verdict, float]:
    """Run one trial and print a summary. Returns its verdict and duration in seconds."""
    began = time.monotonic()
    trial: Trial
    if part == "upgrade":
        trial = upgrade.Upgrade(store, plan, seed=seed, tree=upgrade.tree_of(ref))
    elif part == "deploy":
        trial = deploy.Deploy(store, plan, seed=seed)
    else:
        trial = Trial(store, plan, seed=seed)
    verdict = trial.run()
    seconds = time.monotonic() - began
    counts = ", ".join(f"{n} {what}" for what, n in sorted(verdict.done.items()))
    repeats = ", ".join(f"{n} by {why}" for why, n in sorted(verdict.repeats.items())) or "none"
    kind = "supervised" if trial.supervised else "plain"
    print(f"{part} on {store}, seed {seed}, {kind}, {seconds:.0f} s: {counts}; repeats: {repeats}")
    for text in verdict.failures:
        print(f"    {text}")
    if verdict.failures:
        kept = KEPT / f"{part}-{store}-{seed}.log"
        kept.parent.mkdir(parents=True, exist_ok=True)
        events = "\n".join(map(str, sorted(trial.events, key=lambda event: event.began)))
        clock = f"monotonic 0 is {dt.datetime.now(dt.UTC) - dt.timedelta(seconds=time.monotonic())}"
        kept.write_text("\n".join([*verdict.failures, clock, events, *trial.log]))
        print(f"    log of the workers: {kept}")
    sys.stdout.flush()
    return verdict, seconds


def run_trials(part: str, scale: float, ref: str) -> list[Outcome]:
    """Run all trials of a part, on the stores in turn."""
    trials, plan = scaled(scale)
    if part == "upgrade":
        share = min(1.0, max(scale, 1 / 6))
        trials, plan = len(STORES), Plan(*(round(full * share) for full in upgrade.PLAN))
    if part == "deploy":
        trials, plan = len(STORES), deploy.PLAN._replace(deploys=round(deploy.PLAN.deploys * scale))
    counts: dict[str, Count] = {}
    for number in range(trials):
        store = STORES[number % len(STORES)]
        name = f"{part} on {store}"
        if store not in counts:
            counts[store] = Count(name, campaigns.next_seed(NAME, f"{name}: messages"))
        count = counts[store]
        seed = count.seeds[0] + number // len(STORES)
        verdict, seconds = run_trial(part, store, seed, plan, ref)
        count.add(seed, verdict, seconds)
    return [outcome for count in counts.values() for outcome in count.outcomes()]


def parser() -> argparse.ArgumentParser:
    """The command line."""
    arguments = argparse.ArgumentParser(
        prog="make chaos-worker",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    arguments.add_argument("--only", default=",".join(PARTS), help=f"some of {','.join(PARTS)}")
    arguments.add_argument(
        "--scale", type=float, default=1.0, help="share of a full campaign (1.0)"
    )
    arguments.add_argument(
        "--from", dest="ref", default="HEAD~1", help="the earlier commit (HEAD~1)"
    )
    arguments.add_argument("--seed", type=int, help="repeat the trial of this seed")
    arguments.add_argument("--store", choices=STORES, default=STORES[0], help="store for --seed")
    return arguments


def main() -> int:
    """Run the parts. Returns 1 if a check failed."""
    wanted = parser().parse_args()
    parts = wanted.only.split(",")
    if not set(parts) <= set(PARTS):
        parser().error(f"--only takes some of {','.join(PARTS)}, not {wanted.only!r}")
    logging.disable(logging.CRITICAL)  # thousands of failed deliveries
    failed = 0
    for part in parts:
        if wanted.seed is not None and part != "simulated":
            plans = {"upgrade": upgrade.PLAN, "together": TOGETHER, "deploy": deploy.PLAN}
            plan = plans.get(part) or scaled(wanted.scale)[1]
            store = CHECKPOINTS if part == "together" else wanted.store
            verdict, _ = run_trial(part, store, wanted.seed, plan, wanted.ref)
            failed += len(verdict.failures)
            continue
        if part == "simulated":
            seed = wanted.seed or campaigns.next_seed(NAME, part)
            outcomes = run_simulated(seed, wanted.scale)
        elif part == "together":
            outcomes = run_together(wanted.scale)
        else:
            outcomes = run_trials(part, wanted.scale, wanted.ref)
        for outcome in outcomes:
            if wanted.seed is None:
                campaigns.record(NAME, outcome)
            failed += len(outcome.failures)
            print(
                f"{outcome.part}: {outcome.trials:,} {outcome.unit}, {len(outcome.failures)} failures"
            )
            for text in outcome.failures[:20]:
                print(f"    {text}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
