"""The clocks of a worker. Its leases, timeouts and delays use its clock, so that a test can advance them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from headwater.common.clock import Clock, SystemClock


class Timer(Protocol):
    """A timer that can be cancelled, from `Timers.call_later`."""

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


def call_upkeep(clock: Timers, delay: float, callback: Callable[[], Any]) -> Timer:
    """Call ``callback`` in ``delay`` seconds. Use this for work that is merely repeated while nothing happens: a
    test that lets a day pass need not run each repetition."""
    call: Callable[[float, Callable[[], Any]], Timer] = getattr(
        clock, "call_upkeep", clock.call_later
    )
    return call(delay, callback)


async def sleep(clock: Timers, seconds: float, *, upkeep: bool = False) -> None:
    """Wait until ``seconds`` have passed on ``clock``; see `call_upkeep`."""
    done = asyncio.get_running_loop().create_future()

    def finish() -> None:
        if not done.done():
            done.set_result(None)

    timer = call_upkeep(clock, seconds, finish) if upkeep else clock.call_later(seconds, finish)
    try:
        await done
    finally:
        timer.cancel()
