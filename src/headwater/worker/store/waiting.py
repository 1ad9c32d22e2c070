"""Waiting in an event loop for a condition, or for tasks to end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from headwater.worker.store.clocks import Timers


class Changes:
    """Wakes tasks that wait for a condition when something has changed.

    `notify` is called for each message, so it costs almost nothing while no task waits.
    """

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []

    def notify(self) -> None:
        """Check the conditions again, because something has changed."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for one in waiting:
                if not one.done():
                    one.set_result(None)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until ``condition`` is true."""
        while not condition():
            one = asyncio.get_running_loop().create_future()
            self._waiting.append(one)
            await one


async def within(
    clock: Timers,
    seconds: float,
    work: Coroutine[Any, Any, Any],
    hurry: asyncio.Event | None = None,
) -> bool:
    """Run ``work`` and return whether it ended within ``seconds`` and before ``hurry`` was set. Otherwise ``work``
    is cancelled."""
    task = asyncio.ensure_future(work)
    timer = clock.call_later(max(0.0, seconds), task.cancel)
    waiting = [task] if hurry is None else [task, asyncio.ensure_future(hurry.wait())]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        timer.cancel()
        for one in waiting:
            one.cancel()
    await asyncio.wait([task])
    if task.cancelled():
        return False
    task.result()
    return True


def cancelled() -> bool:
    """Return whether the current task was cancelled, even if a library replaced the cancellation with an error."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


AGAIN_SECONDS = 1.0
CANCELLATIONS = 3
"""Number of ignored cancellations after which a task is abandoned: it may run a handler that catches them."""


async def ended(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Wait until these tasks, which were cancelled, have ended or have ignored `CANCELLATIONS`.

    The cancellation is repeated every `AGAIN_SECONDS`, because a library that is closing a connection may replace it
    with an error.
    """
    waiting = set(tasks)
    for _ in range(CANCELLATIONS):
        if not waiting:
            return
        _done, waiting = await asyncio.wait(waiting, timeout=AGAIN_SECONDS)
        for task in waiting:
            task.cancel()
