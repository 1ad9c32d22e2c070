"""Guards a turn against code that Python runs in the middle of it: signal handlers and finalizers.

Rule 1. Leaving a turn in the middle would leave the state half changed and the node unusable. A turn
        takes microseconds, so `KeyboardInterrupt` is raised at its end.
Rule 2. A finalizer that the garbage collector runs within a turn must not enter a store. The objects
        that the finalizer closes are closed after the thread has left the store.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

try:
    import _signal  # type: ignore[import-not-found]
except ImportError:  # a Python implementation without this module
    _signal = signal

log = logging.getLogger("headwater.client")

SIGINT = int(signal.SIGINT)

_set = getattr(_signal, "signal", signal.signal)
_get = getattr(_signal, "getsignal", signal.getsignal)
"""`signal.getsignal` without its conversion to an enumeration member. That conversion fails for a handler,
and its error text contains the handler's repr. asyncio's handler refers to a task, whose repr takes
40 us, longer than most turns."""


class _InterruptGuard:
    """In the main thread, delays SIGINT until the end of the block. Does nothing in other threads."""

    def __init__(self) -> None:
        self._handler: Callable[[int, FrameType | None], Any] | None = None
        self._frame: FrameType | None = None
        self._signalled = False

    def __enter__(self) -> None:
        if threading.get_ident() == threading.main_thread().ident and self._handler is None:
            handler = _get(SIGINT)
            if callable(handler):  # SIG_DFL and SIG_IGN are not
                self._handler = handler
                _set(SIGINT, self._note)

    def __exit__(self, *_: object) -> None:
        if self._handler is None or threading.get_ident() != threading.main_thread().ident:
            return
        handler, frame, signalled = self._handler, self._frame, self._signalled
        _set(SIGINT, handler)
        self._handler, self._frame, self._signalled = None, None, False
        if signalled:
            handler(SIGINT, frame)

    def _note(self, _number: int, frame: FrameType | None) -> None:
        self._signalled, self._frame = True, frame


INTERRUPT_GUARD = _InterruptGuard()
"""Used as ``with INTERRUPT_GUARD: node.turn(...)``. It must not be nested."""


class _ReentrancyGuard(threading.local):
    """Counts the stores that this thread has entered, and defers calls until it has left them all."""

    def __init__(self) -> None:
        self.depth = 0
        self.late: list[Callable[[], None]] = []

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *_: object) -> None:
        self.depth -= 1
        while not self.depth and self.late:
            action = self.late.pop(0)
            try:
                action()
            except Exception:
                log.exception("an unused embedded connection or store could not be closed")

    def start_again(self) -> None:
        """Forget the parent's stores, because in a forked child this thread is not within any of them."""
        self.depth = 0
        self.late.clear()


REENTRANCY_GUARD = _ReentrancyGuard()
"""Used as ``with REENTRANCY_GUARD, lock:`` around all code that holds a lock of a store."""


def run_outside(action: Callable[[], None]) -> None:
    """Call ``action`` now, or as soon as this thread has left every store."""
    if REENTRANCY_GUARD.depth:
        REENTRANCY_GUARD.late.append(action)
    else:
        action()


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=REENTRANCY_GUARD.start_again)
