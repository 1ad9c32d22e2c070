"""walrus 0.9.8: streams and consumer groups as Python containers, over redis-py."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import walrus  # type: ignore[import-untyped]

from tests.clients.redis_like import RedisLike
from tests.clients.scenarios import ClientScenarios
from tests.clients.script import Connect
from tests.clients.servers import ServerAddress


class Walrus(RedisLike):
    """The script's operations through walrus's containers, or redis-py's methods where it has none."""

    def _group(self, stream: str, group: str, consumer: str = "a") -> Any:
        return getattr(self.client.consumer_group(group, [stream], consumer=consumer), stream)

    async def add(self, stream: str, entry_id: str, fields: dict[str, str]) -> Any:
        return await asyncio.to_thread(self.client.Stream(stream).add, fields, id=entry_id)

    async def length(self, stream: str) -> Any:
        return await asyncio.to_thread(len, self.client.Stream(stream))

    async def entries(self, stream: str) -> Any:
        return await asyncio.to_thread(self.client.Stream(stream).range)

    async def create_group(self, stream: str, group: str) -> Any:
        return await asyncio.to_thread(self.client.consumer_group(group, [stream]).create)

    async def read_group(self, stream: str, group: str, consumer: str, count: int) -> Any:
        members = self.client.consumer_group(group, [stream], consumer=consumer)
        return await asyncio.to_thread(members.read, count=count)

    async def pending_range(self, stream: str, group: str) -> Any:
        return await asyncio.to_thread(self._group(stream, group).pending)

    async def claim(self, stream: str, group: str, consumer: str, entry_id: str) -> Any:
        return await asyncio.to_thread(self._group(stream, group, consumer).claim, entry_id)

    async def autoclaim(self, stream: str, group: str, consumer: str, idle_ms: int) -> Any:
        members = self._group(stream, group, consumer)
        return await asyncio.to_thread(members.autoclaim, consumer, idle_ms)

    async def ack(self, stream: str, group: str, entry_id: str) -> Any:
        return await asyncio.to_thread(self._group(stream, group).ack, entry_id)

    async def wait(self, stream: str, last_id: str, block_ms: int) -> Any:
        read = self.client.Stream(stream).read
        return await asyncio.to_thread(read, block=block_ms, last_id=last_id)


@asynccontextmanager
async def connect_walrus(address: ServerAddress) -> AsyncIterator[Walrus]:
    client = walrus.Database.from_url(address.url, socket_timeout=None, **address.ssl_options)
    try:
        yield Walrus(client)
    finally:
        client.close()


class TestWalrus(ClientScenarios):
    CLIENTS: ClassVar[dict[str, Connect]] = {"sync": connect_walrus}
