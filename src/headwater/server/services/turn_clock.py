"""The clock of a node: steady time for its commands, and the wall clock's difference from it.

    elapsed (monotonic) ── starts at max(wall clock, last record) ──▶ now_ms, steady: never jumps
    wall clock          ── read once a turn and compared ───────────▶ wall.ahead_ms: may jump

Rule 1. Both system clocks are read when a turn begins; within the turn only the monotonic one.
Rule 2. If the end of the previous command was measured, it is the beginning of the next: one
        reading serves both.
Rule 3. Any other clock, such as a test's, is read each time, in whole milliseconds.
Rule 4. ``wall.ahead_ms`` changes only when the clocks have moved relative to each other by more
        than `_TOLERANCE_NS`, so that a client that sets a time reads the same time. An interruption
        between the two readings looks like a movement. Therefore a movement counts only after an
        uninterrupted reading.

See docs/adr/0035-steady-time.md.
"""

from __future__ import annotations

import logging

from headwater.commands.times import WallOffset
from headwater.common.clock import Clock, SystemClock

try:
    import cython
except ImportError:
    from headwater import _cython as cython

if not cython.compiled:  # compiled modules use clock.pxd
    from time import monotonic_ns as passed_ns
    from time import time_ns as wall_ns


_TOLERANCE_NS = 1_000_000

_NS_A_MS = 1_000_000
_NS_A_SECOND = 1e9
_IN_ONE_GO_NS = 10_000
"""Maximum time between two readings of the monotonic clock, in ns, that counts as uninterrupted."""
_READINGS = 5
"""Maximum number of attempts to read without interruption; then the closest pair counts."""


class TurnClock:
    """The clock of a node, for its turns and commands."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._is_system = type(clock) is SystemClock
        self.wall = WallOffset()
        self.jumps = ClockJumps()
        self._wall_ahead_ns = self._measured()
        """Wall clock minus monotonic clock, in ns. `_steady_ahead_ns` is steady time minus monotonic clock."""
        passed = self._passed()
        self._steady_ahead_ns = self._wall_ahead_ns
        passed -= (passed + self._steady_ahead_ns) % _NS_A_MS
        self._zero_s = passed / _NS_A_SECOND
        self._zero_ms = (passed + self._steady_ahead_ns) // _NS_A_MS
        """The steady time at the monotonic second `_zero_s`."""
        self.turn_began = 0.0
        """Monotonic time at which the turn began, in seconds."""
        self.began_ns = 0
        """Monotonic ns at which the current command began. Compare it with monotonic ns only."""
        self.ended_ns = 0
        """Monotonic ns at which the last command ended, or the turn began; 0 if not measured."""
        self.now_ms = self._zero_ms
        """Steady time of the current command."""

    def start_after(self, written_ms: int) -> int:
        """Set steady time forward to ``written_ms``, the time of the journal's last record, if the clock is behind
        it. Return the number of milliseconds by which steady time was set forward. Call this between turns, before
        any steady time of this clock is used."""
        behind_ms = max(0, written_ms - self.now())
        self._steady_ahead_ns += behind_ms * _NS_A_MS
        self._zero_ms += behind_ms
        self.now_ms += behind_ms
        self.wall.ahead_ms -= behind_ms
        self.jumps.found_at_start(behind_ms)
        return behind_ms

    def follow(self, now_ms: int) -> None:
        """Set steady time to ``now_ms``, the primary's, as the clock of a replica. Ages and due times are then the
        primary's, whatever the wall clocks say. Call this between turns."""
        ahead_ms = now_ms - self.now()
        self._steady_ahead_ns += ahead_ms * _NS_A_MS
        self._zero_ms += ahead_ms
        self.now_ms += ahead_ms
        self.wall.ahead_ms -= ahead_ms

    def begin_turn(self) -> None:
        """Begin a turn."""
        # Read the wall clock first: after an interruption it then seems to be behind, never ahead.
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
        """Begin a command."""
        self.began_ns = self.ended_ns or passed_ns()
        self.ended_ns = 0
        if self._is_system:
            # The divisor is a literal, because C divides by a variable ten times as slowly.
            self.now_ms = (self.began_ns + self._steady_ahead_ns) // 1_000_000
        else:
            self._look()
            self.now_ms = self.now()

    def begin_again(self) -> None:
        """Measure the command's duration from now on, because other work came first. ``now_ms`` does not change."""
        self.began_ns = passed_ns()

    def now(self) -> int:
        """Read steady time, in ms."""
        return (self._passed() + self._steady_ahead_ns) // _NS_A_MS

    def wall_now(self) -> int:
        """Return wall-clock time, in Unix ms. A jump of the wall clock since the turn began has no effect yet."""
        return self.now() + self.wall.ahead_ms

    def monotonic(self) -> float:
        """Read the monotonic clock, in seconds."""
        return self.clock.monotonic()

    def monotonic_at(self, at_ms: int) -> float:
        """Convert steady time to monotonic seconds."""
        return self._zero_s + (at_ms - self._zero_ms) / 1000

    def _passed(self) -> int:
        """Read the monotonic clock, in ns."""
        if self._is_system:
            return passed_ns()
        return round(self.clock.monotonic() * 1e6) // 1000 * _NS_A_MS

    def _wall(self) -> int:
        """Read the wall clock, in Unix ns."""
        return wall_ns() if self._is_system else self.clock.now_ms() * _NS_A_MS

    def _measured(self) -> int:
        """Measure wall clock minus monotonic clock, in ns, without interruption (rule 4)."""
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
        """Update the difference if the wall clock has moved."""
        ahead = self._measured()
        moved = ahead - self._wall_ahead_ns
        if abs(moved) > _TOLERANCE_NS:
            self._wall_ahead_ns = ahead
            half = _NS_A_MS // 2
            self.wall.ahead_ms = (ahead - self._steady_ahead_ns + half) // _NS_A_MS
            self.jumps.found((moved + half) // _NS_A_MS, self.now())


log = logging.getLogger("headwater.server")

# --- jumps of the wall clock ----------------------------------------------------------------------


JUMP_MS = 1000
"""Movement of the wall clock, in ms, above which it counts as a jump. Precedent: time servers correct smaller
differences by changing the clock's speed, or in steps of this order."""

LOG_INTERVAL_MS = 10_000
"""Minimum interval of log lines, in ms. Two time servers that disagree set a clock again and again."""


class ClockJumps:
    """The jumps of a node's wall clock since its start."""

    def __init__(self) -> None:
        self.count = 0
        self.last_ms = 0
        """Distance of the last jump in ms, negative if backwards; 0 before the first."""
        self._logged_ms: int | None = None
        """Steady time of the last log line, in ms; None before the first."""
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
