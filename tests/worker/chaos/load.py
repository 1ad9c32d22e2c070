"""What a trial publishes: numbered messages of all kinds, always some that wait."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any, Final

import redis.asyncio
import redis.exceptions

from tests.worker.chaos import flow
from tests.worker.chaos.events import STALL, Event

KINDS: Final = {"": 46, "yield": 40, "again": 6, "late": 2, "fail": 4, "dead": 2}
"""How often a message is of each kind, of 100; those that segfault are counted one by one."""

DEAD: Final = ("dead", "segfault")

CHUNK: Final = 50
BACKLOG: Final = 600
"""Entries that wait, so that every fault meets work."""

PROBE_SECONDS: Final = 0.05
STALL_SECONDS: Final = 0.3


class Load:
    """Publishes over its own connection; over restarts of the server it knows what was confirmed."""

    def __init__(self, url: str, chance: random.Random, *, messages: int) -> None:
        self.messages = messages
        self.kinds: dict[int, str] = {}
        self.confirmed: set[int] = set()
        self.stalls: list[Event] = []
        """When the server did not answer, although nobody had killed it."""
        self.segfaults = 0
        """Messages that kill their process, to be published next."""
        self.flowing = True
        """Goes on beyond ``messages`` until the faults are over."""
        self._chance = chance
        self._client = redis.asyncio.Redis.from_url(url)

    async def close(self) -> None:
        await self._client.aclose()

    async def run(self) -> None:
        """Publish until all messages are out and nobody needs more."""
        while self.flowing or len(self.kinds) < self.messages:
            try:
                waiting = await self._waiting()
                if waiting < BACKLOG:
                    await self.publish(CHUNK)
            except (redis.exceptions.RedisError, OSError):
                waiting = BACKLOG  # the server was killed: what was on its way is not confirmed
            await asyncio.sleep(0.02 if waiting >= BACKLOG else 0)

    async def publish(self, count: int) -> None:
        """Add so many messages, in one pipeline."""
        first = len(self.kinds)
        numbers = range(first, first + count)
        pipeline = self._client.pipeline(transaction=False)
        for number in numbers:
            self.kinds[number] = do = self._kind()
            order = flow.orders.codec.encode(flow.Order(number, do))
            pipeline.xadd(flow.orders.name, dict(order))
        await pipeline.execute()
        self.confirmed.update(numbers)

    async def probe(self) -> None:
        """Note when the server does not answer, or this process stands still, until cancelled."""
        while True:
            began = time.monotonic()
            try:
                await self._client.ping()
            except (redis.exceptions.RedisError, OSError):
                pass  # killed
            await asyncio.sleep(PROBE_SECONDS)
            if time.monotonic() - began > STALL_SECONDS:
                self.stalls.append(Event(STALL, None, began, time.monotonic()))

    def _kind(self) -> str:
        if self.segfaults:
            self.segfaults -= 1
            return "segfault"
        return self._chance.choices([*KINDS], [*KINDS.values()])[0]

    async def _waiting(self) -> int:
        """Entries that the group furthest behind has not read."""
        if not self.kinds:
            return 0
        groups: Any = await self._client.xinfo_groups(flow.orders.name)
        return max((group["lag"] or 0 for group in groups), default=len(self.kinds))
