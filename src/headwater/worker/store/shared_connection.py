"""The connections that all consumers of a process share.

    joins, claims, settlements, …      ──▶ SharedConnection, one for each node of the store
    large replies                      ──▶ SharedConnection, one for each node, opened at the first one
    blocked reads                      ──▶ BlockedReads, one for each group name, in a cluster also for each slot
    transactions of ordered consumers  ──▶ SharedConnection, one for each node, used by one at a time

So large entries do not delay settlements. Leases have their own connection and thread (`lease`), which
these commands do not delay.

Rule 1. While a request is under way, other commands wait. They are sent together in the next request. So the
        number of consumers hardly changes the number of round trips.
Rule 2. If the connection breaks, every caller whose commands were in that request gets the error, and the next
        request opens another connection.
Rule 3. The server is asked for its capabilities once for each connection.
Rule 4. A large request goes over a separate connection, at most `APART_AT_ONCE` at a time. So it does not delay others,
        and others lose nothing if the server closes the connection because of it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar, copy_context
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headwater.client.silence import PROGRESS, Silence
from headwater.common.names import bytes_of
from headwater.groups.protocol.capabilities import Capabilities, probe
from headwater.groups.protocol.operation import (
    Command,
    Operation,
    Refused,
    Word,
    exchange,
    naming_rules,
    perform,
)
from headwater.groups.protocol.store_errors import lost_connection
from headwater.groups.reading.claiming import MAX_BLOCK_MS
from headwater.worker.store.blocked_reads import BlockedReads, Connecting, Head, WaitingStream
from headwater.worker.store.clocks import Timers
from headwater.worker.store.connections import Connections, close_client
from headwater.worker.store.waiting import ended

if TYPE_CHECKING:
    import redis.asyncio

T = TypeVar("T")

MOST_TOGETHER: Final = 500
"""Maximum number of commands in one request, unless one caller sends more."""

LARGE_WORD: Final = 256 * 1024
LARGE_REQUEST: Final = 1024 * 1024
"""Size in bytes of one word, or of all words together, at which a request is large. A full batch is smaller."""

APART_AT_ONCE: Final = 2

IS_LARGE: Final[ContextVar[bool | None]] = ContextVar("IS_LARGE", default=None)
"""True if the requests of a task are large, False if not; None if their words must be measured."""


class SharedConnection:
    """One connection over which many tasks send commands. ``open_client`` makes its client."""

    def __init__(self, open_client: Callable[[], redis.asyncio.Redis]) -> None:
        self._open = open_client
        self._client: redis.asyncio.Redis | None = open_client()
        self._old = False
        """True if the next request needs another client."""
        self._busy = False
        self._apart = asyncio.Semaphore(APART_AT_ONCE)
        self._waiting: deque[tuple[list[Command] | None, asyncio.Future[Any]]] = deque()
        """Commands to send, or None for a task that needs the connection for itself, each with a future."""
        self._sending: asyncio.Task[None] | None = None
        self._probing: asyncio.Task[Capabilities] | None = None

    async def exchange(self, commands: list[Command], /) -> list[Any]:
        """Send commands together; return their replies, errors as `Refused`. Raises if the connection breaks."""
        large = IS_LARGE.get()
        if _is_large(commands) if large is None else large:
            async with self._apart:
                client = self._open()
                try:
                    return await exchange(client, commands)
                finally:
                    await close_client(client)
        if self._busy:
            replies: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
            self._waiting.append((commands, replies))
            return await replies
        self._busy = True
        try:
            return await self._send(commands)
        finally:
            self._next()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[redis.asyncio.Redis]:
        """Use the connection for several requests, between which no other task sends anything."""
        if self._busy:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((None, turn))
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._next()
                raise
        self._busy = True
        try:
            yield await self._fresh_client()
        except lost_connection():
            self.renew()
            raise
        finally:
            self._next()

    async def capabilities(self) -> Capabilities:
        """Return the server's capabilities."""
        probing = self._probing
        if probing is None or (
            probing.done() and (probing.cancelled() or probing.exception() is not None)
        ):
            probing = self._probing = asyncio.ensure_future(perform(self, probe()))
        return await asyncio.shield(probing)

    def renew(self) -> None:
        """Use another connection from the next request on, because this one is broken or leads to the wrong server."""
        self._old = True
        self._probing = None

    async def close(self) -> None:
        """Close the connection. Ignore errors of an unreachable store."""
        for _commands, answer in self._waiting:
            answer.cancel()
        tasks = [task for task in (self._sending, self._probing) if task is not None]
        for task in tasks:
            task.cancel()
        await ended(tasks)
        await self._close_client()

    async def _send(self, commands: list[Command]) -> list[Any]:
        client = await self._fresh_client()
        try:
            return await exchange(client, commands)
        except lost_connection():
            self.renew()
            raise

    async def _fresh_client(self) -> redis.asyncio.Redis:
        if self._old or self._client is None:
            await self._close_client()
            self._client = self._open()
            self._old = False
        return self._client

    async def _close_client(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await close_client(client)

    def _next(self) -> None:
        """Give the connection to the tasks that wait for it, or leave it idle."""
        waiting = self._waiting
        while waiting and waiting[0][1].done():
            waiting.popleft()  # cancelled
        if not waiting:
            self._busy = False
        elif waiting[0][0] is None:
            waiting.popleft()[1].set_result(None)
        else:
            # The progress of a request with commands of several callers is not reported to any of them.
            context = copy_context()
            context.run(PROGRESS.set, None)
            together = self._send_together(self._take())
            self._sending = asyncio.get_running_loop().create_task(together, context=context)

    def _take(self) -> list[tuple[list[Command], asyncio.Future[Any]]]:
        """Return the commands of the next request, with their futures."""
        waiting = self._waiting
        taken: list[tuple[list[Command], asyncio.Future[Any]]] = []
        count = 0
        while waiting and count < MOST_TOGETHER:
            commands, answer = waiting[0]
            if commands is None:
                break
            waiting.popleft()
            if answer.done():
                continue
            taken.append((commands, answer))
            count += len(commands)
        return taken

    async def _send_together(self, part: list[tuple[list[Command], asyncio.Future[Any]]]) -> None:
        try:
            replies = iter(await self._send([one for commands, _ in part for one in commands]))
        except Exception as error:
            for _commands, answer in part:
                if not answer.done():
                    answer.set_exception(error)
        except asyncio.CancelledError:
            for _commands, answer in part:
                answer.cancel()
            raise
        else:
            for commands, answer in part:
                found = list(islice(replies, len(commands)))
                if not answer.done():
                    answer.set_result(found)
        finally:
            self._next()


def _is_large(commands: Sequence[Command]) -> bool:
    words = (word for command in commands for word in command)
    sizes = [len(word) for word in words if not isinstance(word, int)]
    return max(sizes) >= LARGE_WORD or sum(sizes) >= LARGE_REQUEST


class SharedConnections:
    """The shared connections of one process, which `Running` closes. A reply may take ``deadline_s`` seconds."""

    def __init__(self, connections: Connections, *, clock: Timers, deadline_s: float) -> None:
        self.availability = connections.availability
        self.url = connections.url
        self._connections = connections
        self._clock = clock
        self._deadline_s = deadline_s
        self._shared: dict[tuple[str, object], SharedConnection] = {}
        """The shared connections, by purpose and node."""
        self._blocked: dict[object, BlockedReads] = {}

    async def locate(self) -> None:
        """Ask a cluster once for the nodes of its streams. Raises the error of a broken connection."""
        await self._connections.locate()

    def of(self, stream: str) -> SharedConnection:
        """Return the connection to the node of a stream for commands that do not block."""
        return self._for("settling", stream, self._asynchronous)

    def entries(self, stream: str) -> SharedConnection:
        """Return the connection to the node of a stream for replies that are large for their link."""
        return self._for("entries", stream, self._asynchronous)

    def transactions(self, stream: str) -> SharedConnection:
        """Return the connection for operations that watch a key between requests. Use it only through `alone`."""
        return self._for("transactions", stream, self._reading)

    def _for(
        self, purpose: str, stream: str, open_client: Callable[[str], redis.asyncio.Redis]
    ) -> SharedConnection:
        place = purpose, self._connections.node_of(stream)
        found = self._shared.get(place)
        if found is None:
            found = self._shared[place] = SharedConnection(lambda: open_client(stream))
        return found

    def blocked(self, stream: str, name: str, head: Head) -> BlockedReads:
        """Return the blocked reads that begin with ``head`` on the node of a stream. CLIENT LIST shows ``name``.

        A cluster does not run a command on keys of several slots, so each slot of it has its own blocked reads.
        """
        place = (self._connections.slot_of(stream), head)
        found = self._blocked.get(place)
        if found is None:
            connecting = Connecting(name, lambda: self._reading(stream), lambda: self.of(stream))
            found = BlockedReads(head, connecting=connecting, clock=self._clock)
            self._blocked[place] = found
        return found

    def _asynchronous(self, stream: str) -> redis.asyncio.Redis:
        return self._connections.asynchronous(deadline_s=self._deadline_s, home=stream)

    def _reading(self, stream: str) -> redis.asyncio.Redis:
        return self._connections.reading(deadline_s=self._deadline_s, home=stream)

    async def close(self) -> None:
        """Close all connections."""
        for reads in self._blocked.values():
            await reads.close()
        for one in self._shared.values():
            await one.close()


REGULAR: Final = 0.95
"""Fraction of ``look_s`` at which a block counts as regular: it waits for new entries, not for a due time."""


class StreamReads:
    """Runs the reads of one consumer, on the connections that it shares with others. ``stale`` returns whether the
    consumer must renew its leases before it reads. With ``watches``, operations watch keys between requests."""

    def __init__(
        self,
        shared: SharedConnections,
        stream: str,
        group: str,
        *,
        name: str,
        clock: Timers,
        stale: Callable[[], bool],
        slow: Callable[[Silence], None],
        watches: bool,
    ) -> None:
        self._shared = shared
        self._stream = stream
        self._group = group
        self._name = name
        self._clock = clock
        self._stale = stale
        self._slow = slow
        self._watches = watches
        self._full = False
        """True if the last read returned as many entries as it could, so that more may follow."""
        self._reads: BlockedReads | None = None
        self._waiting: WaitingStream | None = None
        self.large = False
        """True if a reply was so large for its link that it took longer than a deadline."""
        self.quiet_until: float | None = None
        """Time before which not to look for pending entries; set if a read got entries while none was pending."""

    @property
    def answered_at(self) -> float:
        """Time of the store's last answer to the blocked command that includes the current read; 0 without one."""
        return 0.0 if self._waiting is None or self._reads is None else self._reads.answered_at

    @property
    def reply(self) -> Silence | None:
        """The reply to the blocked command that includes the current read, if it is large or takes long."""
        return None if self._waiting is None or self._reads is None else self._reads.reply

    @property
    def sent_at(self) -> float:
        """Time when the last blocked command that included a read was sent; 0 without one."""
        return 0.0 if self._reads is None else self._reads.sent_at

    async def perform(self, operation: Operation[T], *, look_s: float) -> T:
        """Run an operation whose command may block. If it would block for ``look_s`` seconds or longer, the
        pending entries of its group are examined every ``look_s`` seconds. If there are some, it ends early."""
        try:
            async with AsyncExitStack() as holding:
                client: redis.asyncio.Redis | None = None
                replies: list[Any] | None = None
                while True:
                    try:
                        commands = next(operation) if replies is None else operation.send(replies)
                    except StopIteration as finished:
                        result: T = finished.value
                        return result
                    if len(commands) == 1 and _blocks(commands[0]):
                        await holding.aclose()
                        client = None
                        replies = [await self._wait(commands[0], look_s)]
                    elif self._watches:
                        if client is None:
                            turn = self._shared.transactions(self._stream).alone()
                            client = await holding.enter_async_context(turn)
                        replies = await exchange(client, commands)
                    else:
                        replies = await self._unblocked().exchange(commands)
                    replies = naming_rules(replies, commands)
        finally:
            operation.close()

    def _unblocked(self) -> SharedConnection:
        """Return the connection for commands that do not block."""
        return (self._shared.entries if self.large else self._shared.of)(self._stream)

    def return_by(self, until: float) -> None:
        """Make the current read, if it blocks, return at the time ``until``."""
        if self._waiting is not None:
            if self._reads is None:
                self._waiting.release()
            else:
                self._reads.return_by(self._waiting, until)

    async def _wait(self, command: Command, look_s: float) -> Any:
        """Return the reply to a command that blocks."""
        self.quiet_until = None
        head, limit, block_ms, position = _parsed(command)
        one = WaitingStream(
            self._stream, self._group, position, limit, stale=self._stale, slow=self._slow
        )
        now = self._clock.monotonic()
        if block_ms >= min(MAX_BLOCK_MS, REGULAR * look_s * 1000):
            one.look_s = look_s
            one.look_at = now + look_s
        else:
            one.until = now + block_ms / 1000
        if position == "$":
            return await self._pause(one, block_ms)
        reads = self._shared.blocked(self._stream, self._name, head)
        if position == ">" and (reads.calling or (self._full and reads.others)):
            read = [*head.words, "COUNT", limit, *head.options, "STREAMS", self._stream, position]
            (reply,) = await self._unblocked().exchange([read])
            if isinstance(reply, Refused) or reply:
                return reply
        self._reads, self._waiting = reads, one
        try:
            entries = await reads.wait(one)
        finally:
            self._waiting = None
        self._full = entries is not None and len(entries) >= one.limit
        if entries is not None and one.look_at < inf:
            self.quiet_until = one.look_at
        return None if entries is None else [[bytes_of(self._stream), entries]]

    async def _pause(self, one: WaitingStream, block_ms: int) -> None:
        """Wait for ``block_ms``. (A command that reads a key that is never written is a pause.)"""
        timer = self._clock.call_later(block_ms / 1000, one.release)
        self._reads, self._waiting = None, one
        try:
            await one.answer
        finally:
            self._waiting = None
            timer.cancel()


def _blocks(command: Command) -> bool:
    """Return whether a command of `groups` blocks. BLOCK follows COUNT in XREADGROUP, and comes first in XREAD."""
    if command[0] == "XREADGROUP":
        return command[6] == "BLOCK"
    return command[0] == "XREAD" and command[1] == "BLOCK"


def _parsed(command: Command) -> tuple[Head, int, int, Word]:
    """Return the head, the limit, the block in milliseconds, and the position of a command that blocks."""
    words = list(command)
    end = len(words) - 3  # before STREAMS, the stream, the position
    if words[0] == "XREAD":
        return Head(("XREAD",)), 1, int(words[2]), words[-1]
    return Head(tuple(words[:4]), tuple(words[8:end])), int(words[5]), int(words[7]), words[-1]
