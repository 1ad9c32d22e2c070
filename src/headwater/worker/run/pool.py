"""A fixed number of handler slots: tasks that take entries from one buffer.

Rule 1. The number of tasks is fixed: no task is created for a message.
Rule 2. A slot ends only if it is dismissed. Handlers run in the slot's task, so their code can cancel it. Such a
        cancellation is undone (see `execute`).
Rule 3. An entry that waits for longer than `Pool.patience` while every slot is busy is handed back, so that it
        does not wait here while another process is idle. After that, none is read ahead until a handler has ended.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from headwater.worker.declare.owned import RUNNING, WAITING, Owned
from headwater.worker.leases.freshness import Freshness
from headwater.worker.store.clocks import Timer, Timers
from headwater.worker.store.waiting import Changes

TURNS = 32
"""Number of messages that a slot handles before it yields to other tasks, if its handlers never wait."""


HOLD_SECONDS = 0.95
"""Seconds for which an entry waits for a slot before another process has it. They include `HandBack.look_s`, the
time until that process looks for entries."""

CHECK_SECONDS = 0.1
"""Interval of checks whether every slot is busy, while entries have waited for too long, in seconds."""


class HandBack(NamedTuple):
    """The clock and the functions by which a pool hands back entries that wait for too long."""

    clock: Timers
    look_s: Callable[[], float]
    """Function that returns the maximum seconds until another process looks for entries that were handed back."""
    hand_back: Callable[[Sequence[Owned]], None]


class Slot(asyncio.Task[None]):
    """The task of a handler slot. It distinguishes its cancellations.

    The framework dismisses the task, and ``asyncio.run`` cancels it after the loop has stopped. Any other
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

    ``run`` handles one entry that a slot takes, or a batch in a subclass. It raises only if its slot is dismissed.
    ``idle`` is called whenever a slot has nothing to do.
    """

    def __init__(
        self,
        size: int,
        run: Callable[[Any], Awaitable[None]],
        idle: Callable[[], None],
        changes: Changes,
        fresh: Freshness,
        hold: HandBack | None = None,
    ) -> None:
        self.fresh = fresh
        self._size = size
        self._run = run
        self._idle = idle
        self._changes = changes
        self._buffer: deque[Owned] = deque()
        self._arrivals: deque[asyncio.Future[None]] = deque()
        """One future for each slot that waits for an entry."""
        self._slots: list[Slot] = []
        self.running: set[Owned] = set()
        self.overfull = False
        """True if entries were handed back because they had to wait, and no handler has ended since."""
        self._hold = hold
        self._timer: Timer | None = None
        self._handed_back: dict[bytes, float] = {}
        """Ids of the entries that were handed back last → time of their arrival, in case they come again."""

    def start(self, name: str) -> list[asyncio.Task[None]]:
        """Start the slots and return their tasks, which the caller must watch."""
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
        if self._timer is not None:
            self._timer.cancel()

    @property
    def capacity(self) -> int:
        """Number of entries that run or could start immediately."""
        return self._size

    @property
    def busy(self) -> bool:
        """True if every slot runs a handler."""
        return len(self.running) >= self._size

    @property
    def hungry(self) -> bool:
        """True if a slot has nothing to do and no entry waits for a slot."""
        return not self._buffer and len(self.running) < self._size

    @property
    def waiting(self) -> int:
        """Number of entries that wait for a slot."""
        return len(self._buffer)

    @property
    def patience(self) -> float:
        """Seconds for which an entry waits while every slot is busy before it is handed back."""
        return math.inf if self._hold is None else HOLD_SECONDS - self._hold.look_s()

    def offer(self, entries: Sequence[Owned]) -> None:
        """Add entries to the buffer. They are handled in order."""
        self._buffer.extend(entries)
        self._watch(entries)
        for _ in range(min(len(entries), len(self._arrivals))):
            self._wake()

    # --- entries that wait for too long ----------------------------------------------------------

    def _watch(self, entries: Sequence[Owned]) -> None:
        """Check later whether these entries still wait."""
        hold = self._hold
        if hold is not None and entries:
            now, before = hold.clock.monotonic(), self._handed_back
            for owned in entries:
                owned.arrived = before.pop(owned.id, now) if before else now
            if self._timer is None:
                self._timer = hold.clock.call_later(self.patience, self._look)

    def _look(self) -> None:
        """Hand back entries that have waited for too long, if every slot is busy."""
        hold, self._timer = self._hold, None
        assert hold is not None, "`_watch` has set the timer"
        oldest = hold.clock.monotonic() - self.patience
        waiting = [owned for owned in self._buffer if owned.unbegun]
        if self.busy:
            # The clock has a resolution of microseconds.
            late = [owned for owned in waiting if owned.arrived <= oldest + 1e-5]
            if late:
                self._handed_back = {owned.id: owned.arrived for owned in late}
                gone = {*late}
                self._buffer = deque(owned for owned in waiting if owned not in gone)
                self.hand_back(late)
                waiting = [*self._buffer]
        if waiting:
            left = max(CHECK_SECONDS, waiting[0].arrived - oldest)
            self._timer = hold.clock.call_later(left, self._look)

    def hand_back(self, entries: Sequence[Owned]) -> None:
        """Hand back entries that found no slot, and stop reading ahead until a handler has ended."""
        assert self._hold is not None, "then `patience` never ends"
        self.overfull = True
        self._hold.hand_back(entries)

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
            if owned.state is not WAITING:
                continue  # lost, or handed back, while it waited here
            owned.enter(RUNNING)
            owned.task = slot
            self.running.add(owned)
            try:
                await self._run(owned)
            finally:
                owned.task = None
                owned.handled()
                self.running.discard(owned)
                self.overfull = False
                self._changes.notify()
            turns += 1
            if turns % TURNS == 0:
                await asyncio.sleep(0)
