"""A rolling deploy: every few seconds a new worker starts and the oldest stops, under a steady load.

Nothing fails, so a message runs once, and its wait is measured: from just before it is sent until a handler starts.
"""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path
from typing import Final

import redis.exceptions

from tests.worker.chaos.events import read_runs
from tests.worker.chaos.load import Load
from tests.worker.chaos.trial import WORKERS, Plan, Trial, Verdict
from tests.worker.chaos.workers import Workers

EVERY_SECONDS: Final = 3.0
RATE: Final = 500
"""Messages per second. Three groups handle each."""
PLAN: Final = Plan(deploys=200)
"""Ten minutes."""

ALLOWED_SECONDS: Final = 1.0
"""What 99 % of the messages may wait at most."""

_STEPS: Final = 20
"""Pipelines per second."""


class SteadyLoad(Load):
    """Publishes ``RATE`` messages a second whose handlers succeed."""

    def __init__(self, url: str, chance: random.Random) -> None:
        super().__init__(url, chance, messages=0)
        self.sent: dict[int, float] = {}
        """When each message was sent, by the monotonic clock."""

    async def run(self) -> None:
        due = time.monotonic()
        while self.flowing:
            try:
                await self.publish(RATE // _STEPS)
            except (redis.exceptions.RedisError, OSError):
                pass  # a killed server: these messages are not confirmed
            due += 1 / _STEPS
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def publish(self, count: int) -> None:
        first = len(self.kinds)
        self.sent.update(dict.fromkeys(range(first, first + count), time.monotonic()))
        await super().publish(count)

    def _kind(self) -> str:
        return "yield" if self._chance.random() < 0.5 else ""


class Deploy(Trial):
    """A trial in which workers are replaced and nothing else happens."""

    def __init__(self, store: str, plan: Plan, *, seed: int) -> None:
        super().__init__(store, plan, seed=seed)
        self.supervised = False
        self._workers: Workers | None = None
        self._measured_from = 0.0
        """When the first deploy began. Before it all workers start at once and work off what has waited for them."""

    def load(self, url: str) -> Load:
        return SteadyLoad(url, self.chance)

    def workers(self, url: str, directory: Path) -> Workers:
        self._workers = super().workers(url, directory)
        return self._workers

    def pause(self) -> float:
        self._measured_from = self._measured_from or time.monotonic() + EVERY_SECONDS
        return EVERY_SECONDS

    def verdict(self, directory: Path, load: Load, verdict: Verdict) -> Verdict:
        """Check what the messages waited."""
        assert isinstance(load, SteadyLoad)
        assert self._workers is not None, "the trial ran"
        runs, _stalls = read_runs(directory)
        waits: dict[str, list[float]] = {}
        for (consumer, number), found in runs.items():
            if number in load.confirmed and load.sent[number] >= self._measured_from:
                waits.setdefault(consumer, []).append(found[0].at - load.sent[number])
        for consumer, seconds in sorted(waits.items()):
            seconds.sort()
            p99 = seconds[len(seconds) * 99 // 100]
            verdict.done[f"milliseconds of {consumer}, 99 %"] = round(p99 * 1000)
            verdict.done[f"milliseconds of {consumer}, most"] = round(seconds[-1] * 1000)
            if p99 > ALLOWED_SECONDS:
                verdict.failures.append(f"1 % of the messages of {consumer} waited {p99:.3f} s")
        stops = self._workers.stops
        verdict.done["milliseconds of a stop, most"] = round(max(stops, default=0) * 1000)
        processes = len(list(directory.glob("tree-*")))
        if processes < WORKERS + self.plan.deploys:
            verdict.failures.append(f"only {processes} processes ran")
        return verdict
