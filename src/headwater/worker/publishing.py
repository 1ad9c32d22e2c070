"""Adding messages to streams, with or without an event loop, with or without a worker.

Rule 1. An addition that may have been made is not repeated, unless the store recognizes the
        repetition: the caller gets `OutcomeUnknown`.
Rule 2. What was not sent is tried again for `RECONNECT_SECONDS`, as long as a server needs to
        restart; after that the caller gets `NotSent`.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING, TypeVar

from headwater.client.redaction import redacted
from headwater.errors import NotSent, OutcomeUnknown, StoreClosed
from headwater.groups.adding import CHUNK, add_all
from headwater.groups.operation import Operation, Refused, perform, run
from headwater.groups.settling import Addition
from headwater.groups.troubles import refused_credentials
from headwater.worker.connections import (
    Connections,
    lost_connection,
    may_have_run,
)

if TYPE_CHECKING:
    import redis
    import redis.asyncio

T = TypeVar("T")

THREADS = 32
"""Threads, or coroutines that do not share a batch, that publish at a time; the others wait."""

QUIET_SECONDS = 1.0
"""After so long without a reply the store is asked whether it executes commands, before messages are
sent. One that has restarted meanwhile and still loads its data would refuse the first message of a batch,
and what became of the others would be unknown."""

RECONNECT_SECONDS = 4.0
"""How long sending is tried again while the store cannot be reached: a restart takes less."""

PRIMARY_CHANGES = frozenset({"CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK", "READONLY"})
"""Codes that say: this was not done, and another server will do it soon."""

FIRST_PAUSE, LONGEST_PAUSE = 0.02, 0.5
"""Seconds between two attempts, doubling."""


SEEING_TURNS = 2
"""Turns of the event loop before a batch is sent. After the second the loop has seen that the server
closed a connection, so nothing is sent into it and its outcome is not unknown."""


class Patience:
    """Decides whether something is sent again after its connection failed, and when.

    What is ``repeatable`` is sent again even if it may have been carried out.
    """

    def __init__(self, *, repeatable: bool) -> None:
        self.failed = False
        self._repeatable = repeatable
        self._until = time.monotonic() + RECONNECT_SECONDS
        self._pause = FIRST_PAUSE

    def pause(self, error: Exception) -> float | None:
        """Seconds to wait before the next attempt; None if there must be none."""
        self.failed = not isinstance(error, Refused)
        if may_have_run(error) and not self._repeatable:
            return None
        if isinstance(error, Refused) and not _later(error):
            return None
        if isinstance(error, (*refused_credentials(), StoreClosed)):
            return None
        left = self._until - time.monotonic()
        if left <= 0:
            return None
        pause, self._pause = self._pause, min(2 * self._pause, LONGEST_PAUSE)
        return min(pause, left)


def reach() -> Operation[None]:
    """Return when the store executes commands. While it loads its data this raises redis-py's
    BusyLoadingError, as a refused connection would."""
    yield [["PING"]]


def all_added(outcomes: Sequence[str | Refused]) -> list[str]:
    """The ids, or the first refusal raised."""
    added: list[str] = []
    for outcome in outcomes:
        if isinstance(outcome, Refused):
            where = f"{len(added)} of {len(outcomes)} messages were added before it"
            raise Refused(f"{outcome} ({where})", outcome.code)
        added.append(outcome)
    return added


def _tried_again() -> tuple[type[Exception], ...]:
    """The errors that `Patience` looks at."""
    return (*lost_connection(), Refused)


def taken(result: T) -> T:
    """What an operation that adds has returned, unless nothing of it could be taken now: that error is
    raised."""
    if isinstance(result, list) and result and all(_later(one) for one in result):
        raise result[0]
    return result


def _later(outcome: object) -> bool:
    """Whether it is an error for which another attempt is worthwhile: a slot is on its way, or waits for
    its new primary."""
    return isinstance(outcome, Refused) and outcome.code in PRIMARY_CHANGES


def _messages(count: int) -> str:
    return f"{count} message" if count == 1 else f"{count} messages"


class _Job:
    """One caller's additions, on their way."""

    def __init__(self, additions: Sequence[Addition]) -> None:
        self.additions = additions
        self.outcomes: list[str | Refused] = []
        self.sent = 0
        self.future: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()

    def finish(self, error: Exception | None = None) -> None:
        """Tell the caller, if it still listens."""
        if self.future.done():
            return
        try:
            if error is not None:
                raise error
            self.future.set_result(all_added(self.outcomes))
        except Exception as problem:
            self.future.set_exception(problem)


