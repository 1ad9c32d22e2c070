"""The clocks of a worker. All its waiting uses one, so that a test can advance it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from headwater.clock import Clock, SystemClock


class Timer(Protocol):
    """What `Timers.call_later` returns."""

    def cancel(self) -> None: ...


class Timers(Clock, Protocol):
    """A clock with timers: `LoopClock`, or `headwater.testing.ManualClock`."""

    def call_later(self, delay: float, callback: Callable[[], Any]) -> Timer:
        """Call ``callback`` in ``delay`` seconds, in the thread of the running event loop."""
        ...


class LoopClock(SystemClock):
    """The machine's clocks and the running event loop's timers."""

    def call_later(self, delay: float, callback: Callable[[], Any]) -> Timer:
        return asyncio.get_running_loop().call_later(delay, callback)


async def sleep(clock: Timers, seconds: float) -> None:
    """Wait until ``seconds`` have passed on ``clock``."""
    done = asyncio.get_running_loop().create_future()

    def finish() -> None:
        if not done.done():
            done.set_result(None)

    timer = clock.call_later(seconds, finish)
    try:
        await done
    finally:
        timer.cancel()
