"""The retry policy, which decides how long an entry waits after a failed delivery."""

from __future__ import annotations

from datetime import timedelta
from random import Random

from headwater.common.durations import LONGEST_MS, milliseconds
from headwater.errors import DeclarationError

MOST_FACTOR = 1_000
"""The largest ``factor``. Powers of a larger factor would overflow a float, and only the ceiling would matter."""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class Backoff:
    """Growing waits between deliveries: first ``first``, then each time ``factor`` times as long, up to
    ``ceiling``.

    >>> from random import Random
    >>> backoff = Backoff("1s", factor=2, ceiling="5m", jitter=0)
    >>> [backoff.delay_ms(deliveries, Random(0)) for deliveries in (1, 2, 3, 20)]
    [1000, 2000, 4000, 300000]

    - ``first``: the wait after the first failed delivery.
    - ``factor``: the ratio of each wait to the one before, from 1 to 1,000.
    - ``ceiling``: the longest wait, before jitter; at least ``first``.
    - ``jitter``: the fraction by which a wait may vary, from 0 to less than 1. With 0.2 each wait is a random 80 %
      to 120 % of its length, so that entries that failed together are not delivered again together.

    Raises `DeclarationError` for a value out of range or a string that is not a duration.
    """

    def __init__(
        self,
        first: str | timedelta = "1s",
        *,
        factor: float = 2,
        ceiling: str | timedelta = "5m",
        jitter: float = 0.2,
    ) -> None:
        if not _is_number(factor) or not 1 <= factor <= MOST_FACTOR:
            raise DeclarationError(
                f"factor={factor!r} must be a number from 1 to {MOST_FACTOR:,}: waits do not shrink"
            )
        if not _is_number(jitter) or not 0 <= jitter < 1:
            raise DeclarationError(f"jitter={jitter!r} must be at least 0 and less than 1")
        self.first_ms = milliseconds(first, what="first")
        """The wait after the first failed delivery, in milliseconds."""
        self.ceiling_ms = milliseconds(ceiling, what="ceiling")
        """The longest wait before jitter, in milliseconds."""
        self.factor = factor
        """The ratio of each wait to the one before."""
        self.jitter = jitter
        """The fraction by which a wait may be shorter or longer."""
        if self.ceiling_ms < self.first_ms:
            raise DeclarationError(f"ceiling={ceiling!r} is shorter than first={first!r}")

    def delay_ms(self, deliveries: int, chance: Random) -> int:
        """Return the milliseconds to wait after delivery number ``deliveries`` failed. ``chance`` is the source
        of the jitter."""
        growth = min(float(LONGEST_MS), self.factor ** min(deliveries - 1, 64))
        wait = min(float(self.ceiling_ms), self.first_ms * growth)
        return max(1, round(wait * chance.uniform(1 - self.jitter, 1 + self.jitter)))

    def __repr__(self) -> str:
        return (
            f"Backoff('{self.first_ms}ms', factor={self.factor}, ceiling='{self.ceiling_ms}ms', "
            f"jitter={self.jitter})"
        )
