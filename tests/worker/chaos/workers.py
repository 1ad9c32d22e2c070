"""The worker processes of a trial, each behind its own proxy, or all under one supervisor."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, Self

from tests.processes import children
from tests.processes import runs as process_runs
from tests.worker.apps import eventually
from tests.worker.chaos.events import Event
from tests.worker.processes import WorkerProcess, workers_of
from tests.worker.proxy import Proxy, proxy

FLOW: Final = "tests.worker.chaos.flow:app"

POLL_SECONDS: Final = 0.02

KEPT: Final = 200_000
"""Number of characters of a process's log to keep, from its end."""

SLOW = 100_000
"""How many bytes a second a slow link takes."""


class Workers:
    """``size`` workers on the store at ``url``. Dead ones are replaced."""

    def __init__(self, url: str, directory: Path, *, size: int, supervised: bool) -> None:
        self.url = url
        self.directory = directory
        self.size = size
        self.supervised = supervised
        self.events: list[Event] = []
        self.deaths: list[str] = []
        """Unexpected ends of processes that no message explains."""
        self.log: list[str] = []
        """Logs of the processes that ended."""
        self.segfaults = 0
        """Number of processes that a message killed."""
        self.stopped: set[int] = set()
        self.stops: list[float] = []
        """Seconds that each replaced worker took to stop."""
        self._killed: set[int] = set()
        self._behind: dict[Proxy, list[int]] = {}
        """The processes that each proxy has served."""
        self._workers: list[tuple[WorkerProcess, Proxy]] = []
        self._stack = AsyncExitStack()
        self._watcher: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        for _ in range(1 if self.supervised else self.size):
            await self._add()
        self._watcher = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
        for worker, _proxy in self._workers:
            self._end(worker)
        await self._stack.aclose()

    def _end(self, worker: WorkerProcess) -> None:
        self.log.append(f"--- process {worker.pid}\n{worker.log()[-KEPT:]}")
        worker.end()

    async def _add(self, before: Proxy | None = None) -> None:
        found = before
        if found is None:
            found = await self._stack.enter_async_context(proxy(self.url))
        worker = self._launch(found.url)
        self._workers.append((worker, found))
        self._behind.setdefault(found, []).append(worker.pid)

    def _launch(self, url: str) -> WorkerProcess:
        words = ["headwater.worker.process.main", FLOW]
        if self.supervised:
            words = ["headwater.cli.main", "work", FLOW, "--workers", str(self.size)]
        environment = {"CHAOS_URL": url, "CHAOS_RUNS": str(self.directory), **self.environment()}
        return WorkerProcess([sys.executable, "-m", *words], url=url, environment=environment)

    def environment(self) -> dict[str, str]:
        """Environment variables for the next process. A rolling upgrade gives some an older source tree."""
        return {}

    # --- looking ----------------------------------------------------------------------------------

    def pids(self) -> list[int]:
        """The processes that handle messages now, without stopped ones."""
        if self.supervised:
            found = workers_of(self._workers[0][0].pid)
        else:
            found = [worker.pid for worker, _proxy in self._workers]
        return [pid for pid in found if pid not in self.stopped and process_runs(pid)]

    async def _watch(self) -> None:
        """Detect dead processes, since a message may kill its process at any time. Replace them, unless
        the supervisor does."""
        alive: dict[int, float] = {}
        while True:
            if self.supervised:
                alive = self._noticed(alive)
            for one in list(self._workers):
                worker, behind = one
                status = worker.process.poll()
                if status is None:
                    continue
                self._workers.remove(one)
                now = time.monotonic()
                if status == -signal.SIGSEGV:
                    self.segfaults += 1
                    self.events.append(Event("segfault", worker.pid, now - 2 * POLL_SECONDS, now))
                elif status != -signal.SIGKILL:
                    self.deaths.append(
                        f"a worker ended with status {status}: {worker.log()[-800:]}"
                    )
                self._end(worker)
                await self._add(behind)
            await asyncio.sleep(POLL_SECONDS)

    def _noticed(self, alive: dict[int, float]) -> dict[int, float]:
        """The supervisor's processes, with the time when each was last seen. Processes of ``alive`` that
        died without being killed by the trial were killed by a message."""
        now = time.monotonic()
        found = dict.fromkeys(children(self._workers[0][0].pid), now)
        for pid in alive.keys() - found.keys() - self._killed:
            self.segfaults += 1
            self.events.append(Event("segfault", pid, alive[pid], now))
        return found

    # --- faults -----------------------------------------------------------------------------------

    async def kill(self, pid: int) -> None:
        """Send SIGKILL. The watcher, or the supervisor, starts another process."""
        self._killed.add(pid)
        began = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        await eventually(lambda: not process_runs(pid))
        self.events.append(Event("SIGKILL", pid, began, time.monotonic()))

    async def pause(self, pid: int, seconds: float) -> None:
        """Send SIGSTOP, and SIGCONT after ``seconds``."""
        self.stopped.add(pid)
        began = time.monotonic()
        try:
            os.kill(pid, signal.SIGSTOP)
            await asyncio.sleep(seconds)
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass  # a message has just killed it
        finally:
            self.stopped.discard(pid)
        self.events.append(Event("SIGSTOP", pid, began, time.monotonic()))

    async def replace(self) -> None:
        """Start a worker and stop the oldest one, as a rolling deploy does."""
        await self._add()
        new, _proxy = self._workers[-1]
        runs = self.directory / f"runs-{new.pid}"
        await eventually(
            lambda: runs.exists() and runs.stat().st_size, "the new worker handles a message"
        )
        worker, behind = self._workers.pop(0)
        began = time.monotonic()
        worker.signal(signal.SIGTERM)
        status = await asyncio.to_thread(worker.wait)
        self.stops.append(time.monotonic() - began)
        if status != 0:
            self.deaths.append(
                f"a replaced worker ended with status {status}: {worker.log()[-800:]}"
            )
        self._end(worker)
        await behind.close()

    async def disturb(self, pid: int, how: str, seconds: float) -> None:
        """Cut the process's connections, stall them for a while or for good, or slow them down for a while."""
        behind = next(
            found for worker, found in self._workers if self.supervised or worker.pid == pid
        )
        began = time.monotonic()
        if how == "cut":
            behind.cut()
        elif how == "slow":
            behind.rate = SLOW
            await asyncio.sleep(seconds)
            behind.rate = None
        else:
            behind.fall_silent()
            await asyncio.sleep(seconds)
            if how == "silent for ever":
                behind.forget()
            else:
                behind.resume()
        # A process that died meanwhile was replaced behind the same proxy.
        concerned = [None] if self.supervised else self._behind[behind]
        ended = time.monotonic()
        self.events += [Event(how, one, began, ended) for one in concerned]

    async def stop(self) -> list[str]:
        """Send SIGTERM to all workers. Returns descriptions of those that did not exit with status 0."""
        assert self._watcher is not None, "the context was not entered"
        if self._watcher.done():
            self._watcher.result()
        self._watcher.cancel()
        for worker, _proxy in self._workers:
            worker.signal(signal.SIGTERM)
        wrong = []
        for worker, _proxy in self._workers:
            status = await asyncio.to_thread(worker.wait)
            if status != 0:
                wrong.append(f"a stopped worker ended with status {status}: {worker.log()[-800:]}")
        return wrong
