"""The clocks of a store. The engine reads no clock; callers pass it ``now_ms``.

Rule 1. Steady time starts at the wall clock's time, or at the journal's last record if that is later, and then
        advances with elapsed time. Ages, delays, expiries and all times in the journal are steady (turn_clock.py).
Rule 2. The wall clock may jump. New ids, TIME and times that a client sends or receives are wall-clock
        times; `headwater.commands.times` converts between them and steady times.

Tests use `headwater.testing.ManualClock`, which the test advances. See docs/adr/0035-steady-time.md.
"""

from __future__ import annotations

from typing import Protocol

try:
    import cython
except ImportError:
    from headwater import _cython as cython

if not cython.compiled:  # clock.pxd calls clock_gettime
    from time import monotonic as passed_seconds
    from time import time_ns as wall_ns


class Clock(Protocol):
    """A source of time. Durations are measured in monotonic time only, because the wall clock can be set
    while the store runs."""

    def now_ms(self) -> int:
        """Return the wall clock's time in Unix milliseconds."""
        ...

    def monotonic(self) -> float:
        """Return the seconds since an arbitrary start. The value never decreases."""
        ...


class SystemClock:
    """The system's wall clock and its monotonic clock."""

    def now_ms(self) -> int:
        return wall_ns() // 1_000_000

    def monotonic(self) -> float:
        return passed_seconds()


class StandingClock:
    """A clock whose wall time is always ``at_ms``, Unix milliseconds, and whose monotonic time is always 0."""

    def __init__(self, at_ms: int) -> None:
        self._at_ms = at_ms

    def now_ms(self) -> int:
        return self._at_ms

    def monotonic(self) -> float:
        return 0.0
