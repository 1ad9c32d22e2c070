"""Judges failovers of Headwater, Redis and Valkey behind Sentinels: `make failover`.

    python -m tests.failover.campaign --server headwater --synchronous 1 --failovers 300
    python -m tests.failover.campaign --server redis-8.2 --wait 1 --failovers 40
    python -m tests.failover.campaign --server headwater --seed 17 --failovers 10      repeats a trial

trial     a primary, two replicas, three Sentinels and clients in network namespaces, and ten faults
faults    kills, pauses, partitions, failovers by hand, restarts, alone and in pairs (`faults`)
clients   producers, readers of a group and a worker with `into=`, which log what they were answered (`clients`)
verdict   answered writes lost, entries delivered after XACK was answered, results twice, members that
          differ, and anything that is stuck after 30 s (`judge`)

Losses of Redis and Valkey, and of Headwater without ``--synchronous``, are counted. They fail the run if a promise
of Headwater is broken (`faults.Fault.down`). Each run takes new seeds and appends to campaigns/failover.jsonl; a
run with ``--seed`` is not recorded.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
import time
import traceback
from collections import Counter
from typing import Final

from tests import campaigns
from tests.campaigns import Outcome
from tests.failover import faults
from tests.failover.members import OURS, Setup
from tests.failover.trial import Trial, Verdict

NAME: Final = "failover"
SERVERS: Final = (OURS, "redis-8.2", "valkey-9.1", "redis-7.0")

FAULTS: Final = 10
"""Faults in a trial; the last trial has what is left."""


class Count:
    """Counts of all trials of a run."""

    def __init__(self, setup: Setup, seed: int) -> None:
        self.setup = setup
        self.seeds = (seed, seed)
        self.done: Counter[str] = Counter()
        self.lost: Counter[str] = Counter()
        self.seconds: list[float] = []
        self.silences: list[float] = []
        self.failures: list[str] = []
        self.took = 0.0

    def add(self, seed: int, verdict: Verdict) -> None:
        """Add what one trial has found."""
        self.seeds = (self.seeds[0], seed)
        self.done["failovers"] += len(verdict.windows)
        self.done += verdict.counts
        self.lost += verdict.lost
        self.seconds += verdict.seconds
        self.silences += verdict.silences
        self.failures += [f"seed {seed}: {text}" for text in verdict.failures]

    def outcomes(self) -> list[Outcome]:
        """An outcome for each count. That of the failovers has the failures."""
        return [
            Outcome(
                self.setup.name if unit == "failovers" else f"{self.setup.name}: {unit}",
                self.seeds,
                number,
                unit,
                self.failures if unit == "failovers" else [],
                self.took,
            )
            for unit, number in sorted(self.done.items())
        ]

    def summary(self) -> str:
        """The verdict, to be printed."""
        counts = ", ".join(f"{number:,} {unit}" for unit, number in sorted(self.done.items()))
        lines = [f"{self.setup.name}: {counts}; {len(self.failures)} failures"]
        lines += [f"    lost {number:,} at: {fault}" for fault, number in self.lost.most_common()]
        for what, times in (
            ("until the first answered write", self.seconds),
            ("longest silence", self.silences),
        ):
            if times:
                median, most = statistics.median(times), max(times)
                lines.append(f"    {what}: {median:.2f} s (median), {most:.2f} s at most")
        return "\n".join([*lines, *(f"    FAILED {text}" for text in self.failures)])


def run(options: argparse.Namespace, count: Count) -> None:
    """Run trials until there were enough faults. A trial that gets stuck ends early, and counts as run."""
    began = time.monotonic()
    left, seed = options.failovers, count.seeds[0]
    possible = faults.chosen(only=options.only, without=options.without)
    while left > 0:
        number = min(left, options.faults)
        trial = Trial(
            count.setup, seed=seed, count=number, loopback=options.loopback, faults=possible
        )
        try:
            verdict = trial.run()
        except Exception:
            verdict = trial.verdict
            verdict.failures.append(f"the harness failed: {traceback.format_exc()}")
        count.add(seed, verdict)
        counts = ", ".join(f"{n:,} {unit}" for unit, n in sorted(verdict.counts.items()))
        print(f"seed {seed}: {counts}", flush=True)
        for text in verdict.failures:
            print(f"    {text}", flush=True)
        left -= number
        seed += 1
        count.took = time.monotonic() - began


def parser() -> argparse.ArgumentParser:
    """The command line."""
    arguments = argparse.ArgumentParser(
        prog="make failover",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = arguments.add_argument
    add("--server", choices=SERVERS, default=OURS)
    add(
        "--sentinel",
        choices=SERVERS[1:],
        default="",
        help="whose Sentinels watch (the server's own)",
    )
    add("--failovers", type=int, default=300, help="number of faults (300)")
    add("--faults", type=int, default=FAULTS, help=f"faults in a trial ({FAULTS})")
    add("--seed", type=int, help="first seed; the run is not recorded")
    add("--synchronous", type=int, default=0, help="synchronous-replicas of Headwater (0)")
    add("--min-replicas", type=int, default=0, help="min-replicas-to-write (0)")
    add(
        "--wait", type=int, default=0, help="clients wait for this number of replicas with WAIT (0)"
    )
    add("--fsync", choices=("always", "everysec"), default="everysec")
    add("--only", default="", help="only faults whose name contains this text")
    add("--without", default="", help="only faults whose name does not contain this text")
    add("--loopback", action="store_true", help="run on 127.0.0.1, without partitions")
    return arguments


def _ended(number: int, _frame: object) -> None:
    """Let SIGTERM end the run as Ctrl-C does, so that it removes its namespaces and ends its processes."""
    raise KeyboardInterrupt(f"signal {number}")


def main() -> int:
    """Run the trials. Returns 1 if a promise was broken."""
    options = parser().parse_args()
    if options.synchronous and options.server != OURS:
        parser().error("--synchronous is a setting of headwater; use --min-replicas or --wait")
    signal.signal(signal.SIGTERM, _ended)
    setup = Setup(
        options.server,
        fsync=options.fsync,
        synchronous=options.synchronous,
        min_replicas=options.min_replicas,
        wait=options.wait,
        sentinel=options.sentinel,
    )
    seed = campaigns.next_seed(NAME, setup.name) if options.seed is None else options.seed
    count = Count(setup, seed)
    run(options, count)
    if options.seed is None:
        for outcome in count.outcomes():
            campaigns.record(NAME, outcome)
    print(count.summary(), flush=True)
    return 1 if count.failures else 0


if __name__ == "__main__":
    sys.exit(main())
