"""One timer for each pair of event loop and embedded store; it ticks the store at its deadlines.

Rule 1. The timer runs as long as a connection of its loop is open.
Rule 2. Any thread may bring a deadline forward; only the loop's thread sets the timer.
"""

from __future__ import annotations

import asyncio

from headwater.client.embedded_store import SHORTEST_PAUSE_S, EmbeddedStore
from headwater.client.reentrancy import REENTRANCY_GUARD


class LoopTimer:
    """Ticks a store at its deadlines, from an event loop. `timer_of` makes one for each loop and store."""

    def __init__(self, store: EmbeddedStore, loop: asyncio.AbstractEventLoop) -> None:
        self._store = store
        self.loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self.writers: set[int] = set()
        """Identities of the open connections. A connection that is never closed removes itself when it is
        garbage collected."""

    def start(self, writer: object) -> None:
        """Count ``writer`` as an open connection and set the timer."""
        self.writers.add(id(writer))
        with REENTRANCY_GUARD, self._store.node.lock:
            self._store.add_sleeper(self)
        self._set()

    def stop(self, writer: object) -> None:
        """Remove ``writer``, which was closed; without open connections the timer is off."""
        self.writers.discard(id(writer))
        if not self.writers:
            self._set()

    def forget(self, writer: object) -> None:
        """Remove ``writer``, which was garbage collected without being closed. Any thread may call this
        at any time."""
        self.writers.discard(id(writer))

    def wake(self) -> None:
        """Set the timer again, because the next deadline is earlier than before. Called under the node's
        lock, in any thread."""
        if runs_here(self.loop):
            self._set()
            return
        try:
            self.loop.call_soon_threadsafe(self._set)
        except RuntimeError:  # the loop is closed, its connections are not
            self._turn_off()

    def _set(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        store = self._store
        if not store.here:
            return
        with REENTRANCY_GUARD, store.node.lock:
            if not self.writers or store.closed:
                self._turn_off()
                return
            pause = store.pause()
        if pause is not None:
            self._timer = self.loop.call_later(max(pause, SHORTEST_PAUSE_S), self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._store.tick()
        self._set()

    def _turn_off(self) -> None:
        self._store.remove_sleeper(self)
        if self._store.loop_timers.get(id(self.loop)) is self:
            del self._store.loop_timers[id(self.loop)]


def timer_of(store: EmbeddedStore) -> LoopTimer:
    """Return the timer of ``store`` in the running loop; make it if there is none."""
    loop = asyncio.get_running_loop()
    timer: LoopTimer | None = store.loop_timers.get(id(loop))
    if timer is None or timer.loop is not loop:
        timer = store.loop_timers[id(loop)] = LoopTimer(store, loop)
    return timer


def runs_here(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether ``loop`` is running in the caller's thread."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
