"""Jumps of the wall clock: counted for INFO, told in the log."""

from __future__ import annotations

import logging

log = logging.getLogger("headwater.server")

JUMP_MS = 1000
"""What moves the wall clock by more is a jump. Precedent: time servers correct less by running the clock
faster or slower, or in steps of this order."""

LOG_INTERVAL_MS = 10_000
"""At most one line in this time: two time servers that disagree set a clock again and again."""


class ClockJumps:
    """The jumps of a node's wall clock since its start."""

    def __init__(self) -> None:
        self.count = 0
        self.last_ms = 0
        """How far the last one went, negative for back; 0 before the first."""
        self._logged_ms: int | None = None
        """Steady time of the last line."""
        self._unlogged = 0

    def found(self, moved_ms: int, now_ms: int) -> None:
        """The wall clock has moved by ``moved_ms`` against steady time, which is ``now_ms``."""
        if abs(moved_ms) <= JUMP_MS:
            return
        self.count += 1
        self.last_ms = moved_ms
        if self._logged_ms is not None and now_ms - self._logged_ms < LOG_INTERVAL_MS:
            self._unlogged += 1
            return
        before = f" ({self._unlogged} jumps before it were not logged)" if self._unlogged else ""
        self._logged_ms, self._unlogged = now_ms, 0
        log.warning(
            "the wall clock jumped by %+.3f s%s: new ids and TIME follow it; idle times, delays and "
            "expiries go on by elapsed time",
            moved_ms / 1000,
            before,
        )

    def found_at_start(self, behind_ms: int) -> None:
        """The wall clock is ``behind_ms`` behind the last record of the journal."""
        if behind_ms <= JUMP_MS:
            return
        self.count, self.last_ms = 1, -behind_ms
        log.warning(
            "the wall clock is %.3f s behind the last record of the journal, so it was set back: idle "
            "times, delays and expiries go on from that record",
            behind_ms / 1000,
        )
