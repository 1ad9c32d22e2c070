"""A driver process that a campaign controls, with all processes that it starts."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from tests.jvm import submit_options
from tests.processes import command_line, session, stat
from tests.spark.chaos.driver_options import DriverOptions, Victim, strike

ROOT = Path(__file__).resolve().parents[3]

PATIENCE_SECONDS = 400.0
"""For the start of a session, or the rest of a stream: seconds, or minutes on a busy machine."""


class DriverLost(AssertionError):
    """A driver did not do what was expected; the text contains its output."""


class Driver:
    """A driver process, from its start to its end."""

    def __init__(self, options: DriverOptions) -> None:
        self.options = options
        self.failed: list[str] = []
        """The errors that ended its queries."""
        self._errors = (options.place / f"driver-{time.time_ns()}.log").open("w+")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.chaos.driver", options.as_text()],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=os.environ
            | {
                "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
                "SPARK_SUBMIT_OPTS": submit_options(),
            },
            start_new_session=True,
        )
        self._said: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        assert self._process.stdout is not None
        threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True).start()
        self.jvm = 0

    @property
    def pid(self) -> int:
        return self._process.pid

    def await_up(self) -> None:
        """Wait until its session has started."""
        self.jvm = int(self._await("up")["up"])

    def strike(self, victim: Victim) -> None:
        """Kill one or both of its processes; the other one notices, and ends."""
        strike(victim, jvm=self.jvm, python=self.pid)
        self.await_end()

    def await_end(self) -> int:
        """Wait until the Python process has ended; return its exit status."""
        try:
            return self._process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            raise DriverLost(f"the driver did not end\n{self.errors()}") from None

    def finish(self) -> int:
        """Let it read the remaining entries and exit; return how many of its tasks had failed."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write("finish\n")
            self._process.stdin.flush()
        failed = int(self._await("done")["failed_tasks"])
        self.await_end()
        return failed

    def said(self) -> None:
        """Process its output so far."""
        with suppress(queue.Empty):
            while True:
                self._take(self._said.get_nowait())

    def members(self, *words: str) -> list[int]:
        """Return the processes of its session whose command line contains one of ``words``."""
        return [pid for pid in session(self.pid) if any(w in command_line(pid) for w in words)]

    def running_workers(self) -> list[int]:
        """Return the Python processes that run tasks, which pyspark.worker's daemon has forked."""
        daemons = self.members("-m pyspark.daemon pyspark.worker")
        parents = set(map(str, daemons))
        return [pid for pid in daemons if parents & set(stat(pid)[1:2])]

    def planners(self) -> list[int]:
        """Return the Python processes in which its queries' sources plan."""
        return self.members("python_streaming_source_runner")

    def clear(self) -> int:
        """Kill its remaining processes; return how many there were."""
        left = session(self.pid)
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        self._errors.close()
        return len(left)

    def errors(self) -> str:
        """Return the error that ended its last query, and the end of its standard error."""
        self._errors.flush()
        text = Path(self._errors.name).read_text(errors="replace")[-2000:]
        return "\n".join([*self.failed[-1:], text])

    # --- internals --------------------------------------------------------------------------------

    def _listen(self, output: TextIO) -> None:
        with output:
            for line in output:
                with suppress(ValueError):
                    self._said.put(json.loads(line))
        self._said.put(None)

    def _await(self, what: str) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                said = self._said.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise DriverLost(f"the driver never said {what!r}\n{self.errors()}") from None
            self._take(said)
            if said is not None and what in said:
                return said

    def _take(self, said: dict[str, Any] | None) -> None:
        if said is None:
            raise DriverLost(f"the driver ended early\n{self.errors()}")
        if "failed" in said:
            self.failed.append(said["failed"])


def busy(pid: int) -> bool:
    """Return whether one of the process's threads is running at this moment."""
    with suppress(OSError):
        threads = [thread.name for thread in Path(f"/proc/{pid}/task").iterdir()]
        return any(stat(f"{pid}/task/{thread}")[:1] == ["R"] for thread in threads)
    return False
