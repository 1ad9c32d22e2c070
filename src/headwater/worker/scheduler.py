"""Publishes scheduled messages when they are due, for every stream that an app's consumers use, and adds ticks.

    Scheduler ── checks every second which streams have scheduled messages
        └── Serving, one per stream: read ──▶ delay until due, or publish ──▶ read

Rule 1. Until a message is scheduled for it, a stream costs one EXISTS a second. Then it costs a connection with a
        blocked read.
Rule 2. An error of the store does not end the worker. The scheduler waits, and the messages are published late.
Rule 3. All entries of a read are settled before the next read, so they need no lease renewal.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from headwater.errors import HeadwaterError
from headwater.groups.membership.member import Member, join, retire
from headwater.groups.protocol.capabilities import probe
from headwater.groups.protocol.content import ContentPages
from headwater.groups.protocol.operation import GroupVanished, perform
from headwater.groups.protocol.store_errors import Remedy, Step, remedy
from headwater.groups.reading.claiming import Delivered, MemberReader, recover
from headwater.groups.settling.scheduling import (
    READ_ENTRIES,
    Handled,
    in_use,
    publish_by_script,
    publish_due,
    publisher_of,
)
from headwater.messages.dead import error_text
from headwater.worker.declare.declaration import Consumer
from headwater.worker.declare.schedules import Schedule, Ticking
from headwater.worker.loop import TaskEnded
from headwater.worker.store.clocks import Timers, sleep
from headwater.worker.store.connections import Connections, Pause, close_client, lost_connection
from headwater.worker.store.reaping import Reaping
from headwater.worker.store.retrying_client import RetryingClient
from headwater.worker.store.shared_connection import SharedConnection, SharedConnections
from headwater.worker.store.waiting import cancelled, ended

if TYPE_CHECKING:
    import redis.asyncio

log = logging.getLogger("headwater.worker")

LOOK_SECONDS = 1.0
"""Interval at which streams without a scheduled message are checked, in seconds. The first message of a stream is
late by at most this time."""

RENEW_SECONDS = 60.0
"""Interval at which the connection for these checks is replaced, in seconds."""

DEADLINE_SECONDS = 10.0
"""Maximum time to wait for a reply, in seconds."""

LEAVING_SECONDS = 2.0
"""Maximum seconds at a stop for settling the entries of the last read. Another worker claims unsettled ones."""


def served_streams(consumers: Sequence[Consumer]) -> list[str]:
    """Return the streams whose scheduled messages the workers of these consumers publish: those that the
    consumers read, and those to which they publish results."""
    streams = [consumer.stream for consumer in consumers if consumer.schedule is None]
    streams += [consumer.into for consumer in consumers if consumer.into is not None]
    return list(dict.fromkeys(part.name for stream in streams for part in stream.parts))


class Scheduler:
    """Publishes the scheduled messages of ``streams``. It must be made and used in one event loop.

    ``failed`` gets the error of a task that ended without having been stopped.
    """

    def __init__(
        self,
        streams: Sequence[str],
        *,
        consumer_name: str,
        connections: Connections,
        shared: SharedConnections,
        clock: Timers,
        schedules: Sequence[Schedule] = (),
    ) -> None:
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._streams = list(streams)
        self._schedules = schedules
        self._consumer_name = consumer_name
        self._connections = connections
        self._shared = shared
        self._clock = clock
        self._serving: dict[str, Serving] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        """The tasks by stream; the key "" is the task that checks for new scheduled messages."""
        self._ending = False

    def start(self) -> None:
        """Begin to check the streams."""
        if self._streams:
            self._begin("", self._look())
        for schedule in self._schedules:
            self._tick(schedule)

    def _tick(self, schedule: Schedule) -> None:
        who = f"ticks of {schedule.stream}"
        client = RetryingClient(
            who, stream=schedule.stream, clock=self._clock, connections=self._shared
        )
        self._begin(who, Ticking(schedule, client, self._clock).run(), name=who)

    async def stop(self) -> None:
        """Stop publishing, after settling the entries of the last read and removing the consumers."""
        self._end()
        serving = list(self._serving.values())
        await ended(list(self._tasks.values()))
        if serving:
            leaving = [asyncio.ensure_future(one.leave()) for one in serving]
            _done, late = await asyncio.wait(leaving, timeout=LEAVING_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*leaving, return_exceptions=True)
        await self.close()

    def abandon(self) -> None:
        """Cancel all work, as SIGKILL would."""
        self._end()

    async def close(self) -> None:
        """Cancel all work, and wait until tasks have ended and connections are closed."""
        self._end()
        await ended(list(self._tasks.values()))
        self.failed.cancel()

    def _end(self) -> None:
        self._ending = True
        for task in list(self._tasks.values()):
            task.cancel()

    def _begin(self, stream: str, work: Coroutine[Any, Any, None], name: str = "") -> None:
        if not name:
            name = f"publisher of scheduled messages of {stream}" if stream else "scheduler"
        task = self._tasks[stream] = asyncio.create_task(work, name=name)
        task.add_done_callback(lambda task: self._ended(stream, task))

    def _ended(self, stream: str, task: asyncio.Task[None]) -> None:
        del self._tasks[stream]
        error = None if task.cancelled() else task.exception()
        if self._ending:
            return
        if stream and error is None and not task.cancelled():
            del self._serving[stream]  # its scheduled messages were deleted: check for new ones
        elif not self.failed.done():
            why = "without having been stopped" if error is None else error_text(error)
            self.failed.set_exception(TaskEnded(f"{task.get_name()} ended: {why}"))
            self.failed.exception()  # retrieved here, because asyncio would log it if the loop closed first

    async def _look(self) -> None:
        """Check every second, and begin to serve each stream that has scheduled messages."""
        who = "scheduler"
        pause = Pause()
        renew_at = self._clock.monotonic() + RENEW_SECONDS
        try:
            while not cancelled():
                idle = [stream for stream in self._streams if stream not in self._serving]
                try:
                    used = await self._used(idle)
                except Exception as error:
                    await sleep(self._clock, _pause(self._connections, who, error, pause))
                    continue
                if idle:
                    self._connections.availability.well(who)
                pause.reset()
                for stream in used:
                    serving = self._serving[stream] = self._make(stream, self._shared.of(stream))
                    self._begin(stream, serving.run())
                await sleep(self._clock, LOOK_SECONDS, upkeep=True)
                if self._clock.monotonic() >= renew_at:
                    # With an open connection, a changed target of the address would never be noticed.
                    renew_at = self._clock.monotonic() + RENEW_SECONDS
                    for connection in {self._shared.of(stream) for stream in self._streams}:
                        connection.renew()
        finally:
            self._connections.availability.left(who)

    async def _used(self, streams: Sequence[str]) -> list[str]:
        """Return the streams among ``streams`` that have scheduled messages."""
        nodes: dict[SharedConnection, list[str]] = {}
        for stream in streams:
            nodes.setdefault(self._shared.of(stream), []).append(stream)
        found = []
        for connection, part in nodes.items():
            used = await perform(connection, in_use(part))
            found += [stream for stream, one in zip(part, used, strict=True) if one]
        return found

    def _make(self, stream: str, client: SharedConnection) -> Serving:
        return Serving(
            stream,
            client,
            consumer_name=self._consumer_name,
            connections=self._connections,
            clock=self._clock,
        )


class Serving:
    """Publishes the scheduled messages of one stream. ``client`` sends the commands that must not wait for
    the blocked read."""

    def __init__(
        self,
        stream: str,
        client: SharedConnection,
        *,
        consumer_name: str,
        connections: Connections,
        clock: Timers,
    ) -> None:
        self._stream = stream
        self._client = client
        self._consumer_name = consumer_name
        self._connections = connections
        self._clock = clock
        self._member: Member | None = None
        self._pause = Pause()
        self._reaping = Reaping(clock)

    @property
    def _who(self) -> str:
        return f"publisher of scheduled messages of {self._stream}"

    async def run(self) -> None:
        """Publish until cancelled, or until the stream of scheduled messages is gone."""
        try:
            while not cancelled():
                client = self._connections.reading(deadline_s=DEADLINE_SECONDS)
                try:
                    await self._serve(client)
                except GroupVanished:
                    return
                except Exception as error:
                    seconds = _pause(self._connections, self._who, error, self._pause)
                    await sleep(self._clock, seconds)
                finally:
                    await close_client(client)
        finally:
            self._connections.availability.left(self._who)

    async def _serve(self, client: redis.asyncio.Redis) -> None:
        """Publish over one connection. Raises errors of the store and of the connection."""
        member = await self._join(client)
        reader = MemberReader(member, gone=self._gone, looks_for_gone=False)
        found, _gone = await perform(client, recover(member, []))
        await self._publish(client, reader, found)
        pages, scripted = ContentPages(), not member.able.verbs
        while not cancelled():
            now = self._clock.monotonic()
            most = READ_ENTRIES if scripted else max(READ_ENTRIES, 2 * len(found))
            limit = min(most, pages.entries)
            found = await perform(client, reader.read(limit=limit, now=now))
            pages.read([one.fields for one in found])
            await self._publish(client, reader, found)
            more = bool(found) and scripted
            while more and not cancelled():
                more, handled = await perform(client, publish_by_script(member, self._stream))
                self._handled(reader, handled)
            await perform(client, self._reaping.if_due(member))
            self._pause.reset()
            self._connections.availability.well(self._who)

    async def _join(self, client: redis.asyncio.Redis) -> Member:
        """Join the group. Raises `GroupVanished` if the stream of scheduled messages is gone."""
        able = await perform(client, probe())
        member = publisher_of(self._stream, self._consumer_name, able)
        if not (await perform(client, in_use([self._stream])))[0]:
            raise GroupVanished(f"NOGROUP {member.stream} is gone", "NOGROUP")
        await perform(client, join(member))
        if self._member != member:
            self._member = member
            log.info("publishes scheduled messages of %s as %s", self._stream, self._consumer_name)
        return member

    async def _publish(
        self, client: redis.asyncio.Redis, reader: MemberReader, found: Sequence[Delivered]
    ) -> None:
        if not found:
            return
        self._handled(
            reader, await perform(client, publish_due(reader.member, self._stream, found))
        )

    def _handled(self, reader: MemberReader, handled: Handled) -> None:
        """Note when the next entry is due, and log the messages that the store refused."""
        if handled.next_ms is not None:
            reader.expect(self._clock.monotonic() + handled.next_ms / 1000)
        for refusal in handled.refused:
            log.error(
                "scheduled message %s of %s is due, but the stream refuses it; publishing is repeated "
                "every minute until the stream accepts the message or it is cancelled: %s",
                refusal.id.decode(),
                self._stream,
                refusal.error,
            )

    async def leave(self) -> None:
        """Settle the entries of the last read and leave the group, after `run` was cancelled."""
        member = self._member
        if member is None:
            return
        troubles: tuple[type[Exception], ...] = (HeadwaterError, *lost_connection())
        client = self._connections.asynchronous(deadline_s=DEADLINE_SECONDS)
        try:
            found, _gone = await perform(client, recover(member, []))
            await self._publish(client, MemberReader(member, gone=self._gone), found)
            await perform(client, retire(member))
        except troubles as error:
            log.debug("%s did not leave its group: %s", self._who, error)
        finally:
            await close_client(client)

    def _gone(self, ids: Sequence[bytes]) -> None:
        log.debug("%d scheduled messages of %s were cancelled", len(ids), self._stream)


def _pause(connections: Connections, who: str, error: Exception, pause: Pause) -> float:
    """Return the seconds to wait after ``error``. Raises ``error`` if it does not come from the store."""
    if remedy(error, Step.READ) is Remedy.END and not isinstance(error, HeadwaterError):
        raise error
    seconds = pause.next()
    connections.availability.troubled(who, error, pause=seconds)
    return seconds
