"""The one place where time enters. The engine never asks; it is told ``now_ms``.

`headwater.testing.ManualClock` is the twin that a test advances.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from headwater import _cython as cython
else:
    try:
        import cython
    except ImportError:
        from headwater import _cython as cython

if not cython.compiled:  # clock.pxd asks the system
    from time import monotonic as passed_seconds
    from time import time_ns as wall_ns


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
        return wall_ns() // 1_000_000

    def monotonic(self) -> float:
        return passed_seconds()
