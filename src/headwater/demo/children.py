"""The demo's child processes: each is ended, whatever happens.

Rule 1. A child leads a process group of its own, so that Ctrl-C reaches the demo alone and ending
        the group also ends what the child started (Spark's Java).
Rule 2. Leaving `Children` ends every child, newest first: SIGCONT and SIGTERM, then SIGKILL.
Rule 3. While it does so Ctrl-C is not heard: half a cleaning is none. For the same reason only the
        first Ctrl-C counts, and one that comes while a child starts waits until the child is known.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from headwater.errors import HeadwaterError

GRACE_SECONDS = 15.0
"""How long a child may take to end by itself; Spark needs a few seconds."""


class ChildFailed(HeadwaterError):
    """A child process ended, or did not say in time what it had to say."""


class Child:
    """One process, its output in a file."""

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
        """What it printed so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def line_with(self, words: str, *, within: float) -> str:
        """The first line of its output that holds ``words``, waited for.

        Raises `ChildFailed`, with the last lines it printed, when it ends or the time does.
        """
        deadline = time.monotonic() + within
        while True:
            ended = not self.running  # before reading: what it printed last must be seen
            for line in self.output().splitlines():
                if words in line:
                    return line
            if ended or time.monotonic() > deadline:
                raise self.failure(f"did not print {words!r} within {within:g} seconds")
            time.sleep(0.02)

    def lines_with(self, words: str, *, within: float) -> Iterator[str]:
        """The lines of its output that hold ``words``, as they come, until it ends.

        Raises `ChildFailed` when it does not end in time.
        """
        deadline, told = time.monotonic() + within, 0
        while True:
            ended = not self.running  # before reading, as above
            whole = self.output().rpartition("\n")[0].splitlines()
            found = [line for line in whole if words in line]
            yield from found[told:]
            told = len(found)
            if ended:
                return
            if time.monotonic() > deadline:
                raise self.failure(f"did not end within {within:g} seconds")
            time.sleep(0.1)

    def wait(self, *, within: float) -> int:
        """Its exit status, waited for; `ChildFailed` when it does not end in time."""
        try:
            return self.process.wait(within)
        except subprocess.TimeoutExpired:
            raise self.failure(f"did not end within {within:g} seconds") from None

    def failure(self, what: str) -> ChildFailed:
        """The error that says ``what`` went wrong and quotes the last lines of the output."""
        if not self.running:
            what += f" (exit status {self.process.returncode})"
        last = "\n".join(f"  {line}" for line in self.output().splitlines()[-15:])
        return ChildFailed(f"{self.name} {what}. It printed last:\n{last}")

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process itself; nothing when it has ended."""
        if self.running:
            self.process.send_signal(number)

    def send_all(self, number: signal.Signals) -> None:
        """Send a signal to everything the child started; nothing when there is nothing left."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def end(self, *, within: float = GRACE_SECONDS) -> None:
        """End it and everything it started."""
        if self.running:
            self.send_all(signal.SIGCONT)  # a stopped process hears no SIGTERM
            self.send(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(within)
        self.send_all(signal.SIGKILL)
        self.process.wait()


class Children:
    """Starts child processes and ends them all when it is left."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._children: list[Child] = []
        self.spare: set[str] = set()
        """Names of children that are left running: `--keep`."""

    def headwater(self, name: str, *arguments: str, **env: str) -> Child:
        """Start ``headwater ARGUMENTS`` with this very Python."""
        return self.start(name, [sys.executable, "-m", "headwater", *arguments], **env)

    def start(self, name: str, arguments: list[str], **env: str) -> Child:
        """Start a process called ``name``; its output goes to ``NAME.log``."""
        self._logs.mkdir(parents=True, exist_ok=True)
        with interrupts_put_off():
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
        with deaf_to_interrupts():
            for child in reversed(self._children):
                if child.name not in self.spare:
                    child.end()


@contextmanager
def deaf_to_interrupts() -> Iterator[None]:
    """Ignore Ctrl-C and SIGTERM inside the block."""
    heard = {number: signal.signal(number, signal.SIG_IGN) for number in _ENDINGS}
    try:
        yield
    finally:
        for number, handler in heard.items():
            signal.signal(number, handler)


@contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Inside the block SIGTERM and SIGHUP end the demo as Ctrl-C does, cleaning included; the first
    of them is heard, and no other."""

    def interrupt(_number: int, _frame: object) -> None:
        for number in _ENDINGS:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    heard = {number: signal.signal(number, interrupt) for number in _ENDINGS}
    try:
        yield
    finally:
        for number, handler in heard.items():
            signal.signal(number, handler)


@contextmanager
def interrupts_put_off() -> Iterator[None]:
    """What arrives inside the block is heard behind it."""
    arrived: list[int] = []
    heard = {n: signal.signal(n, lambda number, _frame: arrived.append(number)) for n in _ENDINGS}
    try:
        yield
    finally:
        for number, handler in heard.items():
            signal.signal(number, handler)
        if arrived:
            signal.raise_signal(arrived[0])


_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
