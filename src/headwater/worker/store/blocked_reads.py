"""Combines the blocking reads of many streams in one command.

    StreamReads, one for each consumer ──wait──▶ BlockedReads ──XREADGROUP … STREAMS a b c > > >──▶ store
                                       ◀──entries, or None: look yourself──

Rule 1. Each consumer gets only as many entries as it has room for. Redis applies COUNT to every stream of a
        command, so COUNT is the smallest room. A separate command reads more if a stream has returned COUNT.
Rule 2. A consumer that gets room while the command blocks looks for entries immediately, by a separate command. If
        it finds none, it ends the blocked command (CLIENT UNBLOCK), and the next command includes its stream.
Rule 3. After an error of the command, each stream is read by a separate command, and only streams whose own
        command fails get the error. A broken connection is an error of all streams.
Rule 4. On servers that do not claim while they read, and for entries that a lost reply may have left, the pending
        entries must be examined at intervals. One request examines those of all streams. Only the readers of
        streams that have pending entries are told to look.
Rule 5. The order of the streams changes from one command to the next.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from math import ceil, inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headwater.client.silence import Silence, TransferProgress
from headwater.common.names import bytes_of
from headwater.errors import HeadwaterError
from headwater.groups.protocol.operation import (
    Command,
    Operation,
    Refused,
    Script,
    Word,
    batched,
    exchange,
    naming_rules,
    perform,
    single,
)
from headwater.groups.protocol.store_errors import lost_connection
from headwater.groups.reading.claiming import MAX_BLOCK_MS
from headwater.worker.store.clocks import Timers
from headwater.worker.store.connections import close_client
from headwater.worker.store.waiting import cancelled, ended

if TYPE_CHECKING:
    import redis.asyncio

log = logging.getLogger("headwater.worker")

MOST_ENTRIES: Final = 4_096
"""Maximum total number of entries that a command for several streams asks for."""

UNENDABLE_BLOCK_MS: Final = 50
"""Time for which a command for several streams blocks if the user may not end it (CLIENT UNBLOCK), in milliseconds."""

TURNS: Final = 4
"""Number of turns of the event loop for which the next command waits for consumers that just got entries."""

END_AGAIN_SECONDS: Final = 0.002
"""Pause in seconds before repeating CLIENT UNBLOCK, which has no effect until the read blocks in the server."""

LOOKED_AT: Final = 250
"""Maximum number of streams that one request examines: a third of a millisecond of the server's time."""

_PENDING = Script(
    """
-- KEYS streams. ARGV the group. Return the numbers of the streams in which it has pending entries.
local found = {}
for n, stream in ipairs(KEYS) do
  local summary = redis.pcall('XPENDING', stream, ARGV[1])
  if summary.err or summary[1] > 0 then found[#found + 1] = n end
end
return found
"""
)


def _pending_by_script(streams: Sequence[str], group: str) -> Operation[list[bool] | None]:
    """Return for each stream whether its group has pending entries; None if the user may not run scripts."""
    try:
        found = set((yield from _PENDING.call(streams, [group])))
    except Refused:
        return None
    return [number in found for number in range(1, len(streams) + 1)]


class Head(NamedTuple):
    """The part of a command that reads must have in common to share one command."""

    words: tuple[Word, ...]
    """The words before COUNT: XREAD, or XREADGROUP GROUP with group and consumer."""
    options: tuple[Word, ...] = ()
    """The words between BLOCK and STREAMS."""


class WaitingStream:
    """A stream that waits for entries."""

    __slots__ = (
        "answer",
        "group",
        "limit",
        "look_at",
        "look_s",
        "position",
        "slow",
        "stale",
        "stream",
        "until",
    )

    def __init__(
        self,
        stream: str,
        group: str,
        position: Word,
        limit: int,
        *,
        stale: Callable[[], bool],
        slow: Callable[[Silence], None],
    ) -> None:
        self.stream = stream
        self.group = group
        self.position = position
        self.limit = limit
        self.stale = stale
        """Function that returns whether the consumer must do something else before it reads again."""
        self.slow = slow
        """Function that is called with a reply that takes longer than a deadline."""
        self.until = inf
        """Time at which to return without entries, by the worker's monotonic clock in seconds."""
        self.look_at = inf
        """Time at which to examine the pending entries of the group, by the same clock."""
        self.look_s = inf
        self.answer: asyncio.Future[list[Any] | None] = asyncio.get_running_loop().create_future()

    def release(self, entries: list[Any] | None = None) -> None:
        if not self.answer.done():
            self.answer.set_result(entries)


class Connecting(NamedTuple):
    """The connections of `BlockedReads`."""

    name: str
    """The name of the connection (CLIENT SETNAME)."""
    blocking: Callable[[], redis.asyncio.Redis]
    """Function that opens a connection for commands that block."""
    shared: Callable[[], Any]
    """Function that returns the connection for commands that must not wait for blocked ones."""


