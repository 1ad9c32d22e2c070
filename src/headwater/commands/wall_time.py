"""Times of the wall clock as steady times, and back.

Commands run in steady time (`Call.now_ms`), which never jumps; clients give and are shown times of the
wall clock, which may. See docs/adr/0035-steady-time.md.
"""

from __future__ import annotations

_MAX_I64 = 2**63 - 1


class WallOffset:
    """How far the wall clock is ahead of steady time, and times of the one as times of the other.

    >>> wall = WallOffset()
    >>> wall.ahead_ms = -3_600_000
    >>> wall.steady_ms(1_700_000_000_000), wall.wall_ms(1_700_003_600_000)
    (1700003600000, 1700000000000)

    Both are times of 64 bits from 0 on: what would be less or more is the least or the most.
    """

    def __init__(self) -> None:
        self.ahead_ms = 0
        """Negative where the wall clock is behind."""

    def steady_ms(self, wall_ms: int) -> int:
        """The steady time at which the wall clock, as it goes now, shows ``wall_ms``."""
        return min(max(0, wall_ms - self.ahead_ms), _MAX_I64)

    def wall_ms(self, steady_ms: int) -> int:
        """What the wall clock, as it goes now, shows at a steady time."""
        return min(max(0, steady_ms + self.ahead_ms), _MAX_I64)

    def copy(self) -> WallOffset:
        """The offset as it is now, for what takes longer than a command."""
        made = WallOffset()
        made.ahead_ms = self.ahead_ms
        return made
