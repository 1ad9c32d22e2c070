"""Chooses the number of entries that a consumer reads next: those that its slots handle in a short time."""

from __future__ import annotations

from headwater.worker.read.ordered_fetch import OrderedFetch
from headwater.worker.run.gate import Gate
from headwater.worker.run.pool import Pool
from headwater.worker.run.slow import SlowHandlers
from headwater.worker.settle.in_flight import InFlight
from headwater.worker.settle.scope import Scope

AHEAD_SECONDS = 0.05
"""Seconds of work that should be waiting for the slots. A read must take less time."""


class Room:
    """The room of one consumer for further entries."""

    def __init__(
        self,
        scope: Scope,
        *,
        in_flight: InFlight,
        pool: Pool,
        slow: SlowHandlers,
        gate: Gate | None,
        order: OrderedFetch | None,
    ) -> None:
        self._consumer = scope.consumer
        self._in_flight = in_flight
        self._pool = pool
        self._slow = slow
        self._gate = gate
        self._order = order

    def free(self) -> int:
        """Return the number of entries to read next; 0 if it is better to wait until there is more room."""
        pool = self._pool
        capacity = pool.capacity
        most = self._most(capacity)
        free = most - len(self._in_flight.owned)
        if self._order is not None:
            self._order.make_room(full=free <= 0 and pool.hungry)
            self._order.yield_if_busy()
        enough = max(1, (most - capacity) // 2)
        return free if free >= enough or (free > 0 and pool.hungry) else 0

    def _most(self, capacity: int) -> int:
        """Return the maximum number of entries that this consumer may own now: those that run, and those that its
        slots handle in `AHEAD_SECONDS`, at least one entry or batch."""
        consumer = self._consumer
        if self._gate is not None and self._order is None:
            return min(consumer.prefetch, capacity + self._gate.ahead())
        if self._pool.overfull:
            return min(consumer.prefetch, capacity)
        if not consumer.measured:
            return consumer.prefetch
        usual = self._slow.usual()
        runs = 1 if usual is None else int(consumer.concurrency * AHEAD_SECONDS / max(usual, 1e-6))
        together = 1 if consumer.batch is None else consumer.batch.size
        return min(consumer.prefetch, capacity + max(1, runs) * together)
