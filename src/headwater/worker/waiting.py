"""Waiting inside one event loop for something to become true, or for tasks to end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any


class Changes:
    """Wakes those who wait for a condition whenever something changed.

    `notify` costs next to nothing while nobody waits, which is what a message costs.
    """

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []

    def notify(self) -> None:
        """Something changed: conditions are looked at again."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for one in waiting:
                if not one.done():
                    one.set_result(None)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Return when ``condition`` is true."""
        while not condition():
            one = asyncio.get_running_loop().create_future()
            self._waiting.append(one)
            await one


def cancelled() -> bool:
    """Whether the current task was cancelled, even if a library lost that in an error of its own."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


AGAIN_SECONDS = 1.0
CANCELLATIONS = 3
"""What ignores so many, such as a handler that catches them, is left behind."""


async def ended(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Return when these tasks, which were cancelled, have ended, or ignored `CANCELLATIONS`.

    A cancellation that arrives while a library closes a connection can be lost in the error of that;
    it is repeated every `AGAIN_SECONDS`.
    """
    waiting = set(tasks)
    for _ in range(CANCELLATIONS):
        if not waiting:
            return
        _done, waiting = await asyncio.wait(waiting, timeout=AGAIN_SECONDS)
        for task in waiting:
            task.cancel()
