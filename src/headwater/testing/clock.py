"""A clock that only a test advances.

Rule 1. Timers run in the order of their times; timers with the same time run in the order of creation.
Rule 2. While the callback of a timer runs, the clock has the time for which the timer was set.
Rule 3. An upkeep call, which a program repeats while nothing happens, may be late: `leap` runs it only at its end.
Rule 4. The wall clock and the monotonic clock advance together. Only `jump` and `set_wall` change the wall clock
        alone, as an administrator or a time server does. Timers are not affected by these two methods.
"""

from __future__ import annotations

import asyncio
import heapq
import threading
from collections.abc import Callable
from itertools import count
from typing import Any

START_MS = 1_700_000_000_000
"""The wall clock's initial time: a realistic one, so that ids look like ids."""


class ManualTimer:
    """A call that is due later, unless `cancel` is called first."""

    def __init__(self, callback: Callable[[], Any], *, upkeep: bool = False) -> None:
        self.callback: Callable[[], Any] | None = callback
        self.upkeep = upkeep

    def cancel(self) -> None:
        self.callback = None


class ManualClock:
    """A wall clock and a monotonic clock that only the test advances.

    >>> clock = ManualClock()
    >>> _ = clock.call_later(2, lambda: print("two"))
    >>> _ = clock.call_later(1, lambda: print("one", clock.now_ms() - START_MS))
    >>> clock.advance(5)
    one 1000
    two
    >>> clock.monotonic()
    5.0

    ``start_ms`` is the initial time of the wall clock, in Unix milliseconds. `headwater.connect` and
    `server_thread` accept the clock as ``clock=``. Timers run in the order of their times, in the thread that
    advances the clock. While a timer runs, the clock shows the time for which the timer was set.
    """

    def __init__(self, start_ms: int = START_MS) -> None:
        self._start_ms = start_ms
        self._passed_us = 0
        self._timers: list[tuple[int, int, ManualTimer]] = []
        self._order = count()
        self._lock = threading.RLock()

    def now_ms(self) -> int:
        """Return the wall clock's time, in Unix milliseconds."""
        return self._start_ms + self._passed_us // 1000

    def monotonic(self) -> float:
        """Return the number of seconds by which the clock has been advanced since its creation."""
        return self._passed_us / 1e6

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward by ``seconds``, or back if ``seconds`` is negative. No time passes.

        >>> clock = ManualClock()
        >>> clock.jump(-3600)
        >>> clock.now_ms() - START_MS, clock.monotonic()
        (-3600000, 0.0)
        """
        self._start_ms += round(seconds * 1000)

    def set_wall(self, unix_ms: int) -> None:
        """Set the wall clock to ``unix_ms``, in Unix milliseconds. No time passes."""
        self._start_ms = unix_ms - self._passed_us // 1000

    def call_later(self, delay: float, callback: Callable[[], Any]) -> ManualTimer:
        """Call ``callback`` when the clock has been advanced by ``delay`` seconds.

        Returns a timer with a method ``cancel()``. A positive delay shorter than a microsecond, the resolution
        of the clock, counts as a microsecond. With a delay of 0, the next advance calls ``callback``.
        """
        return self._set(delay, ManualTimer(callback))

    def call_upkeep(self, delay: float, callback: Callable[[], Any]) -> ManualTimer:
        """Schedule an upkeep call, which a program repeats while nothing happens and which may be late."""
        return self._set(delay, ManualTimer(callback, upkeep=True))

    def _set(self, delay: float, timer: ManualTimer) -> ManualTimer:
        with self._lock:
            due = self._passed_us + max(1 if delay > 0 else 0, round(delay * 1e6))
            heapq.heappush(self._timers, (due, next(self._order), timer))
        return timer

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock has been advanced by ``seconds``."""
        loop = asyncio.get_running_loop()
        done = loop.create_future()

        def finish() -> None:
            if not done.done():
                done.set_result(None)

        def wake() -> None:
            loop.call_soon_threadsafe(finish)

        timer = self.call_later(seconds, wake)
        try:
            await done
        finally:
            timer.cancel()

    def until_next(self) -> float | None:
        """Return the seconds until the next timer runs; None without timers."""
        with self._lock:
            while self._timers and self._timers[0][2].callback is None:
                heapq.heappop(self._timers)
            if not self._timers:
                return None
            return max(0, self._timers[0][0] - self._passed_us) / 1e6

    def until_event(self) -> float | None:
        """Return the seconds until the next timer that is not upkeep; None without such timers."""
        with self._lock:
            events = [
                due for due, _, one in self._timers if one.callback is not None and not one.upkeep
            ]
        return None if not events else max(0, min(events) - self._passed_us) / 1e6

    def leap(self, seconds: float) -> None:
        """Let ``seconds`` pass, then run the timers that became due. ``seconds`` must not exceed `until_event`."""
        with self._lock:
            self._passed_us += round(seconds * 1e6)
        self.advance(0)

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass, and run the timers that become due, in this thread."""
        assert seconds >= 0, "elapsed time does not run backwards; see jump"
        end = self._passed_us + round(seconds * 1e6)
        while True:
            with self._lock:
                if not self._timers or self._timers[0][0] > end:
                    break
                due, _order, timer = heapq.heappop(self._timers)
                self._passed_us = max(self._passed_us, due)
            if timer.callback is not None:
                timer.callback()
        self._passed_us = max(self._passed_us, end)
