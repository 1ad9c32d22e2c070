"""Publishes messages, with or without an event loop, with or without a worker.

Rule 1. An addition that the store may have made is repeated only if the store recognizes the repetition.
        Otherwise `OutcomeUnknown` is raised.
Rule 2. An addition that was not sent, or that the store refused and may accept later (`protocol.store_errors`), is
        repeated for `RECONNECT_SECONDS`, which is longer than a server needs to restart. Then `NotSent` is
        raised.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import inf
from typing import TYPE_CHECKING, TypeVar

from headwater.client.redaction import redacted
from headwater.errors import HeadwaterError, NotReplicated, NotSent, OutcomeUnknown, StoreClosed
from headwater.groups.protocol.operation import Operation, Refused, perform, run
from headwater.groups.protocol.store_errors import Remedy, Step, refused_credentials, remedy
from headwater.groups.settling.adding import CHUNK, Adding, may_be_added_later
from headwater.groups.settling.scheduling import cancel
from headwater.groups.settling.settling import Addition, size_of
from headwater.worker.settle.settle import ALONE_BYTES
from headwater.worker.store.connections import (
    Connections,
    lost_connection,
    may_have_run,
)
from headwater.worker.store.shared_client import SharedClient

if TYPE_CHECKING:
    import redis
    import redis.asyncio


T = TypeVar("T")

THREADS = 32
"""Maximum number of threads that publish at a time, and of coroutines outside shared batches. Others wait."""

QUIET_SECONDS = 1.0
"""Seconds without a reply after which, before messages are sent, the store is asked whether it executes commands.
A store that has restarted and still loads its data would refuse the first message of a batch, and the outcome of
the other messages would be unknown."""

SEEING_TURNS = 2
"""Number of turns of the event loop before a batch is sent. After the second turn, the loop has noticed a
connection that the server closed. A message sent over such a connection would have an unknown outcome."""


def all_added(additions: Sequence[Addition], outcomes: Sequence[str | Refused | None]) -> list[str]:
    """Return the ids of the additions. Raises the first refusal among ``outcomes``, if any."""
    added: list[str] = []
    for addition, outcome in zip(additions, outcomes, strict=True):
        assert outcome is not None, "every addition has an outcome here"
        if isinstance(outcome, Refused):
            before = f" ({len(added)} of {len(outcomes)} messages were added before)"
            raise _of_stream(addition, outcome, before)
        added.append(outcome)
    return added


def _of_stream(addition: Addition, error: Refused, more: str = "") -> Refused:
    """Return the store's refusal with the name of the stream."""
    return Refused(f"stream {addition.stream!r} refused a message: {error}{more}", error.code)


def _messages(count: int) -> str:
    return f"{count} message" if count == 1 else f"{count} messages"


class _Job:
    """The additions of one caller while they are sent."""

    def __init__(self, additions: Sequence[Addition]) -> None:
        self.additions = additions
        self.outcomes: list[str | Refused | None] = []
        self.sent = 0
        self.future: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()

    def finish(self, error: Exception | None = None) -> None:
        """Set the caller's result, unless the caller was cancelled."""
        if self.future.done():
            return
        try:
            if error is not None:
                raise error
            self.future.set_result(all_added(self.additions, self.outcomes))
        except Exception as problem:
            self.future.set_exception(problem)


