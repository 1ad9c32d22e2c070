"""Runs the jobs of commands (commands/jobs.py) in a thread, while the loop serves other clients.

    command's turn ── Job ──▶ queue ──▶ thread: steps, without the node's lock ──▶ done
                                                                                    │ wakes the driver
    a later turn: check again ── Job.finish ── record group, reply ◀── settle ◀─────┘

Rule 1. A client waits while its job runs: its further requests run after its reply. The client is not blocked in
        Redis's sense: it is not counted, CLIENT UNBLOCK and timeouts do not affect it, and if its input ends it
        still gets its reply.
Rule 2. A job ends in a turn of the node like an unblocked command (blocking.py): permissions, pause
        and journal are checked again, and the job is a separate record group. While CLIENT PAUSE holds the
        command, the job waits.
Rule 3. If the client disconnects, or the node is closed, the steps end and their result is
        discarded.
Rule 4. Jobs run one after the other, in order of arrival; the second job of a command precedes the
        first of another. So memory holds results of at most two commands, in addition to the data of
        the queued commands themselves (a request, a snapshot). After every two milliseconds the
        thread sleeps for a moment, so that other threads get Python's lock (the GIL) immediately.
        If the system allows no more threads, the job runs within the turn of its command.
Rule 5. An error that a job raises is the reply to its client. faults.py handles internal errors.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any
from weakref import ref

from headwater.commands.dispatch import KnownCommand
from headwater.commands.jobs import Job
from headwater.common.clock import SystemClock
from headwater.common.log_limit import LimitedLog
from headwater.common.threads import NO_THREAD, started
from headwater.errors import CommandError, JournalDamaged
from headwater.server.services.faults import Faults
from headwater.server.services.observability.observer import Observer
from headwater.server.services.pausing import ClientPause
from headwater.server.services.pubsub import PubSub
from headwater.server.services.records import TurnRecords
from headwater.server.services.runner import Runner
from headwater.server.services.state import NodeState
from headwater.server.services.storage.damage import unreadable
from headwater.server.services.turn_clock import TurnClock
from headwater.server.session.session import Session

_log = logging.getLogger("headwater.server")

_SLICE_S = 0.002
_REST_S = 0.00005
"""Time for which steps run without a pause, and minimum time for which the thread then sleeps, in
seconds. Without the pause the loop would wait up to 5 ms (`sys.getswitchinterval`) for the GIL,
several times in a turn."""


class OffloadedJob:
    """A job of a session, and its result."""

    def __init__(self, session: Session, known: KnownCommand, job: Job) -> None:
        self.session = session
        self.known = known
        self.job = job
        self.silent = session.reply_mode != "on"
        """True if CLIENT REPLY OFF or SKIP applied when the command was received."""
        self.cancelled = False
        self.result: Any = None
        self.error: Exception | None = None

    def take(self) -> Any:
        """Return the result of the steps, once. Raises the error of the steps."""
        if self.error is not None:
            raise self.error
        result, self.result = self.result, None
        return result

    def discard(self) -> None:
        """Discard the result, which is not needed any more."""
        result, self.result = self.result, None
        if result is not None and self.job.discard is not None:
            self.job.discard(result)

    def do(self) -> None:
        """Run the steps of the job, in the thread."""
        steps = self.job.steps
        began = time.monotonic()
        try:
            while not self.cancelled:
                next(steps)
                if time.monotonic() - began > _SLICE_S:
                    time.sleep(_REST_S)
                    began = time.monotonic()
            steps.close()
        except StopIteration as end:
            self.result = end.value
        except Exception as error:
            self.error = error


_Queue = SimpleQueue[OffloadedJob | threading.Event | None]


class Offloading:
    """The jobs of a node. The thread starts with the first job."""

    def __init__(
        self,
        state: NodeState,
        times: TurnClock,
        records: TurnRecords,
        pubsub: PubSub,
        observer: Observer,
        faults: Faults,
        pause: ClientPause,
    ) -> None:
        self.runner = Runner()
        self._state = state
        self._times = times
        self._records = records
        self._pubsub = pubsub
        self._observer = observer
        self._faults = faults
        self.pause = pause
        self._queue: _Queue = SimpleQueue()
        self._following: deque[OffloadedJob] = deque()
        """Second jobs, which precede the queue. For each, an event in the queue wakes the thread."""
        self._done: deque[OffloadedJob] = deque()
        self._running: dict[Session, OffloadedJob] = {}
        self._thread: threading.Thread | None = None
        self._log = LimitedLog(_log, monotonic=SystemClock().monotonic)
        self.wake: Callable[[], None] | None = None
        """Thread-safe function that makes the driver run a tick of the node; None without a driver."""

    def __contains__(self, session: object) -> bool:
        return session in self._running

    def __len__(self) -> int:
        return len(self._running)

    def begin(self, session: Session, job: Job) -> None:
        """Let ``session`` wait for a job of its last command."""
        assert session.last is not None
        session.blocked = True
        work = self._running[session] = OffloadedJob(session, session.last, job)
        self._do(work)

    def _do(self, work: OffloadedJob, *, first: bool = False) -> None:
        """Run a job in the thread, before all others if it is the ``first``; or here, if no thread can start."""
        if self._thread is None:
            arguments = (self._queue, self._following, self._done, ref(self))
            thread = threading.Thread(
                target=_run_jobs, args=arguments, name="headwater-jobs", daemon=True
            )
            if not started(thread):
                self._log.warning("a long command holds up all clients: %s", NO_THREAD)
                _run_job(work, self._done, ref(self))
                return
            self._thread = thread
        if first:
            self._following.append(work)
        self._queue.put(threading.Event() if first else work)

    def cancel(self, session: Session) -> None:
        """Cancel the job of a session that is closed."""
        work = self._running.pop(session, None)
        if work is not None:
            work.cancelled = True
            session.blocked = False

    def settle(self) -> list[Session]:
        """End the jobs whose steps are done. Return the sessions that wait no longer. The caller must hold the
        node's lock and be within a turn."""
        served: list[Session] = []
        for _ in range(len(self._done)):
            work = self._done.popleft()
            session, pause = work.session, self.pause
            if work.cancelled:
                work.discard()
                continue
            if pause.active and pause.holds(session, work.known, work.job.arguments):
                self._done.append(work)
                continue
            del self._running[session]
            following = None if session.closing else self._finish(work)
            work.discard()
            if following is not None:
                again = OffloadedJob(session, work.known, following)
                again.silent = work.silent
                self._running[session] = again
                self._do(again, first=True)
                continue
            session.blocked = False
            served.append(session)
        return served

    def wait_until_idle(self) -> None:
        """Wait until the queued jobs are done. For tests; call it without the node's lock."""
        if self._thread is not None:
            passed = threading.Event()
            self._queue.put(passed)
            passed.wait()

    def stop(self) -> None:
        """End the thread and every job. Call it with or without the node's lock."""
        for work in self._running.values():
            work.cancelled = True
        self._queue.put(None)
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def __del__(self) -> None:
        self._queue.put(None)

    def _finish(self, work: OffloadedJob) -> Job | None:
        """Let the command use the result. Return its next job, or None after its reply and facts."""
        session, records = work.session, self._records
        mark = len(session.output.outbox)
        following: Job | None = None
        if self._state.poisoned is not None:
            session.output.reply.error(f"MISCONF {self._state.poisoned}")
        else:
            call = session.call
            call.now_ms, call.arguments = self._times.now(), work.job.arguments
            facts_mark = records.begin()
            began = time.monotonic_ns()
            try:
                following = self._run(work)
            except CommandError as error:
                del session.output.outbox[mark:]
                session.output.reply.error(str(error))
            finally:
                records.seal(facts_mark, call.now_ms)
                session.spent_ns += time.monotonic_ns() - began
            if following is None:
                session.wrote_turn = records.turn
        if work.silent:
            del session.output.outbox[mark:]
        if session.output.pushes:
            session.output.deliver_pushes()
        return following

    def _run(self, work: OffloadedJob) -> Job | None:
        """Finish a job, and record statistics when the command ends. Raises `CommandError`."""
        session, arguments = work.session, work.job.arguments
        session.call.admitted = False
        try:
            self.runner.check(session, work.known, arguments)
            following = work.job.finish(session.call, work.take())
        except Exception as raised:
            raise self._failure(work, raised) from None
        finally:
            if self._pubsub.keyspace.events:
                self._pubsub.publish_events(session)
        if following is None:
            self._observer.stopped_waiting(session, arguments, failed=False)
        return following

    def _failure(self, work: OffloadedJob, raised: Exception) -> CommandError:
        """Return the reply for an exception of a job, and record it. Raises it if a change may be incomplete."""
        session, error = work.session, self._refusal(work, raised)
        name, arguments = work.known.name, work.job.arguments
        self._observer.failed(session, name, arguments, session.spent_ns, error)
        return error

    def _refusal(self, work: OffloadedJob, raised: Exception) -> CommandError:
        """Return the reply for an exception of a job. Raises it if a change may be incomplete."""
        known = work.known
        if isinstance(raised, CommandError):
            return raised
        if isinstance(raised, JournalDamaged):
            return unreadable(raised, known.command, work.job.arguments)
        return self._faults.refuse(raised, known.title, changed=work.session.call.admitted)


def _run_jobs(
    queue: _Queue,
    following: deque[OffloadedJob],
    done: deque[OffloadedJob],
    offloading: ref[Offloading],
) -> None:
    """Run jobs in the thread. Holds no reference to the node, and ends when the node is freed."""
    while (item := queue.get()) is not None:
        while following:
            _run_job(following.popleft(), done, offloading)
        if isinstance(item, OffloadedJob):
            _run_job(item, done, offloading)
        else:
            item.set()
        del item
        if offloading() is None:
            return


def _run_job(work: OffloadedJob, done: deque[OffloadedJob], offloading: ref[Offloading]) -> None:
    work.do()
    done.append(work)
    owner = offloading()
    if owner is not None and owner.wake is not None:
        owner.wake()
