"""A TCP proxy between a worker and its store that can cut connections, stall, be slow or change its target."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

PIECE = 16 * 1024


class Proxy:
    """Listens on ``url`` and forwards connections to ``target``, another URL."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.url = ""
        self.connections = 0
        """Number of connections accepted so far."""
        self.rate: float | None = None
        """How many bytes a second the link takes in each direction, all connections together."""
        self.left: int | None = None
        """How many bytes are forwarded before all connections are cut; None is no limit."""
        self.was_cut = asyncio.Event()
        """Set when they were."""
        self.requests = self.replies = 0
        """How many bytes were forwarded to the target, and back."""
        self._link = asyncio.Lock(), asyncio.Lock()
        self.answers = asyncio.Event()
        """Cleared while replies are held back."""
        self.answers.set()
        self._flows = asyncio.Event()
        self._flows.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def fall_silent(self) -> None:
        """Stop forwarding on all connections, old and new, without closing them."""
        self._flows.clear()

    def forget(self) -> None:
        """Stall the present connections for good. Later ones are forwarded."""
        self._flows = asyncio.Event()
        self._flows.set()

    def resume(self) -> None:
        """Forward everything again, including the data that waited."""
        self._flows.set()

    def cut(self) -> None:
        """Close every connection."""
        for writer in self._writers:
            writer.close()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Connect one client to the current target."""
        self.connections += 1
        place = urlsplit(self.target)
        try:
            there, back = await asyncio.open_connection(place.hostname, place.port)
        except OSError:
            writer.close()
            return
        for way, (source, sink) in enumerate(((reader, back), (there, writer))):
            task = asyncio.create_task(self._pump(source, sink, way))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, way: int
    ) -> None:
        self._writers.add(sink)
        flows = self._flows
        try:
            while data := await source.read(PIECE if self.rate else 65_536):
                await flows.wait()
                if self.rate is not None:
                    async with self._link[way]:
                        await asyncio.sleep(len(data) / self.rate)
                if self.left is not None:
                    data = data[: self.left]
                    self.left -= len(data)
                if way == 0:
                    self.requests += len(data)
                else:
                    await self.answers.wait()
                    self.replies += len(data)
                sink.write(data)
                await sink.drain()
                if self.left == 0:
                    self.left = None
                    self.cut()
                    self.was_cut.set()
        except OSError:
            pass
        finally:
            self._writers.discard(sink)
            sink.close()

    async def close(self) -> None:
        """Close every connection and end the tasks."""
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def proxy(target: str) -> AsyncIterator[Proxy]:
    """A proxy to ``target`` that runs for the duration of the block."""
    found = Proxy(target)
    server = await asyncio.start_server(found.accept, "127.0.0.1", 0)
    found.url = f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield found
    finally:
        server.close()
        await found.close()
