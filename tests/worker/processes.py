"""Worker processes that a test starts and ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.processes import children, command_line, with_variable

ROOT = Path(__file__).resolve().parent.parent.parent

ONLY_SUSPECTS = "--suspects only"

SHOP = "tests.worker.shop:app"

MARK = "HEADWATER_TEST_WORKER"
"""Name of the environment variable that marks a worker's processes."""


class WorkerProcess:
    """A process of ``headwater.worker.process.main``, or ``headwater work`` with its children."""

    def __init__(
        self,
        command: list[str],
        *,
        url: str,
        environment: dict[str, str],
        directory: Path = ROOT,
    ) -> None:
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed by end()
        self._mark = uuid.uuid4().hex
        self.process = subprocess.Popen(
            command,
            cwd=directory,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self.errors,
            env={**os.environ, "SHOP_URL": url, MARK: self._mark, **environment},
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self, seconds: float = 40) -> int:
        """The exit status: negative for a signal."""
        return self.process.wait(seconds)

    def log(self) -> str:
        # Not seek and read: the process writes at the offset of the same open file.
        descriptor = self.errors.fileno()
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode(errors="replace")

    def end(self) -> None:
        """Kill the process and everything it started, including processes that were reparented since.

        The children would stop by themselves. But the next test empties the store, and they would create
        their group again there, with the ``claim_after`` of this test.
        """
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        while left := with_variable(MARK, self._mark):
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.001)
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.errors.close()


@contextmanager
def _ended(worker: WorkerProcess) -> Iterator[None]:
    """End the worker after the block. If the test fails, print the worker's log."""
    try:
        yield
    except BaseException:
        sys.stderr.write(worker.log())
        raise
    finally:
        worker.end()


@contextmanager
def one_worker(url: str, *, target: str = SHOP, **environment: str) -> Iterator[WorkerProcess]:
    """A worker process without a supervisor."""
    command = [sys.executable, "-m", "headwater.worker.process.main", target]
    worker = WorkerProcess(command, url=url, environment=environment)
    with _ended(worker):
        yield worker


@contextmanager
def supervised(
    url: str, *arguments: str, target: str = SHOP, **environment: str
) -> Iterator[WorkerProcess]:
    """``headwater work`` and its children."""
    command = [sys.executable, "-m", "headwater.cli.main", "work", target, *arguments]
    parent = WorkerProcess(command, url=url, environment=environment)
    with _ended(parent):
        yield parent


def workers_of(parent: int) -> list[int]:
    """The worker processes of ``headwater work``, without the one for suspected poison messages."""
    return [
        pid
        for pid in children(parent)
        if "headwater.worker.process.main" in (line := command_line(pid))
        and ONLY_SUSPECTS not in line
    ]


def quarantine_of(parent: int) -> list[int]:
    """The process of ``headwater work`` for suspected poison messages."""
    return [pid for pid in children(parent) if ONLY_SUSPECTS in command_line(pid)]
