"""Progress of a long command, on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

_SECONDS = 1.0
"""How often it is shown; nothing is shown of what takes less."""


def progress() -> Callable[[str, int, int], None]:
    """Return a function that shows what is done and how much of it. Without a terminal it shows nothing."""
    if not sys.stderr.isatty():
        return lambda _what, _done, _total: None
    shown = time.monotonic()

    def show_progress(what: str, done: int, total: int) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - shown >= _SECONDS:
            shown = now
            print(f"\r{done:,} of {total:,} {what}\x1b[K", end="", file=sys.stderr, flush=True)
        if done >= total:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    return show_progress
