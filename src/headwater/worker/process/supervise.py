"""The supervisor of ``headwater work``, which starts worker processes and restarts them.

Rule 1. A worker process that ends without having been stopped is restarted, regardless of its status. The pause
        before a restart doubles each time. It is short again if a process settled an entry or ran for a minute.
Rule 2. A worker that cannot start (the app does not exist, a different claim_after) ends all workers with its
        status, but only if no worker has joined the group that refuses it. Otherwise it is restarted like any
        other worker, so that one failed start does not stop workers that run.
Rule 3. Each SIGTERM or SIGINT is passed to every worker once, as SIGTERM. Workers have their own sessions, so that
        the terminal's Ctrl-C does not reach them directly.
Rule 4. One more process, the quarantine process, handles only suspected poison messages. It is expected to be
        killed by signals. The pause before its restart does not grow then.
Rule 5. With ``--reload``, every process is stopped and restarted when a source file changes. No error of a worker
        ends the supervisor, because the next change may correct it.
Rule 6. The supervisor renews the leases of a process that is alive but cannot renew them itself (`lease_board`).
Rule 7. If the supervisor dies, the standard input of the workers ends, and they stop gracefully.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Collection, Sequence
from contextlib import suppress

from headwater.worker.declare.outcome import death
from headwater.worker.leases.lease_board import SupervisorRenewer
from headwater.worker.observe.health import Health, WorkerHealth, judged
from headwater.worker.observe.metrics import metrics_text
from headwater.worker.observe.supervisor_pipe import GROUP, ReceivedReports
from headwater.worker.process.main import CANNOT_START
from headwater.worker.process.source_watch import SourceWatch
from headwater.worker.read.quarantine import Suspects

log = logging.getLogger("headwater.worker")

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
HEALTHY_SECONDS = 60.0
"""Run time in seconds after which the pause before a worker's restart is the shortest again."""

LOOK_SECONDS = 0.5
"""Interval at which source files are checked, in seconds."""

RELOAD_SECONDS = 2.0
"""Maximum time for handlers to end before a reload, in seconds. Then their entries are handed back."""

HAND_BACK_SECONDS = 8.0
"""Maximum time for handing back before a reload, in seconds. Then the worker is killed."""

OVERTIME_SECONDS = 20.0
"""Seconds after its grace time within which a worker must end. A worker that has not ended is killed."""


