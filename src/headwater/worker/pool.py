"""A fixed number of handler slots: tasks that take entries from one buffer.

Rule 1. The number of tasks is fixed: no task is created for a message.
Rule 2. A slot ends only if it is dismissed. Handlers run in the slot's task, so their code can cancel it; such
        a cancellation is undone (see `execute`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from headwater.worker.freshness import Freshness
from headwater.worker.owned import Owned, State
from headwater.worker.waiting import Changes

TURNS = 32
"""How many messages a slot handles before it yields to other tasks, if its handlers never wait."""


class Slot(asyncio.Task[None]):
    """The task of a handler slot. It distinguishes its cancellations.

    The framework dismisses it, and ``asyncio.run`` cancels it after its loop has stopped. Any other
    cancellation comes from a handler's code.
    """

    dismissed = False

    def dismiss(self) -> None:
        """Cancel the current handler, and end."""
        self.dismissed = True
        self.cancel()

    def cancel(self, msg: Any = None) -> bool:
        if not self.get_loop().is_running():
            self.dismissed = True
        return super().cancel(msg)


def dismissed(task: asyncio.Task[Any]) -> bool:
    """Return whether the task is a slot that must end."""
    return isinstance(task, Slot) and task.dismissed


class Pool:
    """``size`` handler slots.

    ``run`` handles what a slot takes, here one entry. It raises only if its slot is dismissed. ``idle`` is
    called whenever a slot has nothing to do.
    """

    def __init__(
        self,
        size: int,
        run: Callable[[Any], Awaitable[None]],
        idle: Callable[[], None],
        changes: Changes,
    ) -> None:
        self._size = size
        self._run = run
        self._idle = idle
        self._changes = changes
        self._buffer: deque[Owned] = deque()
        self._arrivals: deque[asyncio.Future[None]] = deque()
        """Slots that wait for an entry."""
        self._slots: list[Slot] = []
        self.running: set[Owned] = set()
        self.fresh: Freshness
        """Set before `start`."""

    def start(self, name: str) -> list[asyncio.Task[None]]:
        """Start the slots and return their tasks, which the caller watches."""
        loop = asyncio.get_running_loop()
        self._slots = [
            Slot(self._work(), loop=loop, name=f"{name} handler slot {number}")
            for number in range(self._size)
        ]
        return [*self._slots]

    def dismiss(self) -> None:
        """End all slots. Running handlers are cancelled, and their outcomes dropped."""
        for slot in self._slots:
            slot.dismiss()

    @property
    def hungry(self) -> bool:
        """Whether a slot has nothing to do and no entry waits for one."""
        return not self._buffer and len(self.running) < self._size

    def put(self, *entries: Owned) -> None:
        """Add entries to the buffer. They are handled in order."""
        self._buffer.extend(entries)
        for _ in range(min(len(entries), len(self._arrivals))):
            self._wake()

    def empty(self) -> list[Owned]:
        """Empty the buffer, and return the entries whose handler has not begun."""
        taken = [owned for owned in self._buffer if owned.state is State.BUFFERED]
        self._buffer.clear()
        return taken

    def _wake(self) -> None:
        """Wake one slot that waits for an entry."""
        while self._arrivals:
            arrival = self._arrivals.popleft()
            if not arrival.done():
                arrival.set_result(None)
                return

    async def _arrival(self) -> None:
        """Return when an entry waits in the buffer."""
        while not self._buffer:
            arrival = asyncio.get_running_loop().create_future()
            self._arrivals.append(arrival)
            try:
                await arrival
            except asyncio.CancelledError:
                if self._buffer:
                    self._wake()  # this slot may have been woken for the entry
                raise

    async def _work(self) -> None:
        turns, fresh, now = 0, self.fresh, self.fresh.now
        slot = asyncio.current_task()
        assert isinstance(slot, Slot), "start runs this in a Slot"
        while not slot.dismissed:
            if not self._buffer:
                self._idle()
                await self._arrival()
            if now() > fresh.until:
                await fresh.restored()
                continue
            owned = self._buffer.popleft()
            if owned.state is not State.BUFFERED:
                continue  # lost, or handed back, while it waited here
            owned.state = State.RUNNING
            owned.task = slot
            self.running.add(owned)
            try:
                await self._run(owned)
            finally:
                owned.task = None
                self.running.discard(owned)
                self._changes.notify()
            turns += 1
            if turns % TURNS == 0:
                await asyncio.sleep(0)
