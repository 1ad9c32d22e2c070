"""The progress of a store's replay, for INFO and the log."""

from __future__ import annotations

import logging

from headwater.common.clock import Clock

log = logging.getLogger("headwater.server")

REPORT_SECONDS = 1.0
"""Minimum interval between log lines, in seconds."""


class LoadProgress:
    """The progress of one replay, which begins when this is created. The replay sets ``total_bytes`` and
    ``loaded_bytes``; ``total_bytes`` may be too large, because it is an estimate."""

    def __init__(self, clock: Clock) -> None:
        self.total_bytes = 0
        self.loaded_bytes = 0
        self.started_s = clock.now_ms() // 1000
        """Start of the replay, in Unix seconds."""
        self._clock = clock
        self._began = clock.monotonic()
        self._reported = self._began

    def passed(self) -> float:
        """Return the time for which the replay has run, in seconds."""
        return self._clock.monotonic() - self._began

    def percentage(self) -> float:
        """Return the share of loaded bytes, in percent."""
        return 100 * self.loaded_bytes / max(1, self.total_bytes)

    def eta_seconds(self) -> int:
        """Estimate the remaining time, in seconds. Precedent: Redis, server.c, genRedisInfoString,
        which says 1 during the first second."""
        passed = int(self.passed())
        if not passed:
            return 1
        return passed * (self.total_bytes - self.loaded_bytes) // (self.loaded_bytes + 1)

    def report(self) -> None:
        """Log the progress, unless the last line was logged less than `REPORT_SECONDS` ago."""
        now = self._clock.monotonic()
        if now - self._reported < REPORT_SECONDS:
            return
        self._reported = now
        log.info(
            "loading: %d %% of %d MB, %d s to go",
            self.percentage(),
            self.total_bytes // 1_000_000,
            self.eta_seconds(),
        )

    def end(self) -> None:
        """Log the duration of the replay, unless the store was empty."""
        self.total_bytes = self.loaded_bytes
        if self.loaded_bytes:
            log.info("loaded %.1f MB in %.3f s", self.loaded_bytes / 1_000_000, self.passed())
