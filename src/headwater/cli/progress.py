"""Progress of long commands: a line on the terminal that is updated every second, and a note on Ctrl-C that says
what was done."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import Final, Self

_SECONDS: Final = 1.0
"""Interval between updates, in seconds. A command that takes less time shows no progress."""


class Busy:
    """Shows progress on standard error, if it is a terminal, within a ``with`` block, in which nothing else may be
    printed. Call the object to report progress. Between calls, the elapsed seconds are updated."""

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
        self._ended.set()
        if self._shown is not None:
            self._shown.join()
        if isinstance(error, KeyboardInterrupt) and not self._silent:
            error.add_note(self.text())

    def __call__(self, what: str, done: int, total: int) -> None:
        """Report that ``done`` of ``total``, or of ``done`` if that is more, are done. ``what`` says what was done."""
        self._what, self._done, self._total = what, done, max(total, done)

    def add(self, done: int) -> None:
        """Add ``done`` to the amount that is done."""
        self._done += done

    def text(self) -> str:
        """Return the progress as text, such as ``20 of 100 checked, 3 s``."""
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
