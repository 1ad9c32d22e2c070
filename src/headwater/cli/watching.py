"""``--watch``: shows what a command prints again and again, until Ctrl-C."""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Final

from headwater.common.names import escaped
from headwater.errors import HeadwaterError

SECONDS: Final = 2.0

_HOME, _REST_OF_LINE, _REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"


class _Screen(io.StringIO):
    """What is printed, for the same kind of output as the real one."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


def repeat(show: Callable[[], object], *, pause: Callable[[float], object] = time.sleep) -> None:
    """Call ``show`` and print what it prints, until Ctrl-C. On a terminal each picture replaces the one before in one
    write, so that nothing flickers. An error is a picture too: a store may come back."""
    terminal = sys.stdout.isatty()
    while True:
        screen = _Screen(terminal=terminal)
        with redirect_stdout(screen):
            try:
                show()
            except HeadwaterError as problem:
                print(escaped(f"headwater: {problem}"))
        lines = screen.getvalue().splitlines()
        print(
            _picture(lines) if terminal else "\n".join(lines),
            end="" if terminal else "\n",
            flush=True,
        )
        pause(SECONDS)


def _picture(lines: list[str]) -> str:
    """Return what draws the lines over the last ones; as many as the terminal has."""
    room = (os.get_terminal_size(sys.stdout.fileno()).lines or 24) - 1
    if len(lines) > room:
        lines = [*lines[: room - 1], f"… {len(lines) - room + 1:,} more lines"]
    drawn = "".join(f"{line}{_REST_OF_LINE}\n" for line in lines)
    return f"{_HOME}{drawn}{_REST_OF_SCREEN}"
