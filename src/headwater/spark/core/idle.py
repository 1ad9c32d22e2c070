"""Pauses between polls that find nothing.

Spark polls an idle source again after 10 ms, unless the query's trigger has an interval.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

LONGEST_PAUSE_S: Final = 0.1
_FIRST_PAUSE_S: Final = 0.005
_SLOW_PAUSE_S: Final = 1.0
_SHARE: Final = 4


class IdlePauses:
    """Delays a poll after one that found nothing: by 5 ms, and twice as long each time, up to `LONGEST_PAUSE_S`. The
    delay is at least four times as long as that poll took, up to a second, so polls take at most a fifth of the time.

    >>> now, slept = 0.0, []
    >>> pauses = IdlePauses(clock=lambda: now, sleep=slept.append)
    >>> for something in (True, False, False, True, False):
    ...     pauses.wait()
    ...     pauses.polled(found=something)
    >>> slept
    [0.005, 0.01]
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._pause = 0.0
        self._began = self._polled = 0.0

    def wait(self) -> None:
        """Wait before a poll, if the previous one was just now and found nothing."""
        rest = self._polled + self._pause - self._clock()
        if rest > 0:
            self._sleep(rest)
        self._began = self._clock()

    def polled(self, *, found: bool) -> None:
        """Record the end of a poll, and whether it found anything."""
        self._polled = self._clock()
        if found:
            self._pause = 0.0
            return
        doubled = min(LONGEST_PAUSE_S, max(_FIRST_PAUSE_S, 2 * self._pause))
        took = self._polled - self._began
        self._pause = max(doubled, min(_SLOW_PAUSE_S, _SHARE * took))
