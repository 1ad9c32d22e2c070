"""Handler slots that take batches: ``size`` entries, or those that arrive within ``linger`` of the first.

Rule 1. Only one slot at a time gathers a batch, so that two slots do not split entries that could be one batch.
Rule 2. ``linger`` counts from the arrival of an entry, not from the moment when a slot is free. So it includes the
        time for which the entry waited for a slot.
Rule 3. With pool processes, an entry whose process died while it ran is a batch by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from headwater.worker.declare.declaration import Consumer
from headwater.worker.declare.owned import RUNNING, Owned
from headwater.worker.leases.freshness import Freshness
from headwater.worker.run.pool import HandBack, Pool, Slot
from headwater.worker.store.waiting import Changes


class BatchPool(Pool):
    """A `Pool` whose ``run`` gets a list of entries."""

    def __init__(
        self,
        size: int,
        run: Callable[[Any], Awaitable[None]],
        idle: Callable[[], None],
        changes: Changes,
        fresh: Freshness,
        hold: HandBack,
        *,
        consumer: Consumer,
    ) -> None:
        super().__init__(size, run, idle, changes, fresh, hold)
        assert consumer.batch is not None, "its handler gets batches"
        self._batch = consumer.batch
        self._isolated = consumer.isolated
        self._clock = hold.clock
        self._arrived = Changes()
        self._gathering = asyncio.Lock()
        self._busy = 0

    @property
    def hungry(self) -> bool:
        """True if a slot has nothing to do, and no full batch waits for a slot."""
        return self._busy < self._size and len(self._buffer) < self._batch.size

    @property
    def capacity(self) -> int:
        """Number of entries that run or could start immediately."""
        return len(self.running) + (self._size - self._busy) * self._batch.size

    @property
    def busy(self) -> bool:
        """True if every slot runs a handler."""
        return self._busy >= self._size

    def offer(self, entries: Sequence[Owned]) -> None:
        """Add entries to the next batch."""
        self._buffer.extend(entries)
        self._watch(entries)
        self._arrived.notify()

    async def _work(self) -> None:
        slot = asyncio.current_task()
        assert isinstance(slot, Slot), "start runs this in a Slot"
        while not slot.dismissed:
            self._idle()
            batch = await self._gather()
            while batch and self.fresh.stale:
                await self.fresh.restored()
                batch = [owned for owned in batch if owned.unbegun]
            if batch:
                await self._handle(batch)
                await asyncio.sleep(0)  # yield to other tasks: the handler may never wait

    async def _handle(self, batch: list[Owned]) -> None:
        self._busy += 1
        self.running.update(batch)
        for owned in batch:
            owned.enter(RUNNING)
        self._changes.notify()  # there is room for more
        try:
            await self._run(batch)
        finally:
            self._busy -= 1
            self.overfull = False
            for owned in batch:
                owned.handled()
            self.running.difference_update(batch)
            self._changes.notify()

    async def _gather(self) -> list[Owned]:
        """Wait for the next batch and return it. It is empty if all its entries were lost or handed back in the
        meantime."""
        size = self._batch.size
        over = False

        def end() -> None:
            nonlocal over
            over = True
            self._arrived.notify()

        async with self._gathering:
            await self._arrived.until(lambda: bool(self._buffer))
            age = self._clock.monotonic() - self._buffer[0].arrived
            left = self._batch.linger_ms / 1000 - age
            if len(self._buffer) < size and left > 0 and not self._alone(self._buffer[0]):
                timer = self._clock.call_later(left, end)
                try:
                    await self._arrived.until(lambda: over or len(self._buffer) >= size)
                finally:
                    timer.cancel()
            found = [self._buffer.popleft()]
            while self._buffer and len(found) < size:
                if self._isolated and (self._alone(found[0]) or self._alone(self._buffer[0])):
                    break
                found.append(self._buffer.popleft())
            return [owned for owned in found if owned.unbegun]

    def _alone(self, owned: Owned) -> bool:
        """Return whether an entry is a batch by itself, because a process that ran it has died (rule 3). If
        another process dies, this entry is known to be the cause."""
        return self._isolated and (owned.record.deaths > 0 or owned.record.crashes > 0)
