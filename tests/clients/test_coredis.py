"""coredis 6.9 with RESP3, unmodified."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import coredis
from coredis import PureToken

from tests.clients.scenarios import ClientScenarios
from tests.clients.script import Connect
from tests.clients.servers import ServerAddress


class Coredis:
    """The script's operations."""

    def __init__(self, client: coredis.Redis[Any]) -> None:
        self.client = client

    async def ping(self) -> Any:
        return await self.client.ping()

    async def add(self, stream: str, entry_id: str, fields: dict[str, str]) -> Any:
        return await self.client.xadd(stream, fields, identifier=entry_id)

    async def length(self, stream: str) -> Any:
        return await self.client.xlen(stream)

    async def entries(self, stream: str) -> Any:
        return await self.client.xrange(stream)

    async def create_group(self, stream: str, group: str) -> Any:
        return await self.client.xgroup_create(stream, group, identifier="0", mkstream=True)

    async def read_group(self, stream: str, group: str, consumer: str, count: int) -> Any:
        return await self.client.xreadgroup(group, consumer, {stream: ">"}, count=count)

    async def pending(self, stream: str, group: str) -> Any:
        return await self.client.xpending(stream, group)

    async def pending_range(self, stream: str, group: str) -> Any:
        return await self.client.xpending(stream, group, start="-", end="+", count=10)

    async def claim(self, stream: str, group: str, consumer: str, entry_id: str) -> Any:
        return await self.client.xclaim(stream, group, consumer, 0, [entry_id])

    async def autoclaim(self, stream: str, group: str, consumer: str, idle_ms: int) -> Any:
        return await self.client.xautoclaim(stream, group, consumer, idle_ms, "0-0")

    async def ack(self, stream: str, group: str, entry_id: str) -> Any:
        return await self.client.xack(stream, group, [entry_id])

    async def nack(self, stream: str, group: str, entry_id: str) -> Any:
        return await self.client.xnack(stream, group, PureToken.FAIL, [entry_id])

    async def groups(self, stream: str) -> Any:
        return await self.client.xinfo_groups(stream)

    async def wait(self, stream: str, last_id: str, block_ms: int) -> Any:
        return await self.client.xread({stream: last_id}, block=block_ms)

    async def set_text(self, key: str) -> Any:
        return await self.client.set(key, "x")

    async def transaction(self, stream: str) -> Any:
        async with self.client.pipeline(transaction=True) as pipeline:
            commands = (
                pipeline.xadd(stream, {"item": "mug"}, identifier="9-1"),
                pipeline.xlen(stream),
            )
        return [await command for command in commands]


@asynccontextmanager
async def connect_coredis(address: ServerAddress) -> AsyncIterator[Coredis]:
    tls: dict[str, Any] = {"ssl": True, **address.ssl_options} if address.tls else {}
    async with coredis.Redis(address.host, address.port, **tls) as client:
        yield Coredis(client)


class TestCoredis(ClientScenarios):
    CLIENTS: ClassVar[dict[str, Connect]] = {"asyncio": connect_coredis}