class Supervisor:
    """Keeps ``workers`` processes of the app ``module:name`` running until SIGTERM or SIGINT.

    ``url`` replaces the app's store. ``inherited`` are descriptors that every worker keeps open until it ends.
    ``child_options`` are added to the worker's command line. ``health`` is the address for HTTP requests.
    ``watch`` finds changes after which the workers are restarted.
    """

    def __init__(
        self,
        target: str,
        *,
        workers: int,
        grace_ms: int,
        url: str | None = None,
        inherited: Collection[int] = (),
        child_options: Sequence[str],
        health: str | None,
        watch: SourceWatch | None,
    ) -> None:
        self._command = [sys.executable, "-m", "headwater.worker.process.main", target]
        self._command += ["--grace", f"{grace_ms}ms"]
        if url is not None:
            self._command += ["--url", url]
        self._command += child_options
        self._command += [] if health is None else ["--progress"]
        self._health = None if health is None else Health(health, self._look, metrics_text)
        self._watch = watch
        self._reloads = 0
        self._changed = asyncio.Event()
        self._workers = workers
        self._inherited = inherited
        self._patience = grace_ms / 1000 + OVERTIME_SECONDS
        self._alive: dict[int, Process] = {}
        self._reports: dict[int, ReceivedReports] = {}
        self._joined: set[GROUP] = set()
        """Groups that any worker has joined since the start."""
        self._suspected: set[GROUP] = set()
        """Groups with a suspected poison message that a worker handed back."""
        self._stopping = asyncio.Event()
        self._status: int = 0

    async def run(self) -> int:
        """Run until a signal arrives. Return the exit status: 0 if every worker stopped without an error."""
        loop = asyncio.get_running_loop()
        for handled in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(handled, self._signal)
        if self._health is not None:
            await self._health.start()
        async with asyncio.TaskGroup() as group:
            for number in range(self._workers + 1):
                group.create_task(self._keep(number))
            if self._watch is not None:
                group.create_task(self._reload_at_changes(self._watch))
        if self._health is not None:
            self._health.close()
        _ignore_signals(loop)
        return self._status

    def _look(self) -> list[WorkerHealth]:
        """Return the health of the workers, without the quarantine process, which a suspect may block."""
        now = time.monotonic()
        return [
            judged(
                number,
                self._alive[number].pid if number in self._alive else None,
                self._reports.get(number),
                now=now,
            )
            for number in range(self._workers)
        ]

    async def _reload_at_changes(self, watch: SourceWatch) -> None:
        while not self._stopping.is_set():
            await self._stopped_within(LOOK_SECONDS)
            changed = await asyncio.to_thread(watch.changed)
            if not changed or self._stopping.is_set():
                continue
            more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
            log.info("%s%s changed: restarting the workers", changed[0], more)
            self._reloads += 1
            self._changed.set()
            await self._end_for_reload(list(self._alive.values()))

    async def _end_for_reload(self, processes: Sequence[Process]) -> None:
        """Stop these processes: let handlers end, then make them hand back their entries, then kill them. A process
        whose event loop is blocked does not handle signals."""
        for number, seconds in (
            (signal.SIGTERM, RELOAD_SECONDS),
            (signal.SIGTERM, HAND_BACK_SECONDS),
            (signal.SIGKILL, 1),
        ):
            left = [one for one in processes if one.returncode is None]
            if not left or self._stopping.is_set():
                return
            for process in left:
                send_signal(process, number)
            waiting = [asyncio.ensure_future(one.wait()) for one in left]
            await asyncio.wait(waiting, timeout=seconds)
            for each in waiting:
                each.cancel()

    def _signal(self) -> None:
        if not self._stopping.is_set():
            count = sum(number < self._workers for number in self._alive)
            log.info("stopping %d worker%s", count, "" if count == 1 else "s")
        self._stopping.set()
        for process in self._alive.values():
            send_signal(process, signal.SIGTERM)

    async def _keep(self, number: int) -> None:
        pause = FIRST_PAUSE
        while not self._stopping.is_set():
            began = time.monotonic()
            reloads = self._reloads
            self._changed.clear()
            reports = self._reports[number] = ReceivedReports()
            try:
                status = await self._one(number, reports)
            finally:
                del self._reports[number]
                reports.close()
            if self._stopping.is_set():
                # SIGTERM kills only a process that has not started yet, so this is not an error.
                if status != -signal.SIGTERM:
                    self._status = self._status or status
                return
            if reloads != self._reloads:
                pause = FIRST_PAUSE
                continue
            if status == CANNOT_START and self._watch is None and self._hopeless(reports):
                self._status = status
                self._signal()
                return
            if reports.settled or time.monotonic() - began > HEALTHY_SECONDS:
                pause = FIRST_PAUSE
            if status < 0 and number == self._workers:
                pause = FIRST_PAUSE
            log.warning("%s %s; restarting in %g s", self._name(number), death(status), pause)
            await self._stopped_within(pause, or_changed=True)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _hopeless(self, reports: ReceivedReports) -> bool:
        """Return whether one of the groups that refused this worker has not been joined by any worker. If no group
        refused it, return whether no worker has joined any group."""
        for one in self._reports.values():
            one.read()
            self._joined |= one.joined
        return bool(reports.refused - self._joined) if reports.refused else not self._joined

    async def _one(self, number: int, reports: ReceivedReports) -> int:
        """Run one worker process and return its exit status, negative for a signal."""
        reloads = self._reloads
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                "--reports",
                str(reports.writer),
                "--board",
                str(reports.board_file),
                "--suspects",
                Suspects.ONLY if number == self._workers else Suspects.ELSEWHERE,
                stdin=asyncio.subprocess.PIPE,
                pass_fds=(*self._inherited, reports.writer, reports.board_file),
                start_new_session=True,
            )
        finally:
            reports.close_writer()
        self._alive[number] = process
        loop = asyncio.get_running_loop()
        loop.add_reader(reports.reader, self._read, reports)
        renewer = SupervisorRenewer(
            process.pid, reports, name=self._name(number), alone=number == self._workers
        )
        renewing = asyncio.create_task(renewer.run(), name=f"leases of {self._name(number)}")
        if number == self._workers:
            _tell(process, self._suspected)
        if self._stopping.is_set() or reloads != self._reloads:
            send_signal(process, signal.SIGTERM)
        try:
            ended = asyncio.ensure_future(process.wait())
            stopping = asyncio.ensure_future(self._stopping.wait())
            await asyncio.wait([ended, stopping], return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if not ended.done():
                done, _waiting = await asyncio.wait([ended], timeout=self._patience)
                if not done:
                    log.error("%s did not end in time and is killed", self._name(number))
                    send_signal(process, signal.SIGKILL)
            return await ended
        finally:
            renewing.cancel()
            await asyncio.wait([renewing])
            del self._alive[number]
            loop.remove_reader(reports.reader)
            reports.read()
            self._joined |= reports.joined

    def _read(self, reports: ReceivedReports) -> None:
        if not reports.read():
            asyncio.get_running_loop().remove_reader(reports.reader)
        new = reports.suspected - self._suspected
        self._suspected |= new
        if new and self._workers in self._alive:
            _tell(self._alive[self._workers], new)

    def _name(self, number: int) -> str:
        return "the quarantine process" if number == self._workers else f"worker {number}"

    async def _stopped_within(self, seconds: float, *, or_changed: bool = False) -> None:
        """Wait at most ``seconds`` until a stop is requested or, with ``or_changed``, a file changes."""
        events = [self._stopping, self._changed] if or_changed else [self._stopping]
        waiting = [asyncio.ensure_future(one.wait()) for one in events]
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for one in waiting:
            one.cancel()


def _tell(quarantine: Process, groups: Collection[GROUP]) -> None:
    """Send ``groups``, which have had a suspect, to the quarantine process."""
    assert quarantine.stdin is not None, "it was started with a pipe"
    for group in groups:
        quarantine.stdin.write(json.dumps(group).encode() + b"\n")


def _ignore_signals(loop: asyncio.AbstractEventLoop) -> None:
    """Ignore signals after all workers have ended, because another signal would change the exit status."""
    ignored = (signal.SIGTERM, signal.SIGINT)
    signal.pthread_sigmask(signal.SIG_BLOCK, ignored)
    for number in ignored:
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)


def send_signal(process: Process, number: signal.Signals) -> None:
    """Send a signal to a process, unless it has ended. `Process.send_signal` would fetch the exit status of a
    process that has just ended, and the event loop would report 255 for it."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)
