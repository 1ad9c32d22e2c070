"""Time within a turn: the machine's clocks are asked as seldom as can be.

Rule 1. Both of the machine's clocks are read when a turn begins; within it the monotonic one alone, and
        the time of day follows from how far it was ahead.
Rule 2. A command begins when the one before it has ended, if that was timed: one reading serves both.
Rule 3. Any other clock, such as a test's, is asked each time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.clock import Clock, SystemClock

if TYPE_CHECKING:
    from headwater import _cython as cython
else:
    try:
        import cython
    except ImportError:
        from headwater import _cython as cython

if not cython.compiled:  # clock.pxd asks the system
    from time import monotonic_ns as passed_ns
    from time import time_ns as wall_ns

_NS_A_MS = 1_000_000
_NS_A_SECOND = 1e9


class TurnClock:
    """The clock of a node, as its turns and its commands see it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._is_system = type(clock) is SystemClock
        self._wall_ahead_ns = 0
        self.turn_began = 0.0
        """Monotonic seconds."""
        self.began_ns = 0
        """Monotonic ns at which the command under way began; only ever compared with such."""
        self.ended_ns = 0
        """The same of the end of the last one, or when the turn began; 0 where that was not timed."""
        self.now_ms = 0
        """What the command under way takes for now, Unix ms."""

    def begin_turn(self) -> None:
        """A turn begins."""
        # The time of day first: whatever comes between dates a turn back, never ahead.
        wall = wall_ns()
        self.ended_ns = passed_ns()
        if self._is_system:
            self.turn_began = self.ended_ns / _NS_A_SECOND
            self._wall_ahead_ns = wall - self.ended_ns
        else:
            self.turn_began = self._clock.monotonic()

    def begin_command(self) -> None:
        """A command begins."""
        self.began_ns = self.ended_ns or passed_ns()
        self.ended_ns = 0
        if self._is_system:
            self.now_ms = (self.began_ns + self._wall_ahead_ns) // _NS_A_MS
        else:
            self.now_ms = self._clock.now_ms()

    def begin_again(self) -> None:
        """Other things were done first: the command's time counts from here, and is the same time."""
        self.began_ns = passed_ns()
