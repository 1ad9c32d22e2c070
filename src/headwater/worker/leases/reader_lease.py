"""The name lease of the one process that reads for an ordered group.

Rule 1. The lease renewer renews the reader's key with the leases of entries. The key expires after
        ``claim_after``.
Rule 2. The key counts as lost when the store reports the loss, and when the key may have expired. Then handlers
        are cancelled before another process begins. A process that lets another one read releases the key
        (`ordered_fetch`, rule 4), and its handlers continue.
"""

from __future__ import annotations

from collections.abc import Callable

from headwater.groups.membership.member import Member
from headwater.groups.protocol.operation import Operation
from headwater.groups.reading.ordered import keep_reader_key
from headwater.worker.store.clocks import Timer, Timers, call_upkeep


class ReaderLease:
    """The lease of one consumer. ``lost`` is called in the event loop when the lease is lost."""

    def __init__(
        self,
        ttl_ms: int,
        *,
        clock: Timers,
        lost: Callable[[], None],
        by_supervisor: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.ttl_ms = ttl_ms
        self.until = 0.0
        """Time at which the key may expire, by the worker's monotonic clock in seconds."""
        self._clock = clock
        self._lost = lost
        self._by_supervisor = by_supervisor
        self._has = False
        self._taken = 0
        """Number of times that this process has taken the lease."""
        self._timer: Timer | None = None

    @property
    def held(self) -> bool:
        """True while this process has the lease."""
        return self._has and self._left() > 0

    def _left(self) -> float:
        """Return the seconds for which the key still lasts. The supervisor may also have renewed the key."""
        self.until = max(self.until, self._by_supervisor() + self.ttl_ms / 1000)
        return self.until - self._clock.monotonic()

    def took(self, began: float) -> None:
        """Record that this process has taken the lease, by a command that was sent at ``began``."""
        self._has = True
        self._taken += 1
        self.until = began + self.ttl_ms / 1000
        self._watch()

    def renew(self, member: Member) -> Operation[bool]:
        """Renew the lease, in the renewer's thread. Return False if another process has it."""
        began, taken = self._clock.monotonic(), self._taken
        kept = yield from keep_reader_key(member, ttl_ms=self.ttl_ms)
        if self._taken != taken:
            return True  # the key was released and taken again in the meantime
        if kept:
            self.until = began + self.ttl_ms / 1000
        return kept

    def lose(self) -> None:
        """Record that this process has lost the lease."""
        if self._has:
            self.end()
            self._lost()

    def end(self) -> None:
        """Stop watching the lease, because this process stops reading."""
        self._has = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch(self) -> None:
        if not self._has:
            return
        left = self._left()
        if left <= 0:
            self.lose()
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = call_upkeep(self._clock, left, self._watch)
