"""The one place where time enters. The engine never asks; it is told ``now_ms``.

Rule 1. Steady time begins where the wall clock stands and goes on with elapsed time: ages, delays,
        expiries and everything that the journal holds are in it (`headwater.server.services.turn_clock`).
Rule 2. The wall clock may jump. New ids, TIME and times that a client gives or is shown are of the wall
        clock; `headwater.commands.times` makes steady times of them and back.

`headwater.testing.ManualClock` is the twin that a test advances. See docs/adr/0035-steady-time.md.
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
    """What time is read from. Only differences of monotonic time measure anything: the wall clock can
    be set while the store runs."""

    def now_ms(self) -> int:
        """What the wall clock shows, Unix ms."""
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
