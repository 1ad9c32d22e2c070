"""One trial: workers under load on a server of their own, and faults at random moments.

fault         what
────────────  ──────────────────────────────────────────────────────────────────────────────
kill          SIGKILL of a worker process
pause         SIGSTOP for longer than ``claim_after``, then SIGCONT
cut           connections closed, or silent for a while, or silent for ever
server kill   SIGKILL of the server, which syncs every write, and its start with the same data
segfault      a message that kills each process that handles it
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.worker.apps import eventually
from tests.worker.chaos.crew import Crew
from tests.worker.chaos.events import Event, read_runs, repeated
from tests.worker.chaos.load import Load
from tests.worker.chaos.verdict import judge, settled
from tests.worker.restarts import Restarting, restarting

WORKERS: Final = 4

SPREAD_SECONDS: Final = 1.0
"""A fault begins so long after the one before, at most."""

LONGER_SECONDS: Final = (1.1, 2.0)
"""Longer than ``claim_after``."""

SETTLE_SECONDS: Final = 90.0
"""After the last fault all must be settled, and every process must work, within this time."""

DISTURBANCES: Final = ("cut", "silent", "silent for ever")


class Plan(NamedTuple):
    """How many of each fault, and messages."""

    kills: int = 0
    pauses: int = 0
    cuts: int = 0
    server_kills: int = 0
    segfaults: int = 0
    messages: int = 0

    def faults(self, chance: random.Random) -> list[str]:
        """All of them, in any order."""
        names = ("kills", "pauses", "cuts", "server_kills", "segfaults")
        found = [name for name in names for _ in range(getattr(self, name))]
        chance.shuffle(found)
        return found


class Verdict(NamedTuple):
    """What became of a trial."""

    done: Counter[str]
    """Faults that were carried out, and messages."""
    repeats: Counter[str]
    """Repeated runs of handlers without retries, by what explains them."""
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
        """What the worker processes said."""

    def run(self) -> Verdict:
        """The verdict. Raises `tests.peers.PeerMissing`."""
        with (
            restarting(self.store) as server,
            tempfile.TemporaryDirectory(prefix="hw-chaos-") as directory,
        ):
            return asyncio.run(self._run(server, Path(directory)))

    def crew(self, url: str, directory: Path) -> Crew:
        """The workers of this trial."""
        return Crew(url, directory, size=WORKERS, supervised=self.supervised)

    async def _run(self, server: Restarting, directory: Path) -> Verdict:
        load = Load(server.url, self.chance, messages=self.plan.messages)
        async with self.crew(server.url, directory) as crew:
            publishing, probing = asyncio.create_task(load.run()), asyncio.create_task(load.probe())
            await self._until(lambda: bool(self._runs_since(directory, 0.0)), "a worker handles")
            await self._faults(server, crew, load)
            load.flowing = False
            await publishing
            await self._until(lambda: self._settled(server), "all is settled")
            await self._all_work(directory, crew, load)
            await self._until(lambda: self._settled(server), "all is settled")
            self.failures += [*crew.deaths, *await crew.stop()]
            probing.cancel()
            self.events += crew.events
            if crew.segfaults and not self.plan.segfaults:
                self.failures.append(f"{crew.segfaults} processes died, and no message killed them")
        self.log = crew.log
        await load.close()
        with server.look() as client:
            client.connection_pool.connection_kwargs["decode_responses"] = False
            self.failures += judge(client, load)
        self.done["messages"] = len(load.confirmed)
        return self.verdict(directory, self._verdict(directory, load))

    def verdict(self, directory: Path, verdict: Verdict) -> Verdict:
        """The verdict with what else is to be judged."""
        return verdict

    def _verdict(self, directory: Path, load: Load) -> Verdict:
        runs, stalls = read_runs(directory)
        plain = {
            (consumer, number): found
            for (consumer, number), found in runs.items()
            if consumer == "audit" or load.kinds[number] in ("", "yield")
        }
        reasons, unexplained = repeated(plain, [*self.events, *stalls, *load.stalls])
        never = [number for number in load.confirmed if ("audit", number) not in runs]
        if never:
            self.failures.append(f"{len(never)} messages never ran: {sorted(never)[:10]}")
        self.failures += unexplained
        return Verdict(self.done, reasons, self.failures)

    # --- faults -----------------------------------------------------------------------------------

    async def _faults(self, server: Restarting, crew: Crew, load: Load) -> None:
        pending: list[asyncio.Task[None]] = []
        for fault in self.plan.faults(self.chance):
            await asyncio.sleep(self.chance.uniform(0, SPREAD_SECONDS))
            self.done[fault] += 1
            if fault == "segfaults":
                load.segfaults += 1
            elif fault == "server_kills":
                await self._kill_server(server)
            else:
                pending.append(asyncio.create_task(await self._strike(fault, crew)))
        await asyncio.gather(*pending)

    async def _strike(self, fault: str, crew: Crew) -> Any:
        """Hit one worker; what is to be done with it."""
        await eventually(lambda: len(crew.pids()) > 1, "two processes work")
        pid = self.chance.choice(crew.pids())
        seconds = self.chance.uniform(*LONGER_SECONDS)
        if fault == "kills":
            return crew.kill(pid)
        if fault == "pauses":
            return crew.pause(pid, seconds)
        return crew.disturb(pid, self.chance.choice(DISTURBANCES), seconds)

    async def _kill_server(self, server: Restarting) -> None:
        began = time.monotonic()
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
        self.events.append(Event("server kill", None, began, time.monotonic()))

    # --- waiting ----------------------------------------------------------------------------------

    def _settled(self, server: Restarting) -> bool:
        with server.look() as client:
            return settled(client)

    def _runs_since(self, directory: Path, moment: float) -> set[int]:
        """The processes that handled something since."""
        runs, _stalls = read_runs(directory)
        return {run.pid for found in runs.values() for run in found if run.at >= moment}

    async def _all_work(self, directory: Path, crew: Crew, load: Load) -> None:
        """Publish until every process that lives has handled something: none is idle."""
        began = time.monotonic()

        async def idle() -> bool:
            await load.publish(200)
            await asyncio.sleep(0.2)
            return not set(crew.pids()) - self._runs_since(directory, began)

        await self._until(idle, "every process handles messages again")

    async def _until(self, condition: Any, what: str) -> None:
        deadline = time.monotonic() + SETTLE_SECONDS
        while True:
            found = condition()
            if asyncio.iscoroutine(found):
                found = await found
            if found:
                return
            if time.monotonic() > deadline:
                self.failures.append(f"it never came to be that {what}")
                return
            await asyncio.sleep(0.05)
