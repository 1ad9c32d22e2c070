"""Nothing breaks into a turn: neither Ctrl-C nor the garbage collector.

Rule 1. A turn that is left in its middle would leave the state half changed, and the node could only
        be given up. A turn takes microseconds, so `KeyboardInterrupt` is raised when it is over.
        Only Python's own handler is held back: whoever installed another, asyncio among them, has
        thought about it.
Rule 2. What the garbage collector finds in the middle of a turn is closed after it.
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
except ImportError:  # another Python has no such module
    _signal = signal

log = logging.getLogger("headwater.client")

SIGINT = int(signal.SIGINT)

_set = getattr(_signal, "signal", signal.signal)
_get = getattr(_signal, "getsignal", signal.getsignal)
"""`signal.signal` without its search for the handler in an enumeration, whose error text contains the handler's
repr. asyncio's handler contains a task, and that repr takes longer than most turns: 40 microseconds."""


class _TurnGuard:
    """Holds SIGINT back between enter and exit, in the main thread; elsewhere it does nothing."""

    def __init__(self) -> None:
        self._handler: Callable[[int, FrameType | None], Any] | None = None
        self._frame: FrameType | None = None
        self._signalled = False

    def __enter__(self) -> None:
        if threading.get_ident() == threading.main_thread().ident and self._handler is None:
            handler = _get(SIGINT)
            if callable(handler):  # the system's own ways, to end and to ignore, are numbers
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


TURN_GUARD = _TurnGuard()
"""``with TURN_GUARD: node.turn(...)``; not nested."""


class _Inside(threading.local):
    """Whether this thread is within a store, and what is to be done when it has left it."""

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
                log.exception("what was no longer used could not be closed")

    def start_again(self) -> None:
        """In the child of a fork, this thread is in none of the parent's stores."""
        self.depth = 0
        self.late.clear()


INSIDE = _Inside()
"""``with INSIDE, lock:`` around everything that holds a lock of a store."""


def between_turns(action: Callable[[], None]) -> None:
    """Call ``action`` now, or as soon as this thread is outside of every store."""
    if INSIDE.depth:
        INSIDE.late.append(action)
    else:
        action()


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=INSIDE.start_again)