class Publisher:
    """Publishes for an app. It connects when a connection is first needed.

    Coroutines that publish at the same time share one connection and its round trips.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._lock = threading.Lock()
        self._threads = threading.BoundedSemaphore(THREADS)
        self._synchronous: SharedClient[redis.Redis] | None = None
        self._asynchronous: SharedClient[redis.asyncio.Redis] | None = None
        self._heard_at = -inf
        self._loop: asyncio.AbstractEventLoop | None = None
        self._jobs: deque[_Job] = deque()
        self._sending: asyncio.Task[None] | None = None
        self._slots = asyncio.Semaphore(THREADS)
        self._apart: set[asyncio.Future[None]] = set()
        """One future for each coroutine that sends outside the shared batches."""

    async def send(self, additions: Sequence[Addition]) -> list[str]:
        """Add messages from a coroutine and return their ids. If this is cancelled, they may have been added."""
        if not additions:
            return []
        if len(additions) == 1 and size_of(additions) >= ALONE_BYTES:
            # A large message has a connection of its own, so that it does not delay others.
            return await self.send_apart(Adding(additions), additions)
        self._enter_loop()
        job = _Job(additions)
        self._jobs.append(job)
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send_all(), name="headwater publisher")
        return await job.future

    def _enter_loop(self) -> None:
        """Bind to the running event loop. Raises `HeadwaterError` while another open loop uses this publisher."""
        loop = asyncio.get_running_loop()
        if loop is self._loop:
            return
        used = self._asynchronous is not None or self._on_their_way()
        if self._loop is not None and not self._loop.is_closed() and used:
            raise HeadwaterError(
                "this app publishes in another event loop: use one App for each event loop"
            )
        # The connections of a loop that has ended can be neither used nor closed.
        self._loop, self._asynchronous, self._sending = loop, None, None
        self._jobs.clear()
        self._apart.clear()
        self._slots = asyncio.Semaphore(THREADS)

    async def _send_all(self) -> None:
        """Send waiting jobs in shared batches until none is left."""
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
        """Run an operation and return its result. Repeats it as long as `PublishRetry` permits."""
        retry = PublishRetry(repeatable=repeatable)
        while True:
            shared = self._asynchronous
            if shared is None:
                place = self._connections.place()
                shared = SharedClient(self._connections.asynchronous(), place)
                self._asynchronous = shared
            client = shared.acquire()
            try:
                for _turn in range(SEEING_TURNS):
                    await asyncio.sleep(0)
                if retry.failed or time.monotonic() - self._heard_at > QUIET_SECONDS:
                    await perform(client, reach())
                result = await perform(client, make())
            except failures() as error:
                pause = retry.pause(error)
                if pause is None:
                    raise
                if wrong_server(error):
                    await client.connection_pool.disconnect(inuse_connections=False)
            else:
                self._heard_at = time.monotonic()
                return result
            finally:
                if shared.release():
                    await client.aclose()
            await asyncio.sleep(pause)
            if shared.place != self._connections.place():
                await self._retire(shared)

    async def _retire(self, shared: SharedClient[redis.asyncio.Redis]) -> None:
        """Begin no more operations with this client, and close it once it is unused."""
        if self._asynchronous is shared:
            self._asynchronous = None
            if shared.retire():
                await shared.client.aclose()

    async def send_apart(self, adding: Adding, additions: Sequence[Addition]) -> list[str]:
        """Add messages from a coroutine, not in a batch with others, and return their ids. Errors describe
        the messages by ``additions``."""
        repeatable = adding.once is not None
        for part in adding.parts():
            with self._explaining(adding, additions, part):
                await self._perform_apart(part.rest, repeatable=repeatable)
        return all_added(additions, adding.outcomes)

    @contextmanager
    def _explaining(
        self, adding: Adding, additions: Sequence[Addition], part: Adding
    ) -> Iterator[None]:
        """Add to each error while ``part`` is sent a description of the messages that were and were not added."""
        first = next((n for n, one in enumerate(adding.outcomes) if one is None), 0)
        try:
            yield
        except NotReplicated as error:
            begun = [*adding.outcomes[:first], *part.outcomes]
            error.added = [one for one in begun if isinstance(one, str)]
            error.missing = list(range(len(begun), len(additions)))
            raise
        except failures() as error:
            begun = [*adding.outcomes[:first], *part.outcomes]
            repeatable = adding.once is not None
            raise self._explained(additions, begun, error, repeatable=repeatable) from error

    async def _perform_apart(
        self, make: Callable[[], Operation[T]], *, repeatable: bool = False
    ) -> T:
        self._enter_loop()
        ended = asyncio.get_running_loop().create_future()
        self._apart.add(ended)
        try:
            async with self._slots:
                return await self._perform(make, repeatable=repeatable)
        finally:
            self._apart.discard(ended)
            if not ended.done():
                ended.set_result(None)

    async def cancel(self, stream: str, entry_id: str) -> bool:
        """Cancel a scheduled message, from a coroutine. Return whether it was still scheduled."""
        try:
            return await self._perform_apart(partial(cancel, stream, entry_id))
        except failures() as error:
            raise self._not_cancelled(stream, entry_id, error) from error

    def cancel_blocking(self, stream: str, entry_id: str) -> bool:
        """Do the same as `cancel`, for code without an event loop."""
        try:
            return self._run(partial(cancel, stream, entry_id))
        except failures() as error:
            raise self._not_cancelled(stream, entry_id, error) from error

    def _not_cancelled(self, stream: str, entry_id: str, error: Exception) -> Exception:
        where = redacted(self._connections.url)
        what = f"scheduled message {entry_id} of {stream!r}"
        if isinstance(error, lost_connection()) and may_have_run(error):
            return OutcomeUnknown(
                f"the connection to {where} broke while {what} was being cancelled; it is unknown whether "
                f"it was. If cancelling it again returns True, it was not: {error}"
            )
        return NotSent(f"{what} could not be cancelled at {where}: {error}")

    def publish(self, adding: Adding, additions: Sequence[Addition]) -> list[str]:
        """Do the same as `send_apart`, for code without an event loop. Thread-safe."""
        repeatable = adding.once is not None
        for part in adding.parts():
            with self._explaining(adding, additions, part):
                self._run(part.rest, repeatable=repeatable)
        return all_added(additions, adding.outcomes)

    def _run(self, make: Callable[[], Operation[T]], *, repeatable: bool = False) -> T:
        """Do the same as `_perform`, in the caller's thread."""
        retry = PublishRetry(repeatable=repeatable)
        while True:
            with self._lock:
                shared = self._synchronous
                if shared is None:
                    place = self._connections.place()
                    shared = SharedClient(self._connections.synchronous(), place)
                    self._synchronous = shared
                client = shared.acquire()
            try:
                with self._threads:
                    if retry.failed or time.monotonic() - self._heard_at > QUIET_SECONDS:
                        run(client, reach())
                    result = run(client, make())
            except failures() as error:
                pause = retry.pause(error)
                if pause is None:
                    raise
                if wrong_server(error):
                    client.connection_pool.disconnect(inuse_connections=False)
            else:
                self._heard_at = time.monotonic()
                return result
            finally:
                with self._lock:
                    last = shared.release()
                if last:
                    client.close()
            time.sleep(pause)
            if shared.place != self._connections.place():
                self._retire_synchronous(shared)

    def _explained(
        self,
        additions: Sequence[Addition],
        outcomes: Sequence[str | Refused | None],
        error: Exception,
        *,
        repeatable: bool = False,
    ) -> Exception:
        """Return the exception for the caller after sending ended with ``error``. ``outcomes`` has one item for
        each addition that was begun; an item is None if its outcome is unknown."""
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
            else "They are not sent again automatically"
        )
        return OutcomeUnknown(
            f"the connection to {where} broke during the addition of {_messages(in_flight)} to "
            f"{stream!r}; the outcome is unknown.{before}{rest} {advice}: {why}.",
            added=added,
            unknown=in_flight,
        )

    async def close(self, *, opened: Callable[[], bool]) -> None:
        """Wait for all messages to be sent, and close the connections that coroutines have used. Stop if the app
        is ``opened`` again."""
        if self._loop is not asyncio.get_running_loop():
            return
        while not opened() and (waiting := self._on_their_way()):
            await asyncio.wait(waiting)
        if not opened() and self._asynchronous is not None:
            await self._retire(self._asynchronous)

    def _on_their_way(self) -> set[asyncio.Future[None]]:
        sending = self._sending
        return {*self._apart, *([] if sending is None or sending.done() else [sending])}

    def close_synchronous(self) -> None:
        """Close the connections that threads have used, once none uses them."""
        if self._synchronous is not None:
            self._retire_synchronous(self._synchronous)

    def _retire_synchronous(self, shared: SharedClient[redis.Redis]) -> None:
        """Do the same as `_retire`, for the client of threads."""
        with self._lock:
            unused = self._synchronous is shared and shared.retire()
            if self._synchronous is shared:
                self._synchronous = None
        if unused:
            shared.client.close()


