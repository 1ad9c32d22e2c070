"""One trial: workers under load on a new server, with faults at random moments.

fault         what happens
────────────  ──────────────────────────────────────────────────────────────────────────────
kill          SIGKILL of a worker process
pause         SIGSTOP for longer than ``claim_after``, then SIGCONT
cut           connections closed, or silent for a while, or silent for good
server kill   SIGKILL of the server, which syncs every write, and its restart with the same data
segfault      a message that kills each process that handles it
hold          a message whose handler keeps the interpreter's lock for longer than ``claim_after``. At most one
              kill hits the process that runs it: two while it runs alone would make it a poison message, rightly
deploy        a new worker process, then SIGTERM of the oldest one
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from bisect import bisect
from collections import Counter
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.worker.apps import eventually
from tests.worker.chaos import flow
from tests.worker.chaos.events import HOLD, Event, holds, latest, ran_since, read_runs, repeated
from tests.worker.chaos.load import Load
from tests.worker.chaos.verdict import judge, settled
from tests.worker.chaos.workers import Workers
from tests.worker.restarts import Restarting, restarting

WORKERS: Final = 4

SPREAD_SECONDS: Final = 1.0
"""Longest time between the starts of two faults."""

LONGER_SECONDS: Final = (1.1, 2.0)
"""Longer than ``claim_after``."""

SETTLE_SECONDS: Final = 90.0
"""Time after the last fault in which all messages must be settled and every process must handle some."""

HOLD_SECONDS: Final = flow.HOLD_MICROSECONDS / 1e6 + 0.5
"""Longest time between the start of a handler that holds the interpreter's lock, and its settlement."""

DISTURBANCES: Final = ("cut", "silent", "silent for ever", "slow")


class Plan(NamedTuple):
    """The number of each fault, and of messages."""

    kills: int = 0
    pauses: int = 0
    cuts: int = 0
    server_kills: int = 0
    segfaults: int = 0
    messages: int = 0
    holds: int = 0
    deploys: int = 0

    def faults(self, chance: random.Random) -> list[str]:
        """All faults, in random order."""
        names = ("kills", "pauses", "cuts", "server_kills", "segfaults", "holds", "deploys")
        found = [name for name in names for _ in range(getattr(self, name))]
        chance.shuffle(found)
        return found


class Verdict(NamedTuple):
    """The result of a trial."""

    done: Counter[str]
    """Numbers of faults and messages."""
    repeats: Counter[str]
    """Numbers of repeated runs of handlers without retries, by cause."""
    failures: list[str]


