"""The one place where time enters. The engine never asks; it is told ``now_ms``.

`headwater.testing.ManualClock` is the twin that a test advances.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time stamps ids and deliveries; monotonic time measures waits, so a clock that is set
    back neither shortens nor lengthens a BLOCK."""

    def now_ms(self) -> int:
        """Unix time in milliseconds."""
        ...

    def monotonic(self) -> float:
        """Seconds that only ever rise, from an arbitrary start."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()
