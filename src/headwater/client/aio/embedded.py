"""A stream without a network: redis-py's asyncio connection to a store in this process.

    redis.asyncio.Redis ─ EmbeddedPool ─ EmbeddedConnection ┬ EmbeddedWriter ─ EmbeddedStore ─ Node
                                                            └ StreamReader, which is fed

Rule 1. Writing runs the turn in the event loop's thread, its fsync included; nothing is awaited, so
        no other task runs between a request and its commit.
Rule 2. A stream is fed in its loop's thread only. What another thread's turn delivers is handed over
        and stays in order with what this loop's own turns deliver.
Rule 3. A stream whose reader is behind is fed no more until it asks: what waits outside counts as
        not taken (`client-output-buffer-limit`).
Rule 4. One timer a loop and store watches the node's deadlines, as long as a connection is open.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any
from weakref import WeakMethod

from redis.asyncio.connection import ConnectionPool
from redis.maint_notifications import MaintNotificationsConfig

from headwater.client.aio.guarded import AsyncGuardedConnection
from headwater.client.embedded_store import SHORTEST_PAUSE_S, EmbeddedStore
from headwater.client.handles import StoreHandle
from headwater.client.reentrancy import REENTRANCY_GUARD
from headwater.client.sync.embedded import READ_BYTES
from headwater.limits import MAX_CLIENTS
from headwater.server.session import Session


class Valve:
    """What a `StreamReader` takes for its transport: it says when it has enough, and when it wants
    more."""

    def __init__(self, feed: Callable[[], None]) -> None:
        self._method = WeakMethod(feed)  # or reader and writer would keep each other alive
        self.closed = False

    def pause_reading(self) -> None:
        self.closed = True

    def resume_reading(self) -> None:
        self.closed = False
        # Not at once: the reader, which is about to wait, would sleep through it.
        asyncio.get_running_loop().call_soon(self._feed)

    def _feed(self) -> None:
        feed = self._method()
        if feed is not None:
            feed()


class EmbeddedWriter:
    """What redis-py takes for an `asyncio.StreamWriter`; it feeds ``reader`` with the replies."""

    def __init__(self, handle: StoreHandle, reader: asyncio.StreamReader) -> None:
        self._store = handle.store
        self._reader = reader
        self._loop = asyncio.get_running_loop()
        self._arrived: deque[bytearray] = deque()
        self._valve = Valve(self._feed)
        reader.set_transport(self._valve)  # type: ignore[arg-type]
        self._ended = False
        self._session = handle.connect(self)
        self._alarm = alarm_of(self._store)
        self._alarm.start(self)

    # --- the store's side -----------------------------------------------------------------------

    def deliver(self, session: Session) -> None:
        """Take the session's output; called under the node's lock, in any thread."""
        output = session.take_output()
        if output:
            self._arrived.append(output)
            self._hand_over()

    def end(self) -> None:
        """The end of the stream; called under the node's lock, in any thread."""
        self._ended = True
        self._hand_over()

    def _hand_over(self) -> None:
        if _runs_here(self._loop):
            self._feed()
        else:
            with suppress(RuntimeError):  # the loop is closed: nobody reads any more
                self._loop.call_soon_threadsafe(self._feed)

    def _feed(self) -> None:
        while self._arrived and not self._valve.closed:
            chunk = self._arrived.popleft()
            self._session.taken_bytes += len(chunk)
            self._reader.feed_data(chunk)
        if self._ended and not self._arrived:
            self._reader.feed_eof()

    # --- redis-py's side ------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        self.writelines((data,))

    def writelines(self, chunks: Iterable[bytes]) -> None:
        """Run the requests in ``chunks`` as one turn."""
        self._store.exchange(self._session, chunks)

    async def drain(self) -> None:
        """Nothing is buffered: the turn has run."""

    def close(self) -> None:
        """End the session: what it waited for, watched or queued is forgotten."""
        self._alarm.stop(self)
        self._store.retire(self._session)

    def is_closing(self) -> bool:
        return self._session.closed

    async def wait_closed(self) -> None:
        """It was closed at once."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._store.address if name == "peername" else default

    def __del__(self) -> None:
        with suppress(AttributeError):  # the session was never made
            self._store.retire(self._session)
            self._alarm.writers.discard(id(self))


class LoopAlarm:
    """Ticks a store at its deadlines, from an event loop. Made by `alarm_of`, one for both."""

    def __init__(self, store: EmbeddedStore, loop: asyncio.AbstractEventLoop) -> None:
        self._store = store
        self.loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self.writers: set[int] = set()
        """Identities of the open connections; one that is only forgotten takes itself out."""

    def start(self, writer: EmbeddedWriter) -> None:
        """``writer`` may wait for something from now on."""
        self.writers.add(id(writer))
        with REENTRANCY_GUARD, self._store.node.lock:
            self._store.add_sleeper(self)
        self._set()

    def stop(self, writer: EmbeddedWriter) -> None:
        """``writer`` is closed; without any the alarm is off."""
        self.writers.discard(id(writer))
        if not self.writers:
            self._set()

    def wake(self) -> None:
        """The next deadline is earlier than it was; called under the node's lock, in any thread."""
        if _runs_here(self.loop):
            self._set()
            return
        try:
            self.loop.call_soon_threadsafe(self._set)
        except RuntimeError:  # the loop was closed and its connections were not
            self._forget()

    def _set(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        store = self._store
        if not store.here:
            return
        with REENTRANCY_GUARD, store.node.lock:
            if not self.writers or store.closed:
                self._forget()
                return
            pause = store.pause()
        if pause is not None:
            self._timer = self.loop.call_later(max(pause, SHORTEST_PAUSE_S), self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._store.tick()
        self._set()

    def _forget(self) -> None:
        self._store.remove_sleeper(self)
        if self._store.alarms.get(id(self.loop)) is self:
            del self._store.alarms[id(self.loop)]


def alarm_of(store: EmbeddedStore) -> LoopAlarm:
    """The alarm of ``store`` in the running loop."""
    loop = asyncio.get_running_loop()
    alarm: LoopAlarm | None = store.alarms.get(id(loop))
    if alarm is None or alarm.loop is not loop:
        alarm = store.alarms[id(loop)] = LoopAlarm(store, loop)
    return alarm


def _runs_here(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether the caller is in the thread, and within the run, of ``loop``."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


class EmbeddedConnection(AsyncGuardedConnection):
    """An asyncio connection of redis-py to a store in this process."""

    def __init__(self, *, handle: StoreHandle, **kwargs: Any) -> None:
        self._handle = handle
        self.host = handle.store.address
        self.port = 0
        kwargs.setdefault("socket_timeout", None)
        kwargs.setdefault("socket_read_size", READ_BYTES)
        super().__init__(**kwargs)

    def repr_pieces(self) -> list[tuple[str, Any]]:
        return [("store", self.host), ("db", self.db)]

    async def connect_check_health(self, *args: Any, **kwargs: Any) -> None:
        self._handle.check()  # from `_connect` it would come out as an error to be tried again
        await super().connect_check_health(*args, **kwargs)

    async def _connect(self) -> None:
        reader = asyncio.StreamReader()
        self._writer = EmbeddedWriter(self._handle, reader)  # type: ignore[assignment]
        self._reader = reader

    def _host_error(self) -> str:
        return self.host


class EmbeddedPool(ConnectionPool):
    """Connections to a store in this process; closing it is leaving the store."""

    def __init__(self, *, handle: StoreHandle, **kwargs: Any) -> None:
        self.handle = handle
        kwargs.setdefault("max_connections", MAX_CLIENTS)
        kwargs.setdefault("maint_notifications_config", MaintNotificationsConfig(enabled=False))
        super().__init__(connection_class=EmbeddedConnection, handle=handle, **kwargs)

    async def aclose(self) -> None:
        """Close every connection; the store too, when this was its last client."""
        try:
            await super().aclose()
        finally:
            self.handle.close()

    def __del__(self) -> None:
        with suppress(Exception):
            super().__del__()
        with suppress(Exception):
            self.handle.close()
