"""The kill campaign: kill and suspend worker processes at random points while they work.

points    SIGKILL; SIGSTOP for longer than claim_after, then SIGCONT; SIGSTOP, then SIGKILL
load      a steady supply of entries, each with a result by ``into=``
verdict   each entry has exactly one result, no entry is pending, none is a dead letter
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter
from contextlib import ExitStack
from typing import Any

import redis.asyncio

from tests.worker import shop
from tests.worker.apps import Store, eventually
from tests.worker.processes import WorkerProcess, one_worker

WORKERS = 3
BACKLOG = 150
"""Least number of unread entries, so that the workers have work at every point."""

SPREAD_SECONDS = 0.4
"""Longest time between two points. A point may hit a start, a handler, or the time between them."""

CLAIM_AFTER = "700ms"
STOPPED_SECONDS = (0.75, 1.5)


class Campaign:
    """Kills workers of ``store`` at ``points`` random points and counts the results of the load."""

    def __init__(self, store: Store, *, points: int, seed: int) -> None:
        self.store = store
        self.points = points
        self.chance = random.Random(seed)
        self.sent = 0
        self.done: Counter[str] = Counter()
        self._workers: list[WorkerProcess] = []
        self._stopped: set[WorkerProcess] = set()
        self._stack = ExitStack()
        self._loading = True

    async def run(self) -> dict[str, Any]:
        """Run the campaign. Returns its counts, with failures listed by order number."""
        began = time.monotonic()
        with self._stack:
            for _number in range(WORKERS):
                self._start()
            load = asyncio.create_task(self._load())
            resumptions = []
            for _point in range(self.points):
                await asyncio.sleep(self.chance.uniform(0, SPREAD_SECONDS))
                resumptions.append(asyncio.create_task(await self._strike()))
            await asyncio.gather(*resumptions)
            self._loading = False
            await load
            await eventually(self.store.settled, "all entries are settled")
            for worker in self._workers:
                worker.signal(signal.SIGTERM)
            statuses = [worker.wait() for worker in self._workers]
        return {
            "store": self.store.name,
            "points": dict(self.done),
            "entries": self.sent,
            "seconds": round(time.monotonic() - began, 1),
            "exit_statuses": statuses,
            **await self._verdict(),
        }

    def _start(self) -> None:
        worker = self._stack.enter_context(one_worker(self.store.url, SHOP_CLAIM_AFTER=CLAIM_AFTER))
        self._workers.append(worker)

    async def _strike(self) -> Any:
        """Kill or suspend one worker. Returns an awaitable that completes the strike."""
        running = [worker for worker in self._workers if worker not in self._stopped]
        victim = self.chance.choice(running)
        kind = self.chance.choices(("kill", "stop and continue", "stop and kill"), (6, 3, 1))[0]
        self.done[kind] += 1
        if kind == "kill":
            self._replace(victim)
            return asyncio.sleep(0)
        victim.signal(signal.SIGSTOP)
        self._stopped.add(victim)
        if len(running) == 1 or kind == "stop and kill":
            self._start()
        return self._after_stop(victim, kill=kind == "stop and kill")

    async def _after_stop(self, victim: WorkerProcess, *, kill: bool) -> None:
        await asyncio.sleep(self.chance.uniform(*STOPPED_SECONDS))
        self._stopped.discard(victim)
        if kill:
            victim.signal(signal.SIGKILL)
            self._workers.remove(victim)
            victim.wait()
        else:
            victim.signal(signal.SIGCONT)

    def _replace(self, victim: WorkerProcess) -> None:
        victim.signal(signal.SIGKILL)
        self._workers.remove(victim)
        victim.wait()
        self._start()

    async def _load(self) -> None:
        """Keep a backlog of numbered entries, some of them slow."""
        look = self.store.look
        while self._loading:
            if await self._waiting(look) < BACKLOG:
                async with look.pipeline(transaction=False) as pipeline:
                    for _entry in range(50):
                        do = self.chance.choice(("", "yield", "yield"))
                        fields = dict(shop.orders.codec.encode(shop.Order(self.sent, do=do)))
                        pipeline.xadd("orders", fields)  # type: ignore[arg-type]
                        self.sent += 1
                    await pipeline.execute()
            await asyncio.sleep(0.005)

    async def _waiting(self, look: redis.asyncio.Redis) -> int:
        """Number of entries that no worker has read, by the group's lag."""
        if not await look.exists("orders"):
            return 0
        groups: Any = await look.xinfo_groups("orders")
        return int(groups[0]["lag"] or 0) if groups else self.sent

    async def _verdict(self) -> dict[str, Any]:
        seen: Counter[int] = Counter()
        redelivered = 0
        start = "-"
        while True:
            entries: Any = await self.store.look.xrange("invoices", start, count=5_000)
            for _entry_id, fields in entries:
                seen[int(fields[b"order"])] += 1
                redelivered += int(fields[b"count"]) > 1
            if len(entries) < 5_000:
                break
            start = "(" + entries[-1][0].decode()
        return {
            "results": seen.total(),
            "redelivered": redelivered,
            "lost": sorted(set(range(self.sent)) - set(seen)),
            "twice": sorted(order for order, count in seen.items() if count > 1),
            "dead": len(await self.store.dead()),
        }
