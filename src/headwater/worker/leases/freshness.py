"""Detects that another worker may own this process's entries, because the process was suspended.

Rule 1. An entry that was renewed less than ``claim_after`` ago still belongs to this process.
Rule 2. After that time, all entries are renewed and the lost ones dropped before another handler begins.
        Otherwise a process that was suspended would handle entries that others have already handled.
Rule 3. Rule 2 also applies to the entries of a read during which the process was suspended, because the store
        may have delivered them long ago.
Rule 4. If the store does not permit this consumer to renew, handlers still run (delivery is at least once).
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from math import inf

from headwater.groups.protocol.operation import Refused
from headwater.worker.leases.lease_board import NO_SLOT, LeaseSlot
from headwater.worker.store.clocks import Timers

log = logging.getLogger("headwater.worker")


class Freshness:
    """Freshness of one consumer's entries. ``renew`` renews all entries and drops the lost ones."""

    def __init__(
        self,
        name: str,
        *,
        clock: Timers,
        lease_ms: int,
        claim_after_ms: int,
        renew: Callable[[], Awaitable[None]],
        slot: LeaseSlot = NO_SLOT,
    ) -> None:
        self.renewed_at = clock.monotonic()
        """Time when the last successful renewal began, by the worker's monotonic clock in seconds."""
        self.until = self.renewed_at + claim_after_ms / 1000
        """Time until which this process certainly owns all entries, by the same clock."""
        self.now = clock.monotonic
        self._name = name
        self._lease = lease_ms / 1000
        self._seconds = claim_after_ms / 1000
        self._renew = renew
        self.slot = slot
        """The consumer's place in the memory that the process shares with its supervisor."""
        self._renewing = asyncio.Lock()
        self._suspended_at = -inf
        """Time of the last renewal that came more than a lease after the one before, by the same clock."""
        self._needed = self._done = 0
        """Numbers of renewals that `read` found necessary, and of those that were done."""
        self._writing = threading.Lock()

    def renewed(self, began: float, *, lost: bool = False) -> None:
        """Record a successful renewal that was sent at ``began``. Called from any thread.

        If entries were ``lost``, the others do not count as fresh, because the lost ones are dropped only later.
        """
        self.slot.renewed(began)
        with self._writing:
            late = began - self._last_renewed()
            if late > self._lease:
                self._suspended_at = began
            self.renewed_at = began
            if not lost and self._needed == self._done:
                self.until = began + self._seconds
        if lost and late > self._seconds:
            self._say_suspended(late)

    def _last_renewed(self) -> float:
        """Return the time when this process or its supervisor last renewed."""
        return max(self.renewed_at, self.slot.by_supervisor())

    def _say_suspended(self, late: float) -> None:
        log.warning(
            "%s: leases were last renewed %.1f s ago, which is longer than claim_after: this process was "
            "suspended, or the store did not answer. It continues with the entries that it still owns.",
            self._name,
            late,
        )

    def read(self, sent: float) -> None:
        """Record that a command sent at ``sent`` has returned entries. Their handlers must not have begun."""
        if self.stale or self._suspended_at >= sent:
            with self._writing:
                self._needed += 1
                self.until = -inf

    @property
    def stale(self) -> bool:
        """True if other workers may own this process's entries."""
        return self.now() > self.until

    async def restored(self) -> None:
        """Renew if necessary, and return when all lost entries are dropped. The caller must check `stale` again
        afterwards, because a read may have returned in the meantime."""
        async with self._renewing:
            began, needed = self.now(), self._needed
            if began <= self.until:
                return  # another slot has renewed
            late = began - self._last_renewed()
            if late > self._seconds:
                self._say_suspended(late)
            try:
                await self._renew()
            except Refused as error:
                log.warning(
                    "the leases of %s cannot be renewed: other workers may handle the same entries: %s",
                    self._name,
                    error,
                )
            self._done = needed
            self.renewed(began)
