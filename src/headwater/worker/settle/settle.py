"""Collects settlements and sends them in batches: those added within 5 ms, at most 256 or a handler's whole batch.

Rule 1. A settlement that was added earlier is sent with an earlier batch or the same one, except for large ones (rule
        4). Each entry is settled once.
Rule 2. A batch is sent immediately if it is full, or if a handler slot has nothing to do, so that collecting does
        not delay an idle worker.
Rule 3. A batch is repeated until its reply arrives. Repeating is harmless (`settling.settling`).
Rule 4. A large item is not part of a batch. It is sent alone, so that it does not delay others on a slow link.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from headwater.client.silence import Silence, TransferProgress
from headwater.groups.settling.settling import How, Settlement, SettleOutcome, size_of
from headwater.worker.declare.outcome import Ending
from headwater.worker.declare.owned import Owned
from headwater.worker.store.clocks import Timer, Timers
from headwater.worker.store.shared_connection import IS_LARGE
from headwater.worker.store.waiting import Changes

log = logging.getLogger("headwater.worker")

BATCH = 256
LINGER_SECONDS = 0.005
ALONE_BYTES = 256 * 1024
"""Bytes of results at which a batch is full, or an item is sent alone: a quarter of a second at 1 MB/s."""
NAMED = 5
"""Maximum number of large items that a log line names."""
BATCH_RESULTS = 4_096
"""Number of results with which a batch is full. Adding them in one step occupies the server for a few
milliseconds."""


class Queued(NamedTuple):
    """Owned entries that end in the same way, and their settlement."""

    entries: Sequence[Owned]
    settlement: Settlement
    ending: Ending
    shared: bool = False
    """True if it has results of entries that need not end together. If it fails, they are settled one by one."""


Send = Callable[[list[Settlement]], Awaitable[list[SettleOutcome]]]
Done = Callable[[Queued, SettleOutcome], None]


class Settler:
    """Sends one consumer's settlements in batches of at most ``most``. `run` is its task.

    ``how`` is how an entry is settled when its handler has returned. In a batch, such entries without results
    share one settlement, and so do those with results for the same stream.
    """

    def __init__(
        self, clock: Timers, send: Send, done: Done, *, how: How = How.ACK, most: int = BATCH
    ) -> None:
        self._most = most
        self._how = how
        self._clock = clock
        self._send = send
        self._done = done
        self._queue: deque[Owned | Queued] = deque()
        self._ready = asyncio.Event()
        self._timer: Timer | None = None
        self._in_flight = 0
        self._alone: dict[int, tuple[Queued, TransferProgress]] = {}
        self._busy_since: float | None = None
        self._empty = Changes()

    def __len__(self) -> int:
        return len(self._queue) + self._in_flight

    def age(self, now: float) -> float:
        """Return the seconds since the store last settled a batch or bytes of a large item moved; 0 if there is
        nothing to settle."""
        if self._busy_since is None:
            return 0.0
        moved = [one.of.moved_at for _queued, one in self._alone.values() if one.of is not None]
        return max(0.0, now - max(self._busy_since, *moved, 0.0))

    def under_way(self) -> str:
        """Return text for the log about the large items that are being sent; empty if there are none."""
        items = [*self._alone.values()]
        named = [_sent(queued, progress.of) for queued, progress in items[:NAMED]]
        rest = [f"{len(items) - NAMED} more"] if len(items) > NAMED else []
        return ", ".join([*named, *rest])

    def add(self, one: Owned | Queued) -> None:
        """Settle ``one`` with the next batch. An `Owned` is an entry whose handler returned."""
        queue = self._queue
        queue.append(one)
        if len(queue) >= self._most:
            self._ready.set()
        elif self._timer is None:
            self._timer = self._clock.call_later(LINGER_SECONDS, self._ready.set)
        if self._busy_since is None:
            self._busy_since = self._clock.monotonic()

    def hurry(self) -> None:
        """Send waiting settlements immediately."""
        if self._queue:
            self._ready.set()

    async def drained(self) -> None:
        """Send waiting settlements, and return when all are settled."""
        self.hurry()
        await self._empty.until(lambda: not len(self))

    async def run(self) -> None:
        """Send batches until cancelled."""
        IS_LARGE.set(False)  # a batch is never large (`ALONE_BYTES`)
        try:
            async with asyncio.TaskGroup() as tasks:
                await self._send_batches(tasks)
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _send_batches(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            await self._ready.wait()
            self._ready.clear()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            batch, large = self._take()
            for one in large:
                self._in_flight += len(one.entries)
                tasks.create_task(self._flush_alone(one))
            if batch:
                self._in_flight += sum(len(queued.entries) for queued in batch)
                await self._flush(batch)
            if len(self._queue) >= self._most:
                self._ready.set()
            elif self._queue and self._timer is None:
                self._timer = self._clock.call_later(LINGER_SECONDS, self._ready.set)

    def part(self, queued: Queued) -> None:
        """Settle the entries of a shared settlement again, each by itself."""
        for owned in queued.entries:
            settlement = Settlement(owned.id, self._how, additions=owned.additions, any_owner=True)
            self.add(Queued([owned], settlement, queued.ending))
        self.hurry()

    def _take(self) -> tuple[list[Queued], list[Queued]]:
        """Return the next batch, and the large items that were added before its end."""
        batch: list[Queued] = []
        large: list[Queued] = []
        plain: list[Owned] = []
        results: defaultdict[str, list[Owned]] = defaultdict(list)
        size = results_taken = 0
        for _ in range(min(len(self._queue), self._most)):
            one = self._queue.popleft()
            additions = one.settlement.additions if isinstance(one, Queued) else one.additions
            bytes_added = size_of(additions)
            if bytes_added >= ALONE_BYTES:
                large.append(one if isinstance(one, Queued) else self._shared([one]))
                continue
            if isinstance(one, Queued):
                batch.append(one)
            elif not additions:
                plain.append(one)
                continue
            elif len(additions) == 1 or len({addition.stream for addition in additions}) == 1:
                results[additions[0].stream].append(one)
            else:
                batch.append(self._shared([one]))
            size += bytes_added
            results_taken += len(additions)
            if size >= ALONE_BYTES or results_taken >= BATCH_RESULTS:
                break
        # Results for one stream share a step: the first addition shows whether the stream accepts results.
        shared = [plain, *results.values()] if plain else results.values()
        return batch + [self._shared(entries) for entries in shared], large

    def _shared(self, entries: list[Owned]) -> Queued:
        first, *others = (owned.id for owned in entries)
        additions = [addition for owned in entries for addition in owned.additions]
        settlement = Settlement(first, self._how, 0, additions, others, any_owner=True)
        several = bool(others and additions)
        return Queued(entries, settlement, Ending.ACKNOWLEDGED, several)

    async def _flush(self, batch: list[Queued]) -> None:
        try:
            outcomes = await self._send([queued.settlement for queued in batch])
        finally:
            self._in_flight -= sum(len(queued.entries) for queued in batch)
        self._busy_since = self._clock.monotonic() if len(self) else None
        for queued, outcome in zip(batch, outcomes, strict=True):
            self._done(queued, outcome)
        self._empty.notify()

    async def _flush_alone(self, queued: Queued) -> None:
        progress = TransferProgress(
            lambda silence: log.info("still sending %s", _sent(queued, silence))
        )
        self._alone[id(queued)] = queued, progress
        IS_LARGE.set(True)
        try:
            with progress.watched():
                await self._flush([queued])
        finally:
            del self._alone[id(queued)]


def _sent(queued: Queued, transfer: Silence | None) -> str:
    first = queued.entries[0].delivery
    sent, size = (0, 0) if transfer is None else (transfer.sent, transfer.size)
    total = max(size, size_of(queued.settlement.additions))
    return f"the result of {first.id} of {first.stream} ({megabytes(sent)} of {megabytes(total)} MB sent)"


def megabytes(size: int) -> str:
    """Return a size in megabytes, for a log line.

    >>> megabytes(8_123_456)
    '8.1'
    """
    return f"{size / 1_000_000:.1f}"
