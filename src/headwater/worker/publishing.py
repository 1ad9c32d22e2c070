"""Adding messages to streams, with or without an event loop, with or without a worker.

Rule 1. An addition that may have been made is not repeated, unless the store recognizes the
        repetition: the caller gets `OutcomeUnknown`.
Rule 2. What was not sent, or what the store refused and may take later (`groups.troubles`), is tried
        again for `RECONNECT_SECONDS`, as long as a server needs to restart; after that the caller
        gets `NotSent`.
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
from headwater.groups.adding import CHUNK, Adding, may_be_added_later
from headwater.groups.operation import Operation, Refused, perform, run
from headwater.groups.scheduling import cancel
from headwater.groups.settling import Addition
from headwater.groups.troubles import Remedy, Step, refused_credentials, remedy
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
        self.failed = True
        if isinstance(error, Refused) and not may_be_added_later(error):
            return None
        if may_have_run(error) and not self._repeatable:
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


def _failures() -> tuple[type[Exception], ...]:
    """What an attempt to send may end with; `Patience` says whether there is another."""
    return (Refused, *lost_connection())


def leads_nowhere(error: Exception) -> bool:
    """Whether the connection leads to a server that takes no writes: a demoted primary. The address
    may lead to its successor."""
    return isinstance(error, Refused) and remedy(error, Step.PUBLISH) is Remedy.RECONNECT


def all_added(additions: Sequence[Addition], outcomes: Sequence[str | Refused | None]) -> list[str]:
    """The ids, or the first refusal raised."""
    added: list[str] = []
    for addition, outcome in zip(additions, outcomes, strict=True):
        assert outcome is not None, "what has no outcome yet is an error"
        if isinstance(outcome, Refused):
            before = f" ({len(added)} of {len(outcomes)} messages were added before it)"
            raise _of_stream(addition, outcome, before)
        added.append(outcome)
    return added


def _of_stream(addition: Addition, error: Refused, more: str = "") -> Refused:
    """The store's refusal with the name of the stream."""
    return Refused(f"{addition.stream!r} does not take it: {error}{more}", error.code)


def _messages(count: int) -> str:
    return f"{count} message" if count == 1 else f"{count} messages"


class _Job:
    """One caller's additions, on their way."""

    def __init__(self, additions: Sequence[Addition]) -> None:
        self.additions = additions
        self.outcomes: list[str | Refused | None] = []
        self.sent = 0
        self.future: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()

    def finish(self, error: Exception | None = None) -> None:
        """Tell the caller, if it still listens."""
        if self.future.done():
            return
        try:
            if error is not None:
                raise error
            self.future.set_result(all_added(self.additions, self.outcomes))
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
            batch = Adding(
                [one for job, count in taken for one in job.additions[job.sent : job.sent + count]]
            )
            error: Exception | None = None
            try:
                await self._perform(batch.rest)
            except Exception as problem:
                error = problem
            first = 0
            for job, count in taken:
                outcomes = batch.outcomes[first : first + count]
                first += count
                job.outcomes += outcomes
                job.sent += count
                if None in outcomes and error is not None:
                    self._jobs.remove(job)
                    job.finish(self._explained(job.additions, job.outcomes, error))
                elif job.sent == len(job.additions):
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
                result = await perform(client, make())
            except _failures() as error:
                pause = patience.pause(error)
                if pause is None:
                    raise
                if leads_nowhere(error):
                    await client.connection_pool.disconnect(inuse_connections=False)
            else:
                self._heard_at = time.monotonic()
                return result
            await asyncio.sleep(pause)
            if self._asynchronous is client and self._place != self._connections.place():
                self._left.append(client)  # other coroutines may use it still
                self._asynchronous = None

    async def send_one(
        self, addition: Addition, make: Callable[[], Operation[T]], *, repeatable: bool
    ) -> T:
        """Add by an operation of its own, from a coroutine; what that returns."""
        try:
            return await self._perform_apart(make, repeatable=repeatable)
        except _failures() as error:
            raise self._explained([addition], [None], error, repeatable=repeatable) from error

    async def _perform_apart(
        self, make: Callable[[], Operation[T]], *, repeatable: bool = False
    ) -> T:
        if self._slots is None:
            self._slots = asyncio.Semaphore(THREADS)
        async with self._slots:
            return await self._perform(make, repeatable=repeatable)

    async def cancel(self, stream: str, entry_id: str) -> bool:
        """Take back a scheduled message, from a coroutine; whether it was there."""
        try:
            return await self._perform_apart(partial(cancel, stream, entry_id))
        except _failures() as error:
            raise self._not_cancelled(stream, entry_id, error) from error

    def cancel_blocking(self, stream: str, entry_id: str) -> bool:
        """As `cancel`, from code without an event loop."""
        try:
            return self._run(partial(cancel, stream, entry_id))
        except _failures() as error:
            raise self._not_cancelled(stream, entry_id, error) from error

    def _not_cancelled(self, stream: str, entry_id: str, error: Exception) -> Exception:
        where = redacted(self._connections.url)
        what = f"scheduled message {entry_id} of {stream!r}"
        if isinstance(error, lost_connection()) and may_have_run(error):
            return OutcomeUnknown(
                f"{where} went away while {what} was being cancelled; nobody knows whether it was. If "
                f"cancelling it again returns True it was not: {error}"
            )
        return NotSent(f"{what} could not be cancelled at {where}: {error}")

    def publish_one(
        self, addition: Addition, make: Callable[[], Operation[T]], *, repeatable: bool
    ) -> T:
        """As `send_one`, from code without an event loop."""
        try:
            return self._run(make, repeatable=repeatable)
        except _failures() as error:
            raise self._explained([addition], [None], error, repeatable=repeatable) from error

    def publish(self, additions: Sequence[Addition]) -> list[str]:
        """Add from code without an event loop; safe among threads."""
        outcomes: list[str | Refused | None] = []
        for first in range(0, len(additions), CHUNK):
            batch = Adding(additions[first : first + CHUNK])
            try:
                self._run(batch.rest)
            except _failures() as error:
                outcomes += batch.outcomes
                raise self._explained(additions, outcomes, error) from error
            outcomes += batch.outcomes
        return all_added(additions, outcomes)

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
                    result = run(client, make())
            except _failures() as error:
                pause = patience.pause(error)
                if pause is None:
                    raise
                if leads_nowhere(error):
                    client.connection_pool.disconnect(inuse_connections=False)
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
        outcomes: Sequence[str | Refused | None],
        error: Exception,
        *,
        repeatable: bool = False,
    ) -> Exception:
        """What the caller gets when sending ended with ``error``; an outcome for each addition that
        was begun, None where there is none."""
        refused = may_be_added_later(error)
        if not refused and not isinstance(error, lost_connection()):
            return _of_stream(additions[0], error) if isinstance(error, Refused) else error
        where, stream = redacted(self._connections.url), additions[0].stream
        why = str(error).rstrip(". ")
        added = [one for one in outcomes if isinstance(one, str)]
        left = len(additions) - len(added)
        before = f" {_messages(len(added))} had been added before." if added else ""
        if not may_have_run(error):
            begun = [n for n, one in enumerate(outcomes) if not isinstance(one, str)]
            what = "added to" if refused else "sent to"
            return NotSent(
                f"{_messages(left)} for {stream!r} could not be {what} {where}: {why}.{before} "
                "Sending the rest again adds nothing twice.",
                added=added,
                missing=[*begun, *range(len(outcomes), len(additions))],
            )
        in_flight = sum(one is None for one in outcomes)
        unsent = len(additions) - len(outcomes)
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
