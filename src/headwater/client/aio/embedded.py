"""A stream without a network: redis-py's asyncio connection to a store in this process.

    redis.asyncio.Redis ─ AsyncEmbeddedPool ─ AsyncEmbeddedConnection ┬ EmbeddedWriter ─ EmbeddedStore
                                                                      └ StreamReader, which is fed

Rule 1. Writing runs the turn in the event loop's thread, its fsync included; nothing is awaited, so
        no other task runs between a request and its commit.
Rule 2. A stream is fed in its loop's thread only. What another thread's turn delivers is handed over
        and stays in order with what this loop's own turns deliver.
Rule 3. A stream whose reader is behind is fed no more until it asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any
from weakref import WeakMethod

from redis.asyncio.connection import ConnectionPool

from headwater.client.aio.guarded import AsyncGuardedConnection
from headwater.client.aio.loop_timer import runs_here, timer_of
from headwater.client.embedded_transport import (
    EmbeddedTransport,
    connection_options,
    pool_options,
)
from headwater.client.handles import StoreHandle


class Backpressure:
    """What a `StreamReader` takes for its transport, to say when it has enough and when it wants more."""

    def __init__(self, feed: Callable[[], None]) -> None:
        self._method = WeakMethod(feed)  # or reader and writer would keep each other alive
        self.paused = False

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False
        # Not at once: the reader, which is about to wait, would sleep through it.
        asyncio.get_running_loop().call_soon(self._feed)

    def _feed(self) -> None:
        feed = self._method()
        if feed is not None:
            feed()


class EmbeddedWriter(EmbeddedTransport):
    """What redis-py takes for an `asyncio.StreamWriter`; it feeds ``reader`` with the replies."""

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
            with suppress(RuntimeError):  # the loop is closed: nobody reads any more
                self._loop.call_soon_threadsafe(self._feed)

    def _feed(self) -> None:
        while self._arrived and not self._backpressure.paused:
            self._reader.feed_data(self._take())
        if self._ended and not self._arrived:
            self._reader.feed_eof()

    # --- redis-py's side ------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        self.writelines((data,))

    def writelines(self, chunks: Iterable[bytes]) -> None:
        """Run the requests in ``chunks`` as one turn."""
        self._send(chunks)

    async def drain(self) -> None:
        """Nothing is buffered: the turn has run."""

    def close(self) -> None:
        """End the session: what it waited for, watched or queued is forgotten."""
        self._timer.stop(self)
        super().close()

    def is_closing(self) -> bool:
        return self._session.closed

    async def wait_closed(self) -> None:
        """It was closed at once."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._store.address if name == "peername" else default

    def __del__(self) -> None:
        super().__del__()
        with suppress(AttributeError):  # the session was never made
            self._timer.forget(self)


class AsyncEmbeddedConnection(AsyncGuardedConnection):
    """An asyncio connection of redis-py to a store in this process."""

    def __init__(self, *, handle: StoreHandle, **kwargs: Any) -> None:
        self._handle = handle
        self.host = handle.store.address
        self.port = 0
        super().__init__(**connection_options(kwargs))

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


class AsyncEmbeddedPool(ConnectionPool):
    """Connections to a store in this process; closing it is leaving the store."""

    def __init__(self, *, handle: StoreHandle, **kwargs: Any) -> None:
        self.handle = handle
        super().__init__(
            connection_class=AsyncEmbeddedConnection, handle=handle, **pool_options(kwargs)
        )

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
