"""``headwater work``: the process that starts worker processes, and starts them again.

Rule 1. A worker that dies is started again, sooner the longer it lived; one that cannot start at
        all (no such app, another claim_after) ends everything, with its status.
Rule 2. A signal goes to every worker once. They are in sessions of their own, so the terminal's
        Ctrl-C reaches them only from here.
Rule 3. If this process dies, the workers see the end of their standard input and stop in peace.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Collection

from headwater.worker.process import CANNOT_START

log = logging.getLogger("headwater.worker")

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
HEALTHY_SECONDS = 60.0
"""A worker that lived so long is started again without the pauses of those before it."""

OVERTIME_SECONDS = 20.0
"""How long after its grace time a worker may take to end before it is killed."""


class Supervisor:
    """Keeps ``workers`` processes of one app running until it is told to stop."""

    def __init__(
        self,
        target: str,
        *,
        workers: int,
        grace_ms: int,
        url: str | None,
        inherited: Collection[int],
    ) -> None:
        self._command = [sys.executable, "-m", "headwater.worker.process", target]
        self._command += ["--grace", f"{grace_ms}ms"]
        if url is not None:
            self._command += ["--url", url]
        self._workers = workers
        self._inherited = inherited
        self._patience = grace_ms / 1000 + OVERTIME_SECONDS
        self._alive: dict[int, Process] = {}
        self._stopping = asyncio.Event()
        self._status: int = 0

    async def run(self) -> int:
        """Run until a signal; the exit status: 0 when every worker ended as it should."""
        loop = asyncio.get_running_loop()
        for told in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(told, self._signal)
        async with asyncio.TaskGroup() as group:
            for number in range(self._workers):
                group.create_task(self._keep(number))
        return self._status

    def _signal(self) -> None:
        self._stopping.set()
        for process in self._alive.values():
            _terminate(process)

    async def _keep(self, number: int) -> None:
        pause = FIRST_PAUSE
        while not self._stopping.is_set():
            began = time.monotonic()
            status = await self._one(number)
            if self._stopping.is_set():
                # One that was told to stop before it could listen has not done anything yet.
                if status != -signal.SIGTERM:
                    self._status = self._status or status
                return
            if status in (0, CANNOT_START):
                # 0: the app stopped itself, which ends this worker but no other.
                if status:
                    self._status = status
                    self._signal()
                return
            if time.monotonic() - began > HEALTHY_SECONDS:
                pause = FIRST_PAUSE
            log.warning("worker %d %s; again in %g s", number, _death(status), pause)
            await self._stopped_within(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _one(self, number: int) -> int:
        """One life of a worker process; its exit status, negative for a signal."""
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            pass_fds=self._inherited,
            start_new_session=True,
        )
        self._alive[number] = process
        if self._stopping.is_set():
            _terminate(process)
        try:
            ended = asyncio.ensure_future(process.wait())
            stopping = asyncio.ensure_future(self._stopping.wait())
            await asyncio.wait([ended, stopping], return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if not ended.done():
                done, _waiting = await asyncio.wait([ended], timeout=self._patience)
                if not done:
                    log.error("worker %d did not end in time and is killed", number)
                    process.kill()
            return await ended
        finally:
            del self._alive[number]

    async def _stopped_within(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            pass


def _terminate(process: Process) -> None:
    try:
        process.terminate()
    except ProcessLookupError:
        pass  # it has just ended by itself


def _death(status: int) -> str:
    """How a process ended, in words."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"


def supervise(
    target: str,
    *,
    workers: int,
    grace_ms: int,
    url: str | None = None,
    inherited: Collection[int] = (),
) -> int:
    """Run ``workers`` processes of the app ``module:name`` until SIGTERM or SIGINT.

    ``url`` replaces the store that the app names; ``inherited`` are descriptors that every worker
    holds until it ends. Returns the exit status.
    """

    async def main() -> int:
        return await Supervisor(
            target, workers=workers, grace_ms=grace_ms, url=url, inherited=inherited
        ).run()

    return asyncio.run(main())