# --- whether and when publishing is repeated after an error ---------------------------------------


RECONNECT_SECONDS = 4.0
"""Time for which sending is repeated while the store cannot be reached, in seconds. A restart takes less time."""

FIRST_PAUSE, LONGEST_PAUSE = 0.02, 0.5
"""Shortest and longest pause between two attempts, in seconds. The pause doubles each time."""


class PublishRetry:
    """Decides whether and when to send again after an error.

    With ``repeatable``, an operation is repeated even if it may have been carried out.
    """

    def __init__(self, *, repeatable: bool) -> None:
        self.failed = False
        self._repeatable = repeatable
        self._until = time.monotonic() + RECONNECT_SECONDS
        self._pause = FIRST_PAUSE

    def pause(self, error: Exception) -> float | None:
        """Return the seconds to wait before the next attempt, or None if the error is final."""
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
    """Check that the store executes commands. While it loads its data, this raises redis-py's
    BusyLoadingError, which is handled as a refused connection."""
    yield [["PING"]]


def failures() -> tuple[type[Exception], ...]:
    """Return the errors of an attempt to send after which `PublishRetry` decides."""
    return (Refused, *lost_connection())


def wrong_server(error: Exception) -> bool:
    """Return whether the connection leads to a server that refuses writes, such as a demoted primary. A new
    connection may reach its successor."""
    return isinstance(error, Refused) and remedy(error, Step.PUBLISH) is Remedy.RECONNECT
