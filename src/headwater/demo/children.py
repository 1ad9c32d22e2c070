"""Starts the demo's child processes, and ends every child, also after an error.

Rule 1. A child leads its own process group, so that only the demo receives Ctrl-C, and ending the group
        also ends the processes that the child started (Spark's Java).
Rule 2. Leaving `Children` ends every child not in `kept`, newest first: SIGCONT and SIGTERM, then SIGKILL.
Rule 3. Ctrl-C is ignored during this cleanup, so that the cleanup always completes. For the same reason only
        the first Ctrl-C counts, and a Ctrl-C that arrives while a child starts is delayed until the child
        is registered.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from headwater.errors import HeadwaterError

GRACE_SECONDS = 15.0
"""Maximum time for a child to end after SIGTERM, in seconds. Spark needs a few."""


class ChildFailed(HeadwaterError):
    """A child process ended too early, or did not print a line, reach a state or end in time."""


class Child:
    """One process, with its output in a file."""

    def __init__(self, name: str, arguments: list[str], log: Path, env: dict[str, str]) -> None:
        self.name = name
        self.log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **env},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def output(self) -> str:
        """Return the output so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def line_with(self, words: str, *, within: float) -> str:
        """Wait for a line of the output that contains ``words``, and return it.

        Raises `ChildFailed`, with the last lines of the output, if the process ends first or the line is not
        printed within ``within`` seconds.
        """
        with suppress(ChildFailed):  # its message would be that the process did not end
            for line in self.lines_with(words, within=within):
                return line
        raise self.failure(f"did not print {words!r} within {within:g} seconds")

    def lines_with(self, words: str, *, within: float) -> Iterator[str]:
        """Yield the lines of the output that contain ``words``, as they arrive, until the process ends.

        Raises `ChildFailed` if the process does not end within ``within`` seconds.
        """
        deadline, yielded = time.monotonic() + within, 0
        while True:
            ended = not self.running  # read before the output, so that no line is missed
            whole = self.output().rpartition("\n")[0].splitlines()
            found = [line for line in whole if words in line]
            yield from found[yielded:]
            yielded = len(found)
            if ended:
                return
            if time.monotonic() > deadline:
                raise self.failure(f"did not end within {within:g} seconds")
            time.sleep(0.02)

    def wait(self, *, within: float) -> int:
        """Wait until the process ends, and return its exit status. Raises `ChildFailed` if it does not end within
        ``within`` seconds."""
        try:
            return self.process.wait(within)
        except subprocess.TimeoutExpired:
            raise self.failure(f"did not end within {within:g} seconds") from None

    def failure(self, what: str) -> ChildFailed:
        """Return an error with ``what``, which describes the failure, and the last lines of the output."""
        if not self.running:
            what += f" (exit status {self.process.returncode})"
        last = "\n".join(f"  {line}" for line in self.output().splitlines()[-15:])
        return ChildFailed(f"{self.name} {what}. Its last output:\n{last}")

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process itself; do nothing if it has ended."""
        if self.running:
            self.process.send_signal(number)

    def send_all(self, number: signal.Signals) -> None:
        """Send a signal to the process group; do nothing if the group has ended."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def end(self, *, within: float = GRACE_SECONDS) -> None:
        """End the process and all processes that it started."""
        if self.running:
            self.send_all(signal.SIGCONT)  # a stopped process does not handle SIGTERM
            self.send(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(within)
        self.send_all(signal.SIGKILL)
        self.process.wait()


class Children:
    """Starts child processes, and ends them all on exit from its ``with`` block."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._children: list[Child] = []
        self.kept: set[str] = set()
        """Names of the children that keep running after the block (`--keep`)."""

    def headwater(self, name: str, *arguments: str, **env: str) -> Child:
        """Start ``headwater ARGUMENTS`` with the running Python."""
        return self.start(name, [sys.executable, "-m", "headwater", *arguments], **env)

    def start(self, name: str, arguments: list[str], **env: str) -> Child:
        """Start a process, with its output in ``NAME.log`` and the variables ``env`` in its environment."""
        self._logs.mkdir(parents=True, exist_ok=True)
        with delaying_interrupts():
            child = Child(name, arguments, self._logs / f"{name}.log", env)
            self._children.append(child)
        return child

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        with handling_interrupts(signal.SIG_IGN):
            for child in reversed(self._children):
                if child.name not in self.kept:
                    child.end()


@contextmanager
def handling_interrupts(handler: Callable[[int, Any], object] | signal.Handlers) -> Iterator[None]:
    """Handle SIGINT, SIGTERM and SIGHUP with ``handler`` inside the block."""
    previous = {number: signal.signal(number, handler) for number in _STOP_SIGNALS}
    try:
        yield
    finally:
        for number, before in previous.items():
            signal.signal(number, before)


@contextmanager
def interrupted_by_signals() -> Iterator[Callable[[], None]]:
    """Make SIGTERM and SIGHUP end the demo inside the block as Ctrl-C does, with cleanup. Signals after the
    first are ignored.

    The value is a function that raises `KeyboardInterrupt` if a signal has arrived. Python loses an
    interrupt that arrives within a finalizer or a weak reference's callback (each import has one), and
    a library may raise another error in its place. Therefore the end of the block also checks.
    """
    arrived: list[int] = []

    def interrupt(number: int, _frame: object) -> None:
        for stopping in _STOP_SIGNALS:
            signal.signal(stopping, signal.SIG_IGN)
        arrived.append(number)
        raise KeyboardInterrupt

    def look() -> None:
        if arrived:
            raise KeyboardInterrupt

    try:
        with handling_interrupts(interrupt):
            yield look
    finally:
        look()


@contextmanager
def delaying_interrupts() -> Iterator[None]:
    """Delay signals that arrive inside the block until the block ends. Only the first is then raised."""
    arrived: list[int] = []
    try:
        with handling_interrupts(lambda number, _frame: arrived.append(number)):
            yield
    finally:
        if arrived:
            signal.raise_signal(arrived[0])


_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
