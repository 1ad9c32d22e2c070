"""Jumps of the wall clock: counts them for INFO and logs them."""

from __future__ import annotations

import logging

log = logging.getLogger("headwater.server")

JUMP_MS = 1000
"""The wall clock has jumped if it moved by more than this. Precedent: time servers correct smaller
differences by changing the clock's speed, or in steps of this order."""

LOG_INTERVAL_MS = 10_000
"""Minimum interval of log lines. Two time servers that disagree set a clock again and again."""


class ClockJumps:
    """The jumps of a node's wall clock since its start."""

    def __init__(self) -> None:
        self.count = 0
        self.last_ms = 0
        """The distance of the last jump, negative if backwards; 0 before the first."""
        self._logged_ms: int | None = None
        """Steady time of the last log line."""
        self._unlogged = 0

    def found(self, moved_ms: int, now_ms: int) -> None:
        """Record that the wall clock moved by ``moved_ms`` at the steady time ``now_ms``."""
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
            "expiries continue by elapsed time",
            moved_ms / 1000,
            before,
        )

    def found_at_start(self, behind_ms: int) -> None:
        """Record that the wall clock is ``behind_ms`` behind the last record of the journal."""
        if behind_ms <= JUMP_MS:
            return
        self.count += 1
        self.last_ms = -behind_ms
        log.warning(
            "the wall clock is %.3f s behind the last record of the journal, so it was set back: idle "
            "times, delays and expiries continue from that record",
            behind_ms / 1000,
        )
