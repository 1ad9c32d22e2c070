"""The clock of a node: steady time for its commands, and how far the wall clock is from it.

    elapsed (monotonic) ── begins at max(wall clock, last record) ──▶ now_ms, steady: it never jumps
    wall clock          ── read once a turn, compared ──────────────▶ wall.ahead_ms, jumps

Rule 1. Both of the machine's clocks are read when a turn begins; within it the monotonic one alone.
Rule 2. A command begins when the one before it has ended, if that was timed: one reading serves both.
Rule 3. Any other clock, such as a test's, is asked each time, in whole milliseconds.
Rule 4. ``wall.ahead_ms`` is held until the clocks have moved against each other by more than
        `_TOLERANCE_NS`, so that a time that was given is shown again as it was given. That they seem to
        have moved may be an interruption between the two readings: it counts once they were read in
        one go.

See docs/adr/0035-steady-time.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.clock import Clock, SystemClock
from headwater.commands.times import WallOffset
from headwater.server.services.clock_jumps import ClockJumps

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

_TOLERANCE_NS = 1_000_000

_NS_A_MS = 1_000_000
_NS_A_SECOND = 1e9
_IN_ONE_GO_NS = 10_000
"""Two readings of the monotonic clock that are no farther apart had no interruption between them."""
_READINGS = 5
"""How often that is tried; then the closest pair counts."""


class TurnClock:
    """The clock of a node, as its turns and its commands see it. Steady time begins at
    ``not_before_ms``, the time of the journal's last record, where the wall clock is behind it."""

    def __init__(self, clock: Clock, *, not_before_ms: int = 0) -> None:
        self.clock = clock
        self._is_system = type(clock) is SystemClock
        self.wall = WallOffset()
        self.jumps = ClockJumps()
        self._wall_ahead_ns = self._measured()
        """Wall clock over monotonic clock; `_steady_ahead_ns` says the same of steady time."""
        passed = self._passed()
        behind_ms = max(0, not_before_ms - (passed + self._wall_ahead_ns) // _NS_A_MS)
        self.wall.ahead_ms = -behind_ms
        self._steady_ahead_ns = self._wall_ahead_ns + behind_ms * _NS_A_MS
        passed -= (passed + self._steady_ahead_ns) % _NS_A_MS
        self._zero_s = passed / _NS_A_SECOND
        self._zero_ms = (passed + self._steady_ahead_ns) // _NS_A_MS
        """The steady time at the monotonic second `_zero_s`."""
        self.turn_began = 0.0
        """Monotonic seconds."""
        self.began_ns = 0
        """Monotonic ns at which the command under way began; only ever compared with such."""
        self.ended_ns = 0
        """The same of the end of the last one, or when the turn began; 0 where that was not timed."""
        self.now_ms = self._zero_ms
        """Steady time of the command under way."""
        self.jumps.found_at_start(behind_ms)

    def begin_turn(self) -> None:
        """A turn begins."""
        # The wall clock first: an interruption makes it seem to have gone back, never ahead.
        wall = wall_ns()
        self.ended_ns = passed_ns()
        if self._is_system:
            self.turn_began = self.ended_ns / _NS_A_SECOND
            moved = wall - self.ended_ns - self._wall_ahead_ns
            if moved > _TOLERANCE_NS or moved < -_TOLERANCE_NS:
                self._look()
        else:
            self.turn_began = self.clock.monotonic()

    def begin_command(self) -> None:
        """A command begins."""
        self.began_ns = self.ended_ns or passed_ns()
        self.ended_ns = 0
        if self._is_system:
            # A number, not its name: C divides by a variable in ten times as long.
            self.now_ms = (self.began_ns + self._steady_ahead_ns) // 1_000_000
        else:
            self._look()
            self.now_ms = self.now()

    def begin_again(self) -> None:
        """Other things were done first: the command's time counts from here, and is the same time."""
        self.began_ns = passed_ns()

    def now(self) -> int:
        """Steady time, read now, ms."""
        return (self._passed() + self._steady_ahead_ns) // _NS_A_MS

    def wall_now(self) -> int:
        """What the wall clock shows now, Unix ms, if it has not jumped within this turn."""
        return self.now() + self.wall.ahead_ms

    def monotonic(self) -> float:
        """Monotonic seconds, read now."""
        return self.clock.monotonic()

    def monotonic_at(self, at_ms: int) -> float:
        """Monotonic seconds of a steady time."""
        return self._zero_s + (at_ms - self._zero_ms) / 1000

    def _passed(self) -> int:
        """Monotonic ns."""
        if self._is_system:
            return passed_ns()
        return round(self.clock.monotonic() * 1e6) // 1000 * _NS_A_MS

    def _wall(self) -> int:
        """What the wall clock shows, Unix ns."""
        return wall_ns() if self._is_system else self.clock.now_ms() * _NS_A_MS

    def _measured(self) -> int:
        """How far the wall clock is ahead of the monotonic one, ns, by readings in one go (rule 4)."""
        ahead = closest = -1
        for _ in range(_READINGS):
            before = self._passed()
            wall = self._wall()
            after = self._passed()
            if closest < 0 or after - before < closest:
                ahead, closest = wall - after, after - before
            if closest <= _IN_ONE_GO_NS:
                break
        return ahead

    def _look(self) -> None:
        """Follow the wall clock if it has moved."""
        ahead = self._measured()
        moved = ahead - self._wall_ahead_ns
        if abs(moved) > _TOLERANCE_NS:
            self._wall_ahead_ns = ahead
            half = _NS_A_MS // 2
            self.wall.ahead_ms = (ahead - self._steady_ahead_ns + half) // _NS_A_MS
            self.jumps.found((moved + half) // _NS_A_MS, self.now())
