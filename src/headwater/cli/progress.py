"""What a long command is doing: on a terminal as a line that is renewed every second, and after Ctrl-C as its last one."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import Final, Self

_SECONDS: Final = 1.0
"""How often it is shown; nothing is shown of what takes less."""

last: str | None = None
"""What the command that was interrupted had done."""


class Busy:
    """Shows what is done and how much of it, within a ``with`` block, in which nothing else is printed. Call it to say so;
    the seconds go on meanwhile."""

    def __init__(self, what: str, *, silent: bool = False) -> None:
        self._what, self._done, self._total = what, 0, 0
        self._silent = silent
        self._began = time.monotonic()
        self._ended = threading.Event()
        self._shown: threading.Thread | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty() and not self._silent:
            self._shown = threading.Thread(target=self._show, name="progress", daemon=True)
            self._shown.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        global last
        self._ended.set()
        if self._shown is not None:
            self._shown.join()
        if kind is not None and issubclass(kind, KeyboardInterrupt) and not self._silent:
            last = self.text()

    def __call__(self, what: str, done: int, total: int) -> None:
        """Say what is done. More than was expected is all of it."""
        self._what, self._done, self._total = what, done, max(total, done)

    def add(self, done: int) -> None:
        """Say that so much more is done."""
        self._done += done

    def text(self) -> str:
        """Return what is done."""
        of = f" of {self._total:,}" if self._total else ""
        count = f"{self._done:,}{of} " if self._done or self._total else ""
        return f"{count}{self._what}, {time.monotonic() - self._began:.0f} s"

    def _show(self) -> None:
        shown = False
        while not self._ended.wait(_SECONDS):
            shown = True
            print(f"\r{self.text()}\x1b[K", end="", file=sys.stderr, flush=True)
        if shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
