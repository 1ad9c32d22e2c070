"""A fixed number of tasks that take entries from one buffer: no task is made for a message."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from headwater.worker.held import Held, State
from headwater.worker.signals import Changes

TURNS = 32
"""Messages that one task handles before others get their turn, when no handler ever waits."""


class Pool:
    """``size`` tasks. ``run`` handles one entry and never raises but to be cancelled; ``idle`` is
    called whenever a task finds nothing to do."""

    def __init__(
        self,
        size: int,
        run: Callable[[Held], Awaitable[None]],
        idle: Callable[[], None],
        changes: Changes,
    ) -> None:
        self._size = size
        self._run = run
        self._idle = idle
        self._changes = changes
        self._buffer: asyncio.Queue[Held] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self.running: set[Held] = set()

    def start(self, name: str) -> list[asyncio.Task[None]]:
        """Make the tasks; the caller watches them."""
        self._tasks = [
            asyncio.create_task(self._work(), name=f"{name} handler {number}")
            for number in range(self._size)
        ]
        return self._tasks

    @property
    def hungry(self) -> bool:
        """A task has nothing to do and nothing waits for it."""
        return self._buffer.empty() and len(self.running) < self._size

    def put(self, held: Held) -> None:
        """Have an entry handled when its turn comes."""
        self._buffer.put_nowait(held)

    def empty(self) -> list[Held]:
        """Take back all that was not begun."""
        taken = []
        while not self._buffer.empty():
            held = self._buffer.get_nowait()
            if held.state is State.BUFFERED:
                taken.append(held)
        return taken

    async def _work(self) -> None:
        turns = 0
        while True:
            if self._buffer.empty():
                self._idle()
            held = await self._buffer.get()
            if held.state is not State.BUFFERED:
                continue  # lost, or handed back, while it waited here
            held.state = State.RUNNING
            self.running.add(held)
            try:
                await self._run(held)
            finally:
                self.running.discard(held)
                self._changes.notify()
            turns += 1
            if turns % TURNS == 0:
                await asyncio.sleep(0)
