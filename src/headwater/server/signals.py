"""Signal handling of a server process, from before it reads its data until it exits.

    SIGTERM, SIGINT     stop the server cleanly; during the start they raise `StopRequested`
    SIGHUP, SIGUSR1     reopen the log file
    SIGUSR2, SIGALRM    ignored

Source: Redis, server.c, setupSignalHandlers; logrotate and systemd send SIGHUP, nginx's tools SIGUSR1.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from types import FrameType

STOPPING = (signal.SIGTERM, signal.SIGINT)
REOPENING = (signal.SIGHUP, signal.SIGUSR1)
IGNORED = (signal.SIGUSR2, signal.SIGALRM)


class StopRequested(BaseException):
    """Raised in the main thread to stop a server during its start, with the signal's name. Not an `Exception`: none handles it."""


class Signals:
    """The signal handlers of this process. Create and use it in the main thread.

    ``reopen`` is called with the name of the signal that requests to reopen the log file.
    """

    def __init__(self, *, reopen: Callable[[str], None]) -> None:
        self._reopen = reopen
        self._stop_requested = ""
        self._raised = False  # if true, another `StopRequested` would interrupt the cleanup
        self._print_unraisable = sys.unraisablehook

    def install(self) -> None:
        """Install the handlers for the start: a signal that stops the server raises `StopRequested`."""
        sys.unraisablehook = self._on_unraisable
        for number in STOPPING:
            signal.signal(number, self._interrupt)
        for number in REOPENING:
            signal.signal(number, self._on_reopen)
        for number in IGNORED:
            signal.signal(number, signal.SIG_IGN)

    def serve(self, loop: asyncio.AbstractEventLoop, *, stop: Callable[[str], None]) -> None:
        """Install the handlers for the running server: ``loop`` calls ``stop`` with the signal's
        name, or reopens the log.

        Raises `StopRequested` if a signal arrived during the start and was lost: Python drops an exception of a
        handler within a finalizer or a weak reference's callback, and an import runs such callbacks.
        """
        sys.unraisablehook = self._print_unraisable
        for number in REOPENING:
            loop.add_signal_handler(number, self._reopen, number.name)
        for number in STOPPING:
            loop.add_signal_handler(number, stop, number.name)
        if self._stop_requested:
            raise StopRequested(self._stop_requested)

    def ignore(self) -> None:
        """Ignore all signals after an interrupted start, so that the cleanup is not interrupted too."""
        sys.unraisablehook = self._print_unraisable
        for number in (*STOPPING, *REOPENING):
            signal.signal(number, signal.SIG_IGN)

    def finish(self, loop: asyncio.AbstractEventLoop) -> None:
        """Ignore all signals after the server has stopped. By default they would change the exit status, and
        asyncio prints a traceback if one arrives while a loop closes."""
        signal.pthread_sigmask(signal.SIG_BLOCK, (*STOPPING, *REOPENING))
        for number in (*STOPPING, *REOPENING):
            loop.remove_signal_handler(number)
        self.ignore()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (*STOPPING, *REOPENING))

    def _on_reopen(self, number: int, _frame: FrameType | None) -> None:
        self._reopen(signal.Signals(number).name)

    def _interrupt(self, number: int, _frame: FrameType | None) -> None:
        self._stop_requested = signal.Signals(number).name
        if not self._raised:
            self._raised = True
            raise StopRequested(self._stop_requested)

    def _on_unraisable(self, dropped: sys.UnraisableHookArgs) -> None:
        """Print an exception raised in a finalizer, except `StopRequested`, which `serve` or the next signal raises again."""
        if isinstance(dropped.exc_value, StopRequested):
            self._raised = False
        else:
            self._print_unraisable(dropped)
