"""Whether this process is the one that reads for an ordered group.

Rule 1. The key is renewed with the leases of entries, by their renewer, and lives for ``claim_after``.
Rule 2. It counts as lost when the store says so, and when it may have expired: then handlers are
        cancelled, before another process begins.
"""

from __future__ import annotations

from collections.abc import Callable

from headwater.groups.member import Member
from headwater.groups.operation import Operation
from headwater.groups.ordered import keep_reader_key
from headwater.worker.clocks import Timer, Timers


class ReaderLease:
    """One consumer's. ``lost`` is called in the event loop when it is lost."""

    def __init__(self, ttl_ms: int, *, clock: Timers, lost: Callable[[], None]) -> None:
        self.ttl_ms = ttl_ms
        self.until = 0.0
        """When it may expire, by the worker's monotonic clock in seconds."""
        self._clock = clock
        self._lost = lost
        self._has = False
        self._timer: Timer | None = None

    @property
    def held(self) -> bool:
        """This process reads."""
        return self._has and self._clock.monotonic() < self.until

    def took(self, began: float) -> None:
        """The store gave it; it was asked at ``began``."""
        self._has = True
        self.until = began + self.ttl_ms / 1000
        self._watch()

    def renew(self, member: Member) -> Operation[bool]:
        """Renew it, from the renewer's thread; False if another reads."""
        began = self._clock.monotonic()
        kept = yield from keep_reader_key(member, ttl_ms=self.ttl_ms)
        if kept:
            self.until = began + self.ttl_ms / 1000
        return kept

    def lose(self) -> None:
        """It is another's, or nobody's."""
        if self._has:
            self.end()
            self._lost()

    def end(self) -> None:
        """Watch it no more: this process stops reading."""
        self._has = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch(self) -> None:
        if not self._has:
            return
        left = self.until - self._clock.monotonic()
        if left <= 0:
            self.lose()
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._clock.call_later(left, self._watch)
