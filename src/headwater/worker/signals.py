"""Waiting inside one event loop for something to become true."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


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
