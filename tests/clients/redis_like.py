"""The script's operations through clients with redis-py's methods: redis-py and valkey-py, each sync and
asyncio."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.clients.script import Connect
from tests.clients.servers import ServerAddress


class RedisLike:
    """A client with redis-py's methods; a sync one is called in a thread."""

    def __init__(self, client: Any) -> None:
        self.client = client

    async def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        function = getattr(self.client, method)
        if inspect.iscoroutinefunction(self.client.execute_command):
            return await function(*arguments, **options)
        return await asyncio.to_thread(function, *arguments, **options)

    async def ping(self) -> Any:
        return await self.call("ping")

    async def add(self, stream: str, entry_id: str, fields: dict[str, str]) -> Any:
        return await self.call("xadd", stream, fields, id=entry_id)

    async def length(self, stream: str) -> Any:
        return await self.call("xlen", stream)

    async def entries(self, stream: str) -> Any:
        return await self.call("xrange", stream)

    async def create_group(self, stream: str, group: str) -> Any:
        return await self.call("xgroup_create", stream, group, id="0", mkstream=True)

    async def read_group(self, stream: str, group: str, consumer: str, count: int) -> Any:
        return await self.call("xreadgroup", group, consumer, {stream: ">"}, count=count)

    async def pending(self, stream: str, group: str) -> Any:
        return await self.call("xpending", stream, group)

    async def pending_range(self, stream: str, group: str) -> Any:
        return await self.call("xpending_range", stream, group, "-", "+", 10)

    async def claim(self, stream: str, group: str, consumer: str, entry_id: str) -> Any:
        return await self.call("xclaim", stream, group, consumer, 0, [entry_id])

    async def autoclaim(self, stream: str, group: str, consumer: str, idle_ms: int) -> Any:
        return await self.call("xautoclaim", stream, group, consumer, idle_ms)

    async def ack(self, stream: str, group: str, entry_id: str) -> Any:
        return await self.call("xack", stream, group, entry_id)

    async def nack(self, stream: str, group: str, entry_id: str) -> Any:
        if hasattr(self.client, "xnack"):
            return await self.call("xnack", stream, group, "FAIL", entry_id)
        words = ("XNACK", stream, group, "FAIL", "IDS", 1, entry_id)
        return await self.call("execute_command", *words)

    async def groups(self, stream: str) -> Any:
        return await self.call("xinfo_groups", stream)

    async def wait(self, stream: str, last_id: str, block_ms: int) -> Any:
        return await self.call("xread", {stream: last_id}, block=block_ms)

    async def set_text(self, key: str) -> Any:
        return await self.call("set", key, "x")

    async def transaction(self, stream: str) -> Any:
        pipeline = self.client.pipeline(transaction=True)
        pipeline.xadd(stream, {"item": "mug"}, id="9-1")
        pipeline.xlen(stream)
        if inspect.iscoroutinefunction(pipeline.execute):
            return await pipeline.execute()
        return await asyncio.to_thread(pipeline.execute)


def connecting(kind: type[Any], **options: Any) -> Connect:
    """Return a function that connects a client of a class with ``from_url``."""

    @asynccontextmanager
    async def connect(address: ServerAddress) -> AsyncIterator[RedisLike]:
        client = kind.from_url(address.url, socket_timeout=None, **address.ssl_options, **options)
        try:
            yield RedisLike(client)
        finally:
            closing = client.aclose() if hasattr(client, "aclose") else client.close()
            if inspect.isawaitable(closing):
                await closing

    return connect
