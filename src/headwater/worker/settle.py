"""Gathers settlements and sends them together: 256, or a handler's whole batch, or what 5 ms brought.

Rule 1. Order is kept: what was added first is settled first, and each owned entry once.
Rule 2. A batch goes out at once when it is full or when a handler has nothing else to do, so that
        waiting for company never slows a worker that is idle.
Rule 3. A batch is sent until its reply has come; sending it twice does no harm (groups/settling).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from headwater.groups.settling import Outcome, Settlement
from headwater.worker.clocks import Timer, Timers
from headwater.worker.owned import Owned
from headwater.worker.signals import Changes

BATCH = 256
LINGER_SECONDS = 0.005
BATCH_BYTES = 4 * 1024 * 1024
"""A batch with results of so many bytes is full, however few they are."""


class Queued(NamedTuple):
    """An owned entry, those that end in one step with it, and how they are to end."""

    owned: Owned
    settlement: Settlement
    others: Sequence[Owned] = ()

    @property
    def entries(self) -> list[Owned]:
        """All entries that it ends."""
        return [self.owned, *self.others]


Send = Callable[[list[Settlement]], Awaitable[list[Outcome]]]
Done = Callable[[Queued, Outcome], None]


class Settler:
    """One consumer's settlements, in batches of at most ``most``. `run` is a task of its own."""

    def __init__(self, clock: Timers, send: Send, done: Done, *, most: int = BATCH) -> None:
        self._most = most
        self._clock = clock
        self._send = send
        self._done = done
        self._queue: deque[Queued] = deque()
        self._ready = asyncio.Event()
        self._timer: Timer | None = None
        self._in_flight = 0
        self._busy_since: float | None = None
        self._empty = Changes()

    def __len__(self) -> int:
        return len(self._queue) + self._in_flight

    def age(self, now: float) -> float:
        """Seconds since the store last settled a batch, if it has one to settle; else 0."""
        return 0.0 if self._busy_since is None else max(0.0, now - self._busy_since)

    def add(self, queued: Queued) -> None:
        """Settle it with the next batch."""
        self._queue.append(queued)
        if self._busy_since is None:
            self._busy_since = self._clock.monotonic()
        if len(self._queue) >= self._most:
            self._ready.set()
        elif self._timer is None:
            self._timer = self._clock.call_later(LINGER_SECONDS, self._ready.set)

    def hurry(self) -> None:
        """Send what waits now."""
        if self._queue:
            self._ready.set()

    async def drained(self) -> None:
        """Send what waits and return when all of it is settled."""
        self.hurry()
        await self._empty.until(lambda: not len(self))

    async def run(self) -> None:
        """Send batches until cancelled."""
        while True:
            await self._ready.wait()
            self._ready.clear()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            batch = self._take()
            if batch:
                await self._flush(batch)
            if len(self._queue) >= self._most:
                self._ready.set()
            elif self._queue and self._timer is None:
                self._timer = self._clock.call_later(LINGER_SECONDS, self._ready.set)

    def _take(self) -> list[Queued]:
        batch: list[Queued] = []
        size = 0
        while self._queue and len(batch) < self._most and size < BATCH_BYTES:
            queued = self._queue.popleft()
            size += sum(
                len(value) for one in queued.settlement.additions for _name, value in one.fields
            )
            batch.append(queued)
        return batch

    async def _flush(self, batch: list[Queued]) -> None:
        self._in_flight = len(batch)
        try:
            outcomes = await self._send([queued.settlement for queued in batch])
        finally:
            self._in_flight = 0
        self._busy_since = self._clock.monotonic() if self._queue else None
        for queued, outcome in zip(batch, outcomes, strict=True):
            self._done(queued, outcome)
        self._empty.notify()
