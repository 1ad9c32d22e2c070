"""redis-py's asyncio connection to an embedded store: a stream without a network.

    redis.asyncio.Redis ─ AsyncEmbeddedPool ─ AsyncEmbeddedConnection ┬ EmbeddedWriter ─ EmbeddedStore
                                                                      └ StreamReader ◀─ replies

Rule 1. Writing runs the turn, including its fsync, in the event loop's thread. Nothing is awaited, so
        other tasks do not run between a request and its commit.
Rule 2. Only the loop's thread feeds its stream reader. Output of a turn in another thread is handed to
        the loop's thread and stays in order with the output of the loop's turns.
Rule 3. A reader that has paused reading is not fed until it resumes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any
from weakref import WeakMethod

from redis.asyncio.connection import ConnectionPool

from headwater.client.aio.guarded import AsyncGuardedConnection
from headwater.client.embedded_store import SHORTEST_PAUSE_S, EmbeddedStore
from headwater.client.embedded_transport import (
    EmbeddedTransport,
    PoolOfStore,
    connection_options,
)
from headwater.client.handles import StoreHandle
from headwater.client.reentrancy import REENTRANCY_GUARD


class Backpressure:
    """The part of a transport that a `StreamReader` uses: pausing and resuming reading."""

    def __init__(self, feed: Callable[[], None]) -> None:
        self._method = WeakMethod(feed)  # a strong reference would be a cycle of reader and writer
        self.paused = False

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False
        # Feed the reader later. At this point it is about to wait and would miss the data.
        asyncio.get_running_loop().call_soon(self._feed)

    def _feed(self) -> None:
        feed = self._method()
        if feed is not None:
            feed()


class EmbeddedWriter(EmbeddedTransport):
    """The methods of `asyncio.StreamWriter` that redis-py calls; feeds ``reader`` with the replies."""

    def __init__(self, handle: StoreHandle, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._loop = asyncio.get_running_loop()
        self._backpressure = Backpressure(self._feed)
        reader.set_transport(self._backpressure)  # type: ignore[arg-type]
        super().__init__(handle)
        self._timer = timer_of(self._store)
        self._timer.start(self)

    def _notify(self) -> None:
        if runs_here(self._loop):
            self._feed()
        else:
            with suppress(RuntimeError):  # the loop is closed, and nothing reads the output
                self._loop.call_soon_threadsafe(self._feed)

    def _feed(self) -> None:
        while self._arrived and not self._backpressure.paused:
            self._reader.feed_data(self._take())
        if self._ended and not self._arrived:
            self._reader.feed_eof()

    # --- called by redis-py ---------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        self.writelines((data,))

    def writelines(self, chunks: Iterable[bytes]) -> None:
        """Run the requests in ``chunks`` before this returns."""
        self._send(chunks)

    async def drain(self) -> None:
        """Do nothing, because `writelines` has run the turn, and nothing is buffered."""

    def close(self) -> None:
        """End the session, including its blocked command, watched keys and queued commands."""
        self._timer.stop(self)
        super().close()

    def is_closing(self) -> bool:
        return self._session.closed

    async def wait_closed(self) -> None:
        """Do nothing, because `close` is immediate."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._store.address if name == "peername" else default

    def __del__(self) -> None:
        super().__del__()
        with suppress(AttributeError):  # `__init__` failed before the session was made
            self._timer.forget(self)


class AsyncEmbeddedConnection(AsyncGuardedConnection):
    """An asyncio connection of redis-py to an embedded store."""

    def __init__(self, *, handle: StoreHandle, **kwargs: Any) -> None:
        self._handle = handle
        self.host = handle.store.address
        self.port = 0
        super().__init__(**connection_options(kwargs))

    def repr_pieces(self) -> list[tuple[str, Any]]:
        return [("store", self.host), ("db", self.db)]

    async def connect_check_health(self, *args: Any, **kwargs: Any) -> None:
        self._handle.check()  # redis-py would retry after an error of `_connect`
        await super().connect_check_health(*args, **kwargs)

    async def _connect(self) -> None:
        reader = asyncio.StreamReader()
        self._writer = EmbeddedWriter(self._handle, reader)  # type: ignore[assignment]
        self._reader = reader

    def _host_error(self) -> str:
        return self.host


class AsyncEmbeddedPool(PoolOfStore, ConnectionPool):
    """A pool of connections to an embedded store, for asyncio."""

    connections = AsyncEmbeddedConnection

    async def aclose(self) -> None:
        """Close every connection, and the store if this was its last client."""
        try:
            await super().aclose()
        finally:
            self.handle.close()


# --- one timer for each pair of event loop and store ----------------------------------------------
#
# The timer runs as long as a connection of its loop is open. Any thread may bring a deadline forward, but only the
# loop's thread sets the timer.


class LoopTimer:
    """Ticks a store at its deadlines, from an event loop. `timer_of` makes one for each loop and store."""

    def __init__(self, store: EmbeddedStore, loop: asyncio.AbstractEventLoop) -> None:
        self._store = store
        self.loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self.writers: set[int] = set()
        """Identities of the open connections. A connection that is never closed removes itself when it is
        garbage collected."""

    def start(self, writer: object) -> None:
        """Count ``writer`` as an open connection and set the timer."""
        self.writers.add(id(writer))
        with REENTRANCY_GUARD, self._store.node.lock:
            self._store.add_sleeper(self)
        self._set()

    def stop(self, writer: object) -> None:
        """Remove ``writer``, which was closed. When no connection is open, the timer is turned off."""
        self.writers.discard(id(writer))
        if not self.writers:
            self._set()

    def forget(self, writer: object) -> None:
        """Remove ``writer``, which was garbage collected without being closed. Any thread may call this
        at any time."""
        self.writers.discard(id(writer))

    def wake(self) -> None:
        """Set the timer again, because the next deadline is earlier than before. The caller must
        hold the node's lock. Any thread may call this."""
        if runs_here(self.loop):
            self._set()
            return
        try:
            self.loop.call_soon_threadsafe(self._set)
        except RuntimeError:  # the loop was closed before its connections
            self._turn_off()

    def _set(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        store = self._store
        if not store.here:
            return
        with REENTRANCY_GUARD, store.node.lock:
            if not self.writers or store.closed:
                self._turn_off()
                return
            pause = store.pause()
        if pause is not None:
            self._timer = self.loop.call_later(max(pause, SHORTEST_PAUSE_S), self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._store.tick()
        self._set()

    def _turn_off(self) -> None:
        self._store.remove_sleeper(self)
        if self._store.loop_timers.get(id(self.loop)) is self:
            del self._store.loop_timers[id(self.loop)]


def timer_of(store: EmbeddedStore) -> LoopTimer:
    """Return the timer of ``store`` in the running loop. Make the timer if it does not exist."""
    loop = asyncio.get_running_loop()
    timer: LoopTimer | None = store.loop_timers.get(id(loop))
    if timer is None or timer.loop is not loop:
        timer = store.loop_timers[id(loop)] = LoopTimer(store, loop)
    return timer


def runs_here(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether ``loop`` is running in the caller's thread."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