class Publisher:
    """An app's connections for publishing, each made when it is first needed.

    Coroutines that publish at the same time share one connection and its round trips.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._lock = threading.Lock()
        self._threads = threading.BoundedSemaphore(THREADS)
        self._synchronous: redis.Redis | None = None
        self._asynchronous: redis.asyncio.Redis | None = None
        self._place = self._place_of_threads = ""
        self._heard_at = -inf
        self._left: list[redis.asyncio.Redis] = []
        self._left_synchronous: list[redis.Redis] = []
        """Clients of places where the store is no longer, to be closed at the end."""
        self._jobs: deque[_Job] = deque()
        self._sending: asyncio.Task[None] | None = None
        self._slots: asyncio.Semaphore | None = None

    async def send(self, additions: Sequence[Addition]) -> list[str]:
        """Add from a coroutine; the ids. One that is cancelled may have added."""
        if not additions:
            return []
        job = _Job(additions)
        self._jobs.append(job)
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send_all(), name="headwater publisher")
        return await job.future

    async def _send_all(self) -> None:
        """Send what there is, together, until there is nothing."""
        while self._jobs:
            taken: list[tuple[_Job, int]] = []
            room = CHUNK
            for job in self._jobs:
                count = min(room, len(job.additions) - job.sent)
                taken.append((job, count))
                room -= count
                if not room:
                    break
            batch = [
                one for job, count in taken for one in job.additions[job.sent : job.sent + count]
            ]
            try:
                outcomes = await self._perform(partial(add_all, batch))
            except Exception as error:
                for job, count in taken:
                    self._jobs.remove(job)
                    job.finish(self._explained(job.additions, job.outcomes, count, error))
                continue
            for job, count in taken:
                job.outcomes += outcomes[:count]
                del outcomes[:count]
                job.sent += count
                if job.sent == len(job.additions):
                    self._jobs.remove(job)
                    job.finish()

    async def _perform(self, make: Callable[[], Operation[T]], *, repeatable: bool = False) -> T:
        """Carry out an operation, again while that is safe and the time allows it."""
        patience = Patience(repeatable=repeatable)
        while True:
            if self._asynchronous is None:
                self._place = self._connections.place()
                self._asynchronous = self._connections.asynchronous()
            client = self._asynchronous
            for _turn in range(SEEING_TURNS):
                await asyncio.sleep(0)
            try:
                if patience.failed or time.monotonic() - self._heard_at > QUIET_SECONDS:
                    await perform(client, reach())
                result = taken(await perform(client, make()))
            except _tried_again() as error:
                pause = patience.pause(error)
                if pause is None:
                    raise
            else:
                self._heard_at = time.monotonic()
                return result
            await asyncio.sleep(pause)
            if self._asynchronous is client and self._place != self._connections.place():
                self._left.append(client)  # other coroutines may use it still
                self._asynchronous = None

    async def send_one(
        self, addition: Addition, make: Callable[[], Operation[str]], *, repeatable: bool
    ) -> str:
        """Add by an operation of its own, from a coroutine; the id."""
        if self._slots is None:
            self._slots = asyncio.Semaphore(THREADS)
        try:
            async with self._slots:
                return await self._perform(make, repeatable=repeatable)
        except lost_connection() as error:
            raise self._explained([addition], [], 1, error, repeatable=repeatable) from error

    def publish_one(
        self, addition: Addition, make: Callable[[], Operation[str]], *, repeatable: bool
    ) -> str:
        """As `send_one`, from code without an event loop."""
        try:
            return self._run(make, repeatable=repeatable)
        except lost_connection() as error:
            raise self._explained([addition], [], 1, error, repeatable=repeatable) from error

    def publish(self, additions: Sequence[Addition]) -> list[str]:
        """Add from code without an event loop; safe among threads."""
        outcomes: list[str | Refused] = []
        for first in range(0, len(additions), CHUNK):
            batch = additions[first : first + CHUNK]
            try:
                outcomes += self._run(partial(add_all, batch))
            except lost_connection() as error:
                raise self._explained(additions, outcomes, len(batch), error) from error
        return all_added(outcomes)

    def _run(self, make: Callable[[], Operation[T]], *, repeatable: bool = False) -> T:
        """As `_perform`, in the caller's thread."""
        patience = Patience(repeatable=repeatable)
        while True:
            with self._lock:
                if self._synchronous is None:
                    self._place_of_threads = self._connections.place()
                    self._synchronous = self._connections.synchronous()
                client = self._synchronous
            try:
                with self._threads:
                    if patience.failed or time.monotonic() - self._heard_at > QUIET_SECONDS:
                        run(client, reach())
                    result = taken(run(client, make()))
            except _tried_again() as error:
                pause = patience.pause(error)
                if pause is None:
                    raise
            else:
                self._heard_at = time.monotonic()
                return result
            time.sleep(pause)
            with self._lock:
                moved = self._place_of_threads != self._connections.place()
                if self._synchronous is client and moved:
                    self._left_synchronous.append(client)  # other threads may use it still
                    self._synchronous = None

    def _explained(
        self,
        additions: Sequence[Addition],
        outcomes: Sequence[str | Refused],
        in_flight: int,
        error: Exception,
        *,
        repeatable: bool = False,
    ) -> Exception:
        """What the caller gets when the last ``in_flight`` of the additions that were begun failed
        with ``error``."""
        if not isinstance(error, lost_connection()):
            return error
        where, stream = redacted(self._connections.url), additions[0].stream
        why = str(error).rstrip(". ")
        added = [one for one in outcomes if not isinstance(one, Refused)]
        left = len(additions) - len(outcomes)
        before = f" {_messages(len(added))} had been added before." if added else ""
        if not may_have_run(error):
            return NotSent(
                f"{_messages(left)} for {stream!r} could not be sent to {where}: {why}.{before} "
                "Sending the rest again adds nothing twice.",
                added=added,
            )
        unsent = left - in_flight
        rest = f" {_messages(unsent)} more were not sent." if unsent else ""
        advice = (
            "Sending with the same dedupe= again adds nothing twice"
            if repeatable
            else "Nothing is sent again by itself"
        )
        return OutcomeUnknown(
            f"{where} went away while {_messages(in_flight)} were being added to {stream!r}; "
            f"nobody knows whether they were.{before}{rest} {advice}: {why}.",
            added=added,
            unknown=in_flight,
        )

    async def close(self) -> None:
        """Send what is on its way and close both connections."""
        if self._sending is not None:
            await asyncio.gather(self._sending, return_exceptions=True)
            self._sending = None
        self._slots = None
        clients, self._left = self._left, []
        if self._asynchronous is not None:
            clients.append(self._asynchronous)
            self._asynchronous = None
        for client in clients:
            await client.aclose()
        self.close_synchronous()

    def close_synchronous(self) -> None:
        """Close the connections that threads have used."""
        with self._lock:
            clients, self._left_synchronous = self._left_synchronous, []
            if self._synchronous is not None:
                clients.append(self._synchronous)
                self._synchronous = None
        for client in clients:
            client.close()
