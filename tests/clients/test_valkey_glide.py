"""valkey-glide 2.5 and later, async and sync: it has a core in Rust, uses RESP3, and returns replies in its
own form."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import glide
import glide_sync

from tests.clients.scenarios import ClientScenarios
from tests.clients.script import Connect
from tests.clients.servers import ServerAddress

LONGEST_ANSWER_MS = 60_000

# Former names in glide are modules that warn when an attribute is read, and Hypothesis reads attributes of
# all modules.
for _name, _module in list(sys.modules.items()):
    if type(_module).__name__ == "_LegacyModule":
        del sys.modules[_name]


class Glide:
    """The script's operations; the sync client has the same methods and is called in a thread."""

    def __init__(self, module: Any, client: Any) -> None:
        self.module = module
        self.client = client

    async def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        function = getattr(self.client, method)
        if inspect.iscoroutinefunction(function):
            return await function(*arguments, **options)
        return await asyncio.to_thread(function, *arguments, **options)

    async def ping(self) -> Any:
        return await self.call("ping")

    async def add(self, stream: str, entry_id: str, fields: dict[str, str]) -> Any:
        options = self.module.StreamAddOptions(id=entry_id)
        return await self.call("xadd", stream, list(fields.items()), options)

    async def length(self, stream: str) -> Any:
        return await self.call("xlen", stream)

    async def entries(self, stream: str) -> Any:
        return await self.call("xrange", stream, self.module.MinId(), self.module.MaxId())

    async def create_group(self, stream: str, group: str) -> Any:
        options = self.module.StreamGroupOptions(make_stream=True)
        return await self.call("xgroup_create", stream, group, "0", options)

    async def read_group(self, stream: str, group: str, consumer: str, count: int) -> Any:
        options = self.module.StreamReadGroupOptions(count=count)
        return await self.call("xreadgroup", {stream: ">"}, group, consumer, options)

    async def pending(self, stream: str, group: str) -> Any:
        return await self.call("xpending", stream, group)

    async def pending_range(self, stream: str, group: str) -> Any:
        bounds = self.module.MinId(), self.module.MaxId()
        return await self.call("xpending_range", stream, group, *bounds, 10)

    async def claim(self, stream: str, group: str, consumer: str, entry_id: str) -> Any:
        return await self.call("xclaim", stream, group, consumer, 0, [entry_id])

    async def autoclaim(self, stream: str, group: str, consumer: str, idle_ms: int) -> Any:
        return await self.call("xautoclaim", stream, group, consumer, idle_ms, "0-0")

    async def ack(self, stream: str, group: str, entry_id: str) -> Any:
        return await self.call("xack", stream, group, [entry_id])

    async def nack(self, stream: str, group: str, entry_id: str) -> Any:
        words = ["XNACK", stream, group, "FAIL", "IDS", "1", entry_id]
        return await self.call("custom_command", words)

    async def groups(self, stream: str) -> Any:
        return await self.call("xinfo_groups", stream)

    async def wait(self, stream: str, last_id: str, block_ms: int) -> Any:
        options = self.module.StreamReadOptions(block_ms=block_ms)
        return await self.call("xread", {stream: last_id}, options)

    async def set_text(self, key: str) -> Any:
        return await self.call("set", key, "x")

    async def transaction(self, stream: str) -> Any:
        batch = self.module.Batch(is_atomic=True)
        batch.xadd(stream, [("item", "mug")], self.module.StreamAddOptions(id="9-1"))
        batch.xlen(stream)
        return await self.call("exec", batch, raise_on_error=True)


def configuration(module: Any, address: ServerAddress) -> Any:
    """Return the configuration of a client of either module."""
    tls = None
    if address.tls is not None:
        tls = module.TlsAdvancedConfiguration(
            root_pem_cacerts=_read(address.tls.authority),
            client_cert_pem=_read(address.tls.client),
            client_key_pem=_read(address.tls.client_key),
        )
    return module.GlideClientConfiguration(
        [module.NodeAddress(address.host, address.port)],
        use_tls=address.tls is not None,
        request_timeout=LONGEST_ANSWER_MS,
        advanced_config=module.AdvancedGlideClientConfiguration(
            connection_timeout=5000, tls_config=tls
        ),
    )


def _read(path: str) -> bytes:
    with open(path, "rb") as file:  # noqa: PTH123
        return file.read()


@asynccontextmanager
async def connect_async(address: ServerAddress) -> AsyncIterator[Glide]:
    client = await glide.GlideClient.create(configuration(glide, address))
    try:
        yield Glide(glide, client)
    finally:
        await client.close()


@asynccontextmanager
async def connect_sync(address: ServerAddress) -> AsyncIterator[Glide]:
    client = await asyncio.to_thread(
        glide_sync.GlideClient.create, configuration(glide_sync, address)
    )
    try:
        yield Glide(glide_sync, client)
    finally:
        client.close()


class TestValkeyGlide(ClientScenarios):
    CLIENTS: ClassVar[dict[str, Connect]] = {"async": connect_async, "sync": connect_sync}