class Trial:
    """Runs ``plan`` on the store of this name."""

    def __init__(self, store: str, plan: Plan, *, seed: int) -> None:
        self.store = store
        self.plan = plan
        self.chance = random.Random(seed)
        self.supervised = self.chance.random() < 0.3
        self.done: Counter[str] = Counter()
        self.events: list[Event] = []
        self.failures: list[str] = []
        self.log: list[str] = []
        """Logs of the worker processes."""
        self._struck: set[int] = set()
        """Messages that held the interpreter's lock of a process that was killed."""

    def run(self) -> Verdict:
        """Run the trial. Raises `tests.peers.PeerMissing`."""
        with (
            restarting(self.store) as server,
            tempfile.TemporaryDirectory(prefix="hw-chaos-") as directory,
        ):
            return asyncio.run(self._run(server, Path(directory)))

    def workers(self, url: str, directory: Path) -> Workers:
        """The workers of this trial."""
        return Workers(url, directory, size=WORKERS, supervised=self.supervised)

    def load(self, url: str) -> Load:
        """The messages of this trial."""
        return Load(url, self.chance, messages=self.plan.messages)

    async def _run(self, server: Restarting, directory: Path) -> Verdict:
        load = self.load(server.url)
        async with self.workers(server.url, directory) as workers:
            publishing, probing = asyncio.create_task(load.run()), asyncio.create_task(load.probe())
            await self._until(lambda: bool(ran_since(directory, 0.0)), "a worker handles messages")
            await self._faults(server, workers, load)
            load.flowing = False
            await publishing
            await self._until(lambda: self._settled(server), "all messages are settled")
            await self._all_work(directory, workers, load)
            await self._until(lambda: self._settled(server), "all messages are settled")
            self.failures += [*workers.deaths, *await workers.stop()]
            probing.cancel()
            self.events += workers.events
            if workers.segfaults and not self.plan.segfaults:
                self.failures.append(
                    f"{workers.segfaults} processes died although no message kills them"
                )
        self.log = workers.log
        await load.close()
        with server.look() as client:
            client.connection_pool.connection_kwargs["decode_responses"] = False
            self.failures += judge(client, load)
        self.failures += [f"a false alarm of the server: {line}" for line in server.alarms()]
        self.done["messages"] = len(load.confirmed)
        return self.verdict(directory, load, self._verdict(directory, load))

    def verdict(self, directory: Path, load: Load, verdict: Verdict) -> Verdict:
        """Add further checks to the verdict. A subclass may override it."""
        return verdict

    def _verdict(self, directory: Path, load: Load) -> Verdict:
        runs, stalls = read_runs(directory)
        plain = {
            (consumer, number): found
            for (consumer, number), found in runs.items()
            if consumer in ("audit", "meter")
            or (consumer != "tick" and load.kinds[number] in ("", "yield", "hold"))
        }
        held = [
            event
            for (consumer, number), found in runs.items()
            if consumer == "bill" and load.kinds[number] == HOLD
            for event in holds(found, HOLD_SECONDS)
        ]
        reasons, unexplained = repeated(plain, [*self.events, *stalls, *load.stalls, *held])
        for consumer in ("audit", "press", "meter"):
            never = [number for number in load.confirmed if (consumer, number) not in runs]
            if never:
                self.failures.append(
                    f"{len(never)} messages never ran in {consumer}: {sorted(never)[:10]}"
                )
        self._check_limit(
            sorted(run.at for (name, _n), found in runs.items() if name == "meter" for run in found)
        )
        self.failures += unexplained
        return Verdict(self.done, reasons, self.failures)

    def _check_limit(self, starts: list[float]) -> None:
        """Check that no second has more starts than the limit of ``meter`` allows."""
        # A token is taken up to a quarter of a second ahead, and a stalled process starts late what has its tokens.
        allowed = flow.BURST + 1.3 * flow.RATE + 8 * WORKERS
        most = max(bisect(starts, at + 1.0) - n for n, at in enumerate(starts))
        if most > allowed:
            self.failures.append(f"meter started {most} messages within a second")

    # --- faults -----------------------------------------------------------------------------------

    def pause(self) -> float:
        """Seconds until the next fault."""
        return self.chance.uniform(0, SPREAD_SECONDS)

    async def _faults(self, server: Restarting, workers: Workers, load: Load) -> None:
        pending: list[asyncio.Task[None]] = []
        for fault in self.plan.faults(self.chance):
            await asyncio.sleep(self.pause())
            self.done[fault] += 1
            if fault in ("segfaults", "holds"):
                load.next.append(fault.removesuffix("s"))
            elif fault == "deploys":
                await workers.replace()
            elif fault == "server_kills":
                await self._kill_server(server)
            else:
                pending.append(asyncio.create_task(await self._strike(fault, workers, load)))
        await asyncio.gather(*pending)

    async def _strike(self, fault: str, workers: Workers, load: Load) -> Any:
        """Choose a worker. Returns an awaitable that carries out the fault on it."""
        await eventually(lambda: len(workers.pids()) > 1, "two processes run")
        pid = self.chance.choice(workers.pids())
        seconds = self.chance.uniform(*LONGER_SECONDS)
        if fault == "kills":
            while (held := self._held_by(pid, workers, load)) in self._struck:
                await asyncio.sleep(0.05)
                await eventually(lambda: len(workers.pids()) > 1, "two processes run")
                pid = self.chance.choice(workers.pids())
            if held is not None:
                self._struck.add(held)
            return workers.kill(pid)
        if fault == "pauses":
            return workers.pause(pid, seconds)
        return workers.disturb(pid, self.chance.choice(DISTURBANCES), seconds)

    def _held_by(self, pid: int, workers: Workers, load: Load) -> int | None:
        """The message that holds the interpreter's lock of this process, if one does."""
        file = workers.directory / f"runs-{pid}"
        since = time.monotonic() - HOLD_SECONDS
        for consumer, number, at in reversed(latest(file) if file.exists() else []):
            if consumer == "bill" and load.kinds[number] == HOLD and at >= since:
                return number
        return None

    async def _kill_server(self, server: Restarting) -> None:
        began = time.monotonic()
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
        self.events.append(Event("server kill", None, began, time.monotonic()))

    # --- waiting ----------------------------------------------------------------------------------

    def _settled(self, server: Restarting) -> bool:
        with server.look() as client:
            return settled(client)

    async def _all_work(self, directory: Path, workers: Workers, load: Load) -> None:
        """Publish until every live process has handled a message."""
        began = time.monotonic()

        async def all_handled() -> bool:
            await load.publish(200)
            await asyncio.sleep(0.2)
            return not set(workers.pids()) - ran_since(directory, began)

        await self._until(all_handled, "every process handles messages again")

    async def _until(self, condition: Any, what: str) -> None:
        deadline = time.monotonic() + SETTLE_SECONDS
        while True:
            found = condition()
            if asyncio.iscoroutine(found):
                found = await found
            if found:
                return
            if time.monotonic() > deadline:
                self.failures.append(f"condition not met in time: {what}")
                return
            await asyncio.sleep(0.05)
