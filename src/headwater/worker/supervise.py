"""``headwater work``: the process that starts worker processes, and starts them again.

Rule 1. A worker process that ends without being told to, whatever its status, is started again. The
        pause before that doubles from death to death; it is short again after a process that
        settled an entry, or lived for a minute.
Rule 2. A worker that cannot start (no such app, another claim_after) ends all of them, with its
        status; but only if no worker has ever joined the group that refuses it. After that it is
        started again like any other: one failed start does not stop what works.
Rule 3. A signal goes to every worker once. They are in sessions of their own, so the terminal's
        Ctrl-C reaches them only from here.
Rule 4. One more process, the last one, handles only suspected poison messages. To be ended by a signal
        is what it is for: its pauses do not grow then.
Rule 5. If this process dies, the workers see the end of their standard input and stop in peace.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Collection, Sequence

from headwater.worker.process import CANNOT_START
from headwater.worker.quarantine import Suspects
from headwater.worker.reports import GROUP, Life

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
        child_options: Sequence[str],
    ) -> None:
        self._command = [sys.executable, "-m", "headwater.worker.process", target]
        self._command += ["--grace", f"{grace_ms}ms"]
        if url is not None:
            self._command += ["--url", url]
        self._command += child_options
        self._workers = workers
        self._inherited = inherited
        self._patience = grace_ms / 1000 + OVERTIME_SECONDS
        self._alive: dict[int, Process] = {}
        self._lives: set[Life] = set()
        self._joined: set[GROUP] = set()
        """Groups that any worker has ever joined."""
        self._stopping = asyncio.Event()
        self._status: int = 0

    async def run(self) -> int:
        """Run until a signal; the exit status: 0 when every worker ended as it should."""
        loop = asyncio.get_running_loop()
        for told in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(told, self._signal)
        async with asyncio.TaskGroup() as group:
            for number in range(self._workers + 1):
                group.create_task(self._keep(number))
        return self._status

    def _signal(self) -> None:
        if not self._stopping.is_set():
            count = sum(number < self._workers for number in self._alive)
            log.info("stopping %d worker%s", count, "" if count == 1 else "s")
        self._stopping.set()
        for process in self._alive.values():
            _terminate(process)

    async def _keep(self, number: int) -> None:
        pause = FIRST_PAUSE
        while not self._stopping.is_set():
            began = time.monotonic()
            life = Life()
            self._lives.add(life)
            try:
                status = await self._one(number, life)
            finally:
                self._lives.discard(life)
                life.close()
            if self._stopping.is_set():
                # One that was told to stop before it could listen has not done anything yet.
                if status != -signal.SIGTERM:
                    self._status = self._status or status
                return
            if status == CANNOT_START and self._hopeless(life):
                self._status = status
                self._signal()
                return
            if life.settled or time.monotonic() - began > HEALTHY_SECONDS:
                pause = FIRST_PAUSE
            if status < 0 and number == self._workers:
                pause = FIRST_PAUSE
            log.warning("%s %s; again in %g s", self._name(number), _death(status), pause)
            await self._stopped_within(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _hopeless(self, life: Life) -> bool:
        """Whether no worker has ever joined the groups that refused this one, or any group at all
        when it did not get that far."""
        for one in self._lives:
            one.read()
            self._joined |= one.joined
        return bool(life.refused - self._joined) if life.refused else not self._joined

    async def _one(self, number: int, life: Life) -> int:
        """One life of a worker process; its exit status, negative for a signal."""
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                "--reports",
                str(life.writer),
                "--suspects",
                Suspects.ONLY if number == self._workers else Suspects.ELSEWHERE,
                stdin=asyncio.subprocess.PIPE,
                pass_fds=(*self._inherited, life.writer),
                start_new_session=True,
            )
        finally:
            life.close_writer()
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
                    log.error("%s did not end in time and is killed", self._name(number))
                    process.kill()
            return await ended
        finally:
            del self._alive[number]
            life.read()
            self._joined |= life.joined

    def _name(self, number: int) -> str:
        return "the quarantine process" if number == self._workers else f"worker {number}"

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
    child_options: Sequence[str] = (),
) -> int:
    """Run ``workers`` processes of the app ``module:name`` until SIGTERM or SIGINT.

    ``url`` replaces the store that the app names; ``inherited`` are descriptors that every worker
    holds until it ends; ``child_options`` go to the worker's command line. Returns the exit status.
    """

    async def main() -> int:
        return await Supervisor(
            target,
            workers=workers,
            grace_ms=grace_ms,
            url=url,
            inherited=inherited,
            child_options=child_options,
        ).run()

    return asyncio.run(main())
