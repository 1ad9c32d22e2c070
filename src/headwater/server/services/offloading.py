"""Does the jobs of commands (commands/jobs.py) in a thread, so that the loop serves others meanwhile.

    command's turn ── Job ──▶ line ──▶ thread: steps, without the node's lock ──▶ done
                                                                                   │ wakes the driver
    a later turn: may it still run? ── Job.finish ── record group, reply ◀── settle ◀┘

Rule 1. A client whose job is under way waits: its further requests run behind its reply. It is not
        blocked in Redis's sense: it is not counted, CLIENT UNBLOCK and timeouts do not touch it, and
        an end of its input does not end it before it has its reply.
Rule 2. A job ends in a turn of the node as a woken command does (blocking.py): user, pause and journal
        are asked again, its record group is its own. While CLIENT PAUSE holds its command it waits.
Rule 3. A client that has gone takes its job along: the steps end, and nothing is done with what they
        have made. So does the end of the node.
Rule 4. Jobs are done one after the other, first come first; the second job of a command goes before the
        first of another's. So what is being made of two commands is in memory at most, beside what the
        commands in line hold themselves: a request, a snapshot. After each two milliseconds the thread
        sleeps for a moment: whoever waits for Python's lock gets it at once.
Rule 5. What a job raises is its client's error. What is not meant for clients is logged, and the client
        is told so.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any
from weakref import ref

from headwater.commands.dispatch import KnownCommand
from headwater.commands.jobs import Job
from headwater.errors import CommandError
from headwater.server.services.observability.observer import Observer
from headwater.server.services.pausing import ClientPause
from headwater.server.services.pubsub import PubSub
from headwater.server.services.records import TurnRecords
from headwater.server.services.runner import Runner
from headwater.server.services.state import NodeState
from headwater.server.services.turn_clock import TurnClock

if TYPE_CHECKING:
    from headwater.server.session.session import Session

log = logging.getLogger("headwater.server")

_SLICE_S = 0.002
_REST_S = 0.00005
"""How long steps follow one another, and how long the thread then sleeps at least. Without that the
loop would wait up to 5 ms (`sys.getswitchinterval`) for Python's lock, several times in a turn."""

FAULT = "ERR internal error: the command could not be carried out; the server's log says why"


class OffloadedJob:
    """A job of a session, and what has become of it."""

    def __init__(self, session: Session, known: KnownCommand, job: Job) -> None:
        self.session = session
        self.known = known
        self.job = job
        self.silent = session.reply_mode != "on"
        """CLIENT REPLY OFF or SKIP was in force when the command came."""
        self.cancelled = False
        self.result: Any = None
        self.error: BaseException | None = None

    def take(self) -> Any:
        """The result of the steps, once; raises `CommandError` for what they have raised."""
        if self.error is not None:
            raise _told(self)
        result, self.result = self.result, None
        return result

    def discard(self) -> None:
        """Nobody takes the result any more."""
        result, self.result = self.result, None
        if result is not None and self.job.discard is not None:
            self.job.discard(result)

    def do(self) -> None:
        """The steps of the job, in the thread."""
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


_Line = SimpleQueue[OffloadedJob | threading.Event | None]


class Offloading:
    """The jobs of one node; the thread begins with the first."""

    def __init__(
        self,
        state: NodeState,
        times: TurnClock,
        records: TurnRecords,
        pubsub: PubSub,
        observer: Observer,
        pause: ClientPause,
    ) -> None:
        self.runner = Runner()
        self._state = state
        self._times = times
        self._records = records
        self._pubsub = pubsub
        self._observer = observer
        self._pause = pause
        self._line: _Line = SimpleQueue()
        self._following: deque[OffloadedJob] = deque()
        """Second jobs, which go before the line; with each, an event in the line wakes the thread."""
        self._done: deque[OffloadedJob] = deque()
        self._under_way: dict[Session, OffloadedJob] = {}
        self._thread: threading.Thread | None = None
        self.wake: Callable[[], None] | None = None
        """Has the driver give the node a tick; called in any thread."""

    def __contains__(self, session: object) -> bool:
        return session in self._under_way

    def __len__(self) -> int:
        return len(self._under_way)

    def begin(self, session: Session, job: Job) -> None:
        """``session`` waits for a job of the command that it has sent last."""
        assert session.last is not None
        session.blocked = True
        work = self._under_way[session] = OffloadedJob(session, session.last, job)
        self._line.put(work)
        if self._thread is None:
            arguments = (self._line, self._following, self._done, ref(self))
            self._thread = threading.Thread(
                target=_do_all, args=arguments, name="headwater-jobs", daemon=True
            )
            self._thread.start()

    def cancel(self, session: Session) -> None:
        """The client has gone."""
        work = self._under_way.pop(session, None)
        if work is not None:
            work.cancelled = True
            session.blocked = False

    def settle(self) -> list[Session]:
        """End the jobs whose steps are done, under the node's lock and within a turn; who waits no
        longer."""
        served: list[Session] = []
        for _ in range(len(self._done)):
            work = self._done.popleft()
            session, pause = work.session, self._pause
            if work.cancelled:
                work.discard()
                continue
            if pause.active and pause.holds(session, work.known.command):
                self._done.append(work)
                continue
            del self._under_way[session]
            following = None if session.closing else self._finish(work)
            work.discard()
            if following is not None:
                again = OffloadedJob(session, work.known, following)
                again.silent = work.silent
                self._under_way[session] = again
                self._following.append(again)
                self._line.put(threading.Event())
                continue
            session.blocked = False
            served.append(session)
        return served

    def rest(self) -> None:
        """Wait until the jobs in line are done; without the node's lock. For tests."""
        if self._thread is not None:
            passed = threading.Event()
            self._line.put(passed)
            passed.wait()

    def stop(self) -> None:
        """End the thread and every job; under the node's lock or not."""
        for work in self._under_way.values():
            work.cancelled = True
        self._line.put(None)
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def __del__(self) -> None:
        self._line.put(None)

    def _finish(self, work: OffloadedJob) -> Job | None:
        """What the command does with what its job has made: another job, or its reply and facts."""
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
        """Raises `CommandError`; the command is counted when it ends."""
        session, arguments = work.session, work.job.arguments
        try:
            self.runner.check(session, work.known, arguments)
            following = work.job.finish(session.call, work.take())
        except CommandError as error:
            self._observer.failed(session, work.known.name, arguments, session.spent_ns, error)
            raise
        finally:
            if self._pubsub.keyspace.events:
                self._pubsub.publish_events(session)
        if following is None:
            self._observer.stopped_waiting(session, arguments, failed=False)
        return following


def _told(work: OffloadedJob) -> CommandError:
    """What the client hears of an error of its job's steps."""
    error = work.error
    if isinstance(error, CommandError):
        return error
    log.error("a job of %s has failed", work.known.title, exc_info=error)
    return CommandError(FAULT)


def _do_all(
    line: _Line,
    following: deque[OffloadedJob],
    done: deque[OffloadedJob],
    offloading: ref[Offloading],
) -> None:
    """The thread. It holds on to no node: one that is let go of ends it."""
    while (item := line.get()) is not None:
        while following:
            _do(following.popleft(), done, offloading)
        if isinstance(item, OffloadedJob):
            _do(item, done, offloading)
        else:
            item.set()
        del item
        if offloading() is None:
            return


def _do(work: OffloadedJob, done: deque[OffloadedJob], offloading: ref[Offloading]) -> None:
    work.do()
    done.append(work)
    owner = offloading()
    if owner is not None and owner.wake is not None:
        owner.wake()
