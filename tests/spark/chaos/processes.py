"""A driver under the campaign's hand, with everything that it started."""

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

from tests.processes import command_line, session, stat
from tests.spark.chaos.errands import Errand, Victim, strike

ROOT = Path(__file__).resolve().parents[3]

PATIENCE_SECONDS = 400.0
"""For a session's start, or for the rest of a stream. They take seconds; a busy machine, many."""


class DriverLost(AssertionError):
    """A driver did not do what it was to do; the text is what it said."""


class Driver:
    """One driver, from its start to its death."""

    def __init__(self, errand: Errand) -> None:
        self.errand = errand
        self.failed: list[str] = []
        """What ended its queries."""
        self._errors = (errand.place / f"driver-{time.time_ns()}.log").open("w+")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.chaos.driver", errand.as_text()],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
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
        """Until its session stands."""
        self.jvm = int(self._await("up")["up"])

    def strike(self, victim: Victim) -> None:
        """Kill it, or half of it; the other half notices, and ends."""
        strike(victim, jvm=self.jvm, python=self.pid)
        self.await_end()

    def await_end(self) -> int:
        """Until the Python part has ended, by our hand or its own; its exit status."""
        try:
            return self._process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            raise DriverLost(f"the driver did not end\n{self.errors()}") from None

    def finish(self) -> int:
        """Let it read what there is and leave; how many of its tasks had failed."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write("finish\n")
            self._process.stdin.flush()
        failed = int(self._await("done")["failed_tasks"])
        self.await_end()
        return failed

    def said(self) -> None:
        """Take in what it has said so far."""
        with suppress(queue.Empty):
            while True:
                self._take(self._said.get_nowait())

    def members(self, *words: str) -> list[int]:
        """The processes of its session whose command line has one of ``words``."""
        return [pid for pid in session(self.pid) if any(w in command_line(pid) for w in words)]

    def running_workers(self) -> list[int]:
        """The Python processes that run tasks: those that the daemon of pyspark.worker forked."""
        daemons = self.members("-m pyspark.daemon pyspark.worker")
        parents = set(map(str, daemons))
        return [pid for pid in daemons if parents & set(stat(pid)[1:2])]

    def planners(self) -> list[int]:
        """The Python processes in which the sources of its queries plan."""
        return self.members("python_streaming_source_runner")

    def clear(self) -> int:
        """Kill whatever is left of it; how many processes that were."""
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
        """What ended its last query, and the end of what it said on standard error."""
        self._errors.flush()
        text = Path(self._errors.name).read_text(errors="replace")[-2000:]
        return "\n".join([*self.failed[-1:], text])

    # --- inside -----------------------------------------------------------------------------------

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
    """Whether one of a process's threads computes at this moment."""
    with suppress(OSError):
        threads = [thread.name for thread in Path(f"/proc/{pid}/task").iterdir()]
        return any(stat(f"{pid}/task/{thread}")[:1] == ["R"] for thread in threads)
    return False
