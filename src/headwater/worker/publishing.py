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
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headwater.client.redaction import redacted
from headwater.errors import NotSent, OutcomeUnknown, StoreClosed
from headwater.groups.operation import Command, Operation, Refused, perform, run
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

CHUNK = 1_000
"""Messages sent before their replies are read."""

THREADS = 32
"""Threads that publish at a time; the others wait for a connection."""

RECONNECT_SECONDS = 4.0
"""How long sending is tried again while the store cannot be reached: a restart takes less."""

FIRST_PAUSE, LONGEST_PAUSE = 0.02, 0.5
"""Seconds between two attempts, doubling."""


SEEING_TURNS = 2
"""Turns of the event loop before a batch is sent. After the second the loop has seen that the server
closed a connection, so nothing is sent into it and its outcome is not unknown."""


class Patience:
    """Decides whether one batch is sent again after its connection failed, and when."""

    def __init__(self) -> None:
        self.failed = False
        self._until = time.monotonic() + RECONNECT_SECONDS
        self._pause = FIRST_PAUSE

    def pause(self, error: Exception) -> float | None:
        """Seconds to wait before the next attempt; None if there must be none."""
        self.failed = True
        if may_have_run(error) or isinstance(error, (*refused_credentials(), StoreClosed)):
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


def add_all(additions: Sequence[Addition]) -> Operation[list[str | Refused]]:
    """Add entries in order: an id each, or why it was refused."""
    outcomes: list[str | Refused] = []
    for first in range(0, len(additions), CHUNK):
        commands: list[Command] = [
            ["XADD", one.stream, *one.words()] for one in additions[first : first + CHUNK]
        ]
        replies = yield commands
        outcomes += [reply if isinstance(reply, Refused) else reply.decode() for reply in replies]
    return outcomes


def all_added(outcomes: Sequence[str | Refused]) -> list[str]:
    """The ids, or the first refusal raised."""
    added: list[str] = []
    for outcome in outcomes:
        if isinstance(outcome, Refused):
            where = f"{len(added)} of {len(outcomes)} messages were added before it"
            raise Refused(f"{outcome} ({where})", outcome.code)
        added.append(outcome)
    return added


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
        self._jobs: deque[_Job] = deque()
        self._sending: asyncio.Task[None] | None = None

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
                outcomes = await self._add(batch)
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

    async def _add(self, batch: Sequence[Addition]) -> list[str | Refused]:
        """Send one batch, again while that is safe and the time allows it."""
        patience = Patience()
        while True:
            if self._asynchronous is None:
                self._asynchronous = self._connections.asynchronous()
            for _turn in range(SEEING_TURNS):
                await asyncio.sleep(0)
            try:
                if patience.failed:
                    await perform(self._asynchronous, reach())
                return await perform(self._asynchronous, add_all(batch))
            except lost_connection() as error:
                pause = patience.pause(error)
                if pause is None:
                    raise
            await asyncio.sleep(pause)
            if self._connections.movable:
                client, self._asynchronous = self._asynchronous, None
                await client.aclose()

    def publish(self, additions: Sequence[Addition]) -> list[str]:
        """Add from code without an event loop; safe among threads."""
        outcomes: list[str | Refused] = []
        for first in range(0, len(additions), CHUNK):
            batch = additions[first : first + CHUNK]
            try:
                outcomes += self._add_synchronously(batch)
            except lost_connection() as error:
                raise self._explained(additions, outcomes, len(batch), error) from error
        return all_added(outcomes)

    def _add_synchronously(self, batch: Sequence[Addition]) -> list[str | Refused]:
        """As `_add`, in the caller's thread."""
        patience = Patience()
        while True:
            with self._lock:
                if self._synchronous is None:
                    self._synchronous = self._connections.synchronous()
                client = self._synchronous
            try:
                with self._threads:
                    if patience.failed:
                        run(client, reach())
                    return run(client, add_all(batch))
            except lost_connection() as error:
                pause = patience.pause(error)
                if pause is None:
                    raise
            time.sleep(pause)
            with self._lock:
                if self._connections.movable and self._synchronous is client:
                    self._synchronous = None  # other threads may use it still: not closed here

    def _explained(
        self,
        additions: Sequence[Addition],
        outcomes: Sequence[str | Refused],
        in_flight: int,
        error: Exception,
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
        return OutcomeUnknown(
            f"{where} went away while {_messages(in_flight)} were being added to {stream!r}; "
            f"nobody knows whether they were.{before}{rest} Nothing is sent again by itself: {why}.",
            added=added,
            unknown=in_flight,
        )

    async def close(self) -> None:
        """Send what is on its way and close both connections."""
        if self._sending is not None:
            await asyncio.gather(self._sending, return_exceptions=True)
            self._sending = None
        if self._asynchronous is not None:
            client, self._asynchronous = self._asynchronous, None
            await client.aclose()
        self.close_synchronous()

    def close_synchronous(self) -> None:
        """Close the connections that threads have used."""
        with self._lock:
            client, self._synchronous = self._synchronous, None
        if client is not None:
            client.close()
