"""What signals do to a server process, from before its data is read until its end.

    SIGTERM, SIGINT     end the server cleanly; while it starts, by `StopRequested` in the main thread
    SIGHUP, SIGUSR1     the log file is opened again
    SIGUSR2, SIGALRM    nothing

Source: Redis, server.c, setupSignalHandlers; logrotate and systemd send SIGHUP, nginx's tools SIGUSR1.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

STOPPING = (signal.SIGTERM, signal.SIGINT)
REOPENING = (signal.SIGHUP, signal.SIGUSR1)
IGNORED = (signal.SIGUSR2, signal.SIGALRM)


class StopRequested(BaseException):
    """The server is to end while it starts. Not an `Exception`: nothing may go on after it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class Signals:
    """The signals of this process. To be made and used in the main thread.

    ``reopen`` is called with the name of the signal that asks for the log file to be opened again.
    """

    def __init__(self, *, reopen: Callable[[str], None]) -> None:
        self._reopen = reopen

    def install(self) -> None:
        """The server starts: a signal that ends it raises `StopRequested` where the start is."""
        for number in STOPPING:
            signal.signal(number, _interrupt)
        for number in REOPENING:
            signal.signal(number, self._on_reopen)
        for number in IGNORED:
            signal.signal(number, signal.SIG_IGN)

    def serve(self, loop: asyncio.AbstractEventLoop, *, stop: Callable[[str], None]) -> None:
        """The server runs: the loop calls ``stop`` with the signal's name, or opens the log again."""
        for number in REOPENING:
            loop.add_signal_handler(number, self._reopen, number.name)
        for number in STOPPING:
            loop.add_signal_handler(number, stop, number.name)

    def ignore(self) -> None:
        """The start was broken off: the rest of the end is not."""
        for number in (*STOPPING, *REOPENING):
            signal.signal(number, signal.SIG_IGN)

    def finish(self, loop: asyncio.AbstractEventLoop) -> None:
        """The server has ended: what does not end a process must not do so in its last moments."""
        signal.pthread_sigmask(signal.SIG_BLOCK, REOPENING)
        for number in REOPENING:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, REOPENING)

    def _on_reopen(self, number: int, _frame: FrameType | None) -> None:
        self._reopen(signal.Signals(number).name)


def _interrupt(number: int, _frame: FrameType | None) -> None:
    raise StopRequested(signal.Signals(number).name)
