"""The messages of a trial: numbered, of all kinds, with a constant backlog."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any, Final

import redis.asyncio
import redis.exceptions

from tests.worker.chaos import flow
from tests.worker.chaos.events import STALL, Event

KINDS: Final = {
    "": 45.75, "yield": 40, "again": 6, "late": 2, "fail": 4, "dead": 2, "exit": 0.25
}  # fmt: skip
"""Percentage of each kind of message. Those that are faults of the trial come in addition. An "exit" ends a pool
process: it is rare, because the start of another one takes half a second of a processor."""

DEAD: Final = ("dead", "segfault")

CHUNK: Final = 50
BACKLOG: Final = 600
"""Number of unread entries, so that every fault affects work."""

PROBE_SECONDS: Final = 0.05
STALL_SECONDS: Final = 0.3


class Load:
    """Publishes over its own connection, and records which messages the server confirmed."""

    def __init__(self, url: str, chance: random.Random, *, messages: int) -> None:
        self.messages = messages
        self.kinds: dict[int, str] = {}
        self.confirmed: set[int] = set()
        self.stalls: list[Event] = []
        """Times when the server did not reply although it was not killed."""
        self.next: list[str] = []
        """Kinds of messages to be published next."""
        self.flowing = True
        """While true, publishing continues beyond ``messages``. The trial clears it after the last fault."""
        self._chance = chance
        self._client = redis.asyncio.Redis.from_url(url)

    async def close(self) -> None:
        await self._client.aclose()

    async def run(self) -> None:
        """Publish until all messages are sent and ``flowing`` is false."""
        while self.flowing or len(self.kinds) < self.messages:
            try:
                waiting = await self._waiting()
                if waiting < BACKLOG:
                    await self.publish(CHUNK)
            except (redis.exceptions.RedisError, OSError):
                waiting = BACKLOG  # the server was killed: pending messages are not confirmed
            await asyncio.sleep(0.02 if waiting >= BACKLOG else 0)

    async def publish(self, count: int) -> None:
        """Add ``count`` messages in one pipeline."""
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
        """Record stalls of the server, or of this process, until cancelled."""
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
        if self.next:
            return self.next.pop()
        return self._chance.choices([*KINDS], [*KINDS.values()])[0]

    async def _waiting(self) -> int:
        """Number of entries that the slowest group has not read."""
        if not self.kinds:
            return 0
        groups: Any = await self._client.xinfo_groups(flow.orders.name)
        return max((group["lag"] or 0 for group in groups), default=len(self.kinds))