class BlockedReads:
    """The blocked command of all waiting streams whose reads have the same `Head`, over a separate connection."""

    def __init__(self, head: Head, *, connecting: Connecting, clock: Timers) -> None:
        self.head = head
        self.answered_at = clock.monotonic()
        """Time of the store's last answer, by the worker's monotonic clock in seconds."""
        self.sent_at = self.answered_at
        """Time when the last command was sent, by the same clock."""
        self._connecting = connecting
        self._clock = clock
        self._client: redis.asyncio.Redis | None = None
        self._progress = TransferProgress(self._slow)
        self._connection_id = 0
        self._waiting: dict[bytes, WaitingStream] = {}
        self._called: dict[bytes, WaitingStream] = {}
        """The streams of the command that blocks now, by name."""
        self._calls = self._end_upto = 0
        self._ends_at = self._next = 0.0
        self._several = False
        """True once several streams have waited at the same time."""
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None

    @property
    def reply(self) -> Silence | None:
        """The reply that is under way, if it is large or takes long; otherwise None."""
        return self._progress.of

    @property
    def calling(self) -> bool:
        """True while a command of other streams blocks."""
        return bool(self._called)

    @property
    def others(self) -> bool:
        """True while other streams wait for entries."""
        return bool(self._waiting)

    async def wait(self, one: WaitingStream) -> list[Any] | None:
        """Return entries of a stream, or None if its consumer should look for entries itself."""
        name = bytes_of(one.stream)
        self._waiting[name] = one
        self._wake.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="blocked reads")
        elif self._called:
            self.end()
        try:
            return await one.answer
        finally:
            if self._waiting.get(name) is one:  # the wait was cancelled
                del self._waiting[name]
                if name in self._called:
                    self.end()

    def return_by(self, one: WaitingStream, until: float) -> None:
        """Make a waiting stream return without entries at the time ``until``, at the latest."""
        one.until = min(one.until, until)
        if self._called and one.until < self._ends_at:
            self.end()

    def end(self) -> None:
        """End the command that blocks now, so that the next one begins."""
        self._end_upto = self._calls
        if self._ending is None:
            self._ending = asyncio.create_task(self._end(), name="end a blocked read")

    async def _end(self) -> None:
        try:
            await asyncio.sleep(0)
            while self._called and self._calls <= self._end_upto and self._connection_id:
                unblock = single("CLIENT", "UNBLOCK", self._connection_id)
                try:
                    await perform(self._connecting.shared(), unblock)
                except Refused:
                    self._connection_id = 0
                except lost_connection():
                    return  # the other connection will break too
                await asyncio.sleep(END_AGAIN_SECONDS)  # real time, for the network
        finally:
            self._ending = None

    async def close(self) -> None:
        """End the command and close the connection. Waiting streams return without entries."""
        tasks = [task for task in (self._task, self._ending, self._looking) if task is not None]
        for task in tasks:
            task.cancel()
        await ended(tasks)
        self._fail(None, list(self._waiting.values()))
        await self._close_client()

    def _slow(self, reply: Silence) -> None:
        for one in self._called.values():
            one.slow(reply)

    # --- the task ---------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            while not cancelled():
                if not self._waiting:
                    self._wake.clear()
                    await self._wake.wait()
                self._look()
                await self._call()
        except Exception as error:
            self._task = None
            self._fail(error, list(self._waiting.values()))

    def _release_due(self) -> None:
        """Release streams whose time has come, and note the time of the next one."""
        now = self._clock.monotonic() + 1e-5  # the clock counts in microseconds
        released = []
        self._next = inf
        for name, one in self._waiting.items():
            if one.until <= now or one.stale():
                released.append((name, one))
            else:
                self._next = min(self._next, one.until, one.look_at)
        for name, one in released:
            del self._waiting[name]
            one.release()

    def _block_ms(self) -> int:
        now = self._clock.monotonic()
        ends, most = self._next, MAX_BLOCK_MS
        self._several = self._several or len(self._waiting) > 1
        if not self._connection_id and self._several:
            most = UNENDABLE_BLOCK_MS
        block_ms = max(1, min(most, ceil((ends - now) * 1000) if ends < inf else most))
        self._ends_at = now + block_ms / 1000
        return block_ms

    async def _call(self) -> None:
        """Send one command for all waiting streams, and pass on its entries."""
        try:
            client = await self._connected()
        except _troubles() as error:
            await self._lost(error, list(self._waiting.values()))
            return
        # No other task runs from here until the command is sent.
        self._release_due()
        if not self._waiting:
            return
        self._calls += 1
        called = dict(self._waiting)
        several = len(called) > 1
        limit = min(one.limit for one in called.values())
        if several:
            limit = max(1, min(limit, MOST_ENTRIES // len(called)))
            names = [*called]
            first = self._calls % len(names)
            called = {name: called[name] for name in names[first:] + names[:first]}
        self._called = called
        try:
            self.sent_at = self._clock.monotonic()
            with self._progress.watched():
                replies = await exchange(client, [self._command(called, limit)])
        except Refused as error:
            replies = [error]
        except _troubles() as error:
            self._called = {}
            await self._lost(error, list(called.values()))
            return
        finally:
            self._called = {}
        if isinstance(replies[0], Refused):
            await self._apart(replies[0], called)
            return
        self.answered_at = self._clock.monotonic()
        served = self._pass_on(replies[0], limit)
        if not several:
            for one in [*called.values()]:
                self._waiting.pop(bytes_of(one.stream), None)
                one.release()
        for _ in range(TURNS if served and self._waiting else 0):
            if all(name in self._waiting for name in served):
                break
            await asyncio.sleep(0)

    async def _lost(self, error: Exception, which: Sequence[WaitingStream]) -> None:
        """Use another connection next, and raise the error of the broken connection in the reads of ``which``."""
        await self._close_client()
        self._connecting.shared().renew()
        self._fail(error, which)

    def _command(self, called: dict[bytes, WaitingStream], limit: int) -> Command:
        return [
            *self.head.words,
            "COUNT",
            limit,
            "BLOCK",
            self._block_ms(),
            *self.head.options,
            "STREAMS",
            *called,
            *[one.position for one in called.values()],
        ]

    def _pass_on(self, reply: Any, limit: int) -> list[bytes]:
        """Give entries to the streams that wait for them, and return their names."""
        served = []
        for name, entries in streams_of(reply):
            one = self._waiting.pop(name, None)
            if one is not None:  # otherwise its consumer was abandoned, as after SIGKILL
                one.limit = limit
                one.release(entries)
                served.append(name)
        return served

    async def _apart(self, error: Refused, called: dict[bytes, WaitingStream]) -> None:
        """Find the streams that have the error, by a separate command for each stream."""
        if len(called) == 1:
            self._fail(error, list(called.values()))
            return
        command = [*self.head.words, "COUNT", 1, *self.head.options, "STREAMS"]
        asked = [one for name, one in called.items() if self._waiting.get(name) is one]
        commands: list[Command] = [[*command, one.stream, one.position] for one in asked]
        try:
            replies = await exchange(await self._connected(), commands)
            replies = naming_rules(replies, commands)
        except _troubles() as lost:
            self._fail(lost, asked)
            return
        failed = False
        for one, reply in zip(asked, replies, strict=True):
            if isinstance(reply, Refused):
                failed = True
                self._fail(reply, [one])
            else:
                self._pass_on(reply, 1)
        if not failed:
            await asyncio.sleep(END_AGAIN_SECONDS)

    def _fail(self, error: Exception | None, which: Sequence[WaitingStream]) -> None:
        for one in which:
            name = bytes_of(one.stream)
            if self._waiting.get(name) is one:
                del self._waiting[name]
            if error is None:
                one.release()
            elif not one.answer.done():
                one.answer.set_exception(error)

    def _look(self) -> None:
        """Begin to examine the pending entries of all streams whose `look_at` is due."""
        now = self._clock.monotonic() + 1e-5
        waiting = [*self._waiting.values()]
        if len(waiting) > 1 and any(one.look_at <= now for one in waiting):
            near = [one for one in waiting if one.look_at <= now + one.look_s / 2]
            for one in near:
                one.look_at = now + one.look_s
            self._looking = asyncio.create_task(self._look_at(near), name="look for claims")

    async def _look_at(self, which: Sequence[WaitingStream]) -> None:
        """Release the streams of ``which`` that have pending entries, or whose pending entries cannot be counted."""
        shared = self._connecting.shared()
        try:
            able = await shared.capabilities()
            for part in batched(which, LOOKED_AT):
                streams = [one.stream for one in part]
                group = part[0].group
                same = all(one.group == group for one in part)
                pending = None
                if same and not able.verbs and not able.cluster:
                    pending = await perform(shared, _pending_by_script(streams, group))
                if pending is None:
                    replies = await shared.exchange(
                        [["XPENDING", one.stream, one.group] for one in part]
                    )
                    pending = [isinstance(one, Refused) or bool(one[0]) for one in replies]
                for one, some in zip(part, pending, strict=True):
                    if some:
                        self.return_by(one, 0.0)
        except _troubles() as error:
            log.debug("pending entries were not looked at: %s", error)  # this is repeated later

    async def _connected(self) -> redis.asyncio.Redis:
        if self._client is None:
            client = self._client = self._connecting.blocking()
            try:
                self._connection_id = await perform(client, single("CLIENT", "ID"))
                await perform(client, single("CLIENT", "SETNAME", self._connecting.name))
            except Refused:
                pass  # a blocked read cannot be ended early, or CLIENT LIST does not show the name
        return self._client

    async def _close_client(self) -> None:
        client, self._client, self._connection_id = self._client, None, 0
        if client is not None:
            await close_client(client)


def streams_of(reply: Any) -> Sequence[tuple[bytes, list[Any]]]:
    """Return the streams and entries in the reply of a read, of either protocol version."""
    if not reply:
        return ()
    found: Sequence[tuple[bytes, list[Any]]] = (
        [*reply.items()] if isinstance(reply, dict) else reply
    )
    return found


def _troubles() -> tuple[type[Exception], ...]:
    return (HeadwaterError, *lost_connection())
