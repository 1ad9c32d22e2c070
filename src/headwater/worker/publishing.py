"""Adding messages to streams, with or without an event loop, with or without a worker.

Rule. An addition that was sent is never sent again by itself: when the connection breaks under it,
nobody knows whether it was made, and the caller is told so.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headwater.client.redaction import redacted
from headwater.errors import Disconnected
from headwater.groups.operation import Command, Operation, Refused, perform, run
from headwater.groups.settling import Addition
from headwater.worker.connections import Connections, lost_connection

if TYPE_CHECKING:
    import redis
    import redis.asyncio

CHUNK = 1_000
"""Messages sent before their replies are read."""

THREADS = 32
"""Threads that publish at a time; the others wait for a connection."""


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
        if self._asynchronous is None:
            self._asynchronous = self._connections.asynchronous()
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
                outcomes = await perform(self._asynchronous, add_all(batch))
            except Exception as error:
                self._fail([job for job, _count in taken], error)
                continue
            for job, count in taken:
                job.outcomes += outcomes[:count]
                del outcomes[:count]
                job.sent += count
                if job.sent == len(job.additions):
                    self._jobs.remove(job)
                    job.finish()

    def _fail(self, jobs: Sequence[_Job], error: Exception) -> None:
        """Nobody knows what became of these."""
        for job in jobs:
            self._jobs.remove(job)
            lost = isinstance(error, lost_connection())
            job.finish(self._unknown(job.additions, error) if lost else error)

    def publish(self, additions: Sequence[Addition]) -> list[str]:
        """Add from code without an event loop; safe among threads."""
        if not additions:
            return []
        with self._lock:
            if self._synchronous is None:
                self._synchronous = self._connections.synchronous()
        try:
            with self._threads:
                return all_added(run(self._synchronous, add_all(additions)))
        except lost_connection() as error:
            raise self._unknown(additions, error) from error

    def _unknown(self, additions: Sequence[Addition], error: Exception) -> Disconnected:
        return Disconnected(
            f"{redacted(self._connections.url)} went away while {len(additions)} messages were "
            f"being added to {additions[0].stream!r}; nobody knows how many were added, so none is "
            f"sent again by itself: {error}"
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
