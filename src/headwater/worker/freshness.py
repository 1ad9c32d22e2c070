"""Whether what a process owns may be another's by now, because the process stood still.

Rule 1. Nothing that was renewed less than ``claim_after`` ago is another's.
Rule 2. After that no handler begins before everything owned was renewed, and what was lost is dropped. A
        process that was stopped would otherwise run what others have run meanwhile.
Rule 3. The same holds for what a read brought during which the process stood still: the store may have
        given it long ago, and the reply has waited.
Rule 4. A store that does not let this consumer renew holds up no handler: they run at least once.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from math import inf

from headwater.groups.operation import Refused
from headwater.worker.clocks import Timers

log = logging.getLogger("headwater.worker")


class Freshness:
    """One consumer's. ``renew`` renews everything owned, and drops what is another's."""

    def __init__(
        self,
        name: str,
        *,
        clock: Timers,
        lease_ms: int,
        claim_after_ms: int,
        renew: Callable[[], Awaitable[None]],
    ) -> None:
        self.renewed_at = clock.monotonic()
        """When the last renewal that succeeded began, by the worker's monotonic clock in seconds."""
        self.until = self.renewed_at + claim_after_ms / 1000
        """Until when nothing owned can be another's, by the same clock."""
        self.now = clock.monotonic
        self._name = name
        self._lease = lease_ms / 1000
        self._seconds = claim_after_ms / 1000
        self._renew = renew
        self._renewing = asyncio.Lock()
        self._stood_still = -inf
        """When a renewal last came more than a lease after the one before."""
        self._doubts = self._settled = 0
        """How often `read` doubted what was read, and how many of these doubts a renewal has settled."""
        self._writing = threading.Lock()

    def renewed(self, began: float, *, lost: bool = False) -> None:
        """The store answered a renewal that was sent at ``began``. In any thread.

        What it said is ``lost`` is dropped a little later: nothing is fresh for it.
        """
        with self._writing:
            if began - self.renewed_at > self._lease:
                self._stood_still = began
            self.renewed_at = began
            if not lost and self._doubts == self._settled:
                self.until = began + self._seconds

    def read(self, sent: float) -> None:
        """Entries are here that a command sent at ``sent`` has brought; none of them has begun."""
        if self.stale or self._stood_still >= sent:
            with self._writing:
                self._doubts += 1
                self.until = -inf

    @property
    def stale(self) -> bool:
        """Whether others may have what is owned here."""
        return self.now() > self.until

    async def restored(self) -> None:
        """Return when nothing owned is another's; ask `stale` again, a read may have come between."""
        async with self._renewing:
            began, doubts = self.now(), self._doubts
            if began <= self.until:
                return  # another slot has seen to it
            if began - self.renewed_at > self._seconds:
                log.warning(
                    "%s: leases were last renewed %.1f s ago, which is longer than claim_after: this "
                    "process stood still, or the store did not answer. It goes on with what is still "
                    "its own.",
                    self._name,
                    began - self.renewed_at,
                )
            try:
                await self._renew()
            except Refused as error:
                log.warning(
                    "the leases of %s cannot be renewed: other workers may handle the same entries: %s",
                    self._name,
                    error,
                )
            self._settled = doubts
            self.renewed(began)
