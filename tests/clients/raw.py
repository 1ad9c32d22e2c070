"""The script's operations as words, for clients that only send whole commands."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class Raw(ABC):
    """A client whose `send` takes the words of a command."""

    @abstractmethod
    async def send(self, *words: str) -> Any:
        """Send a command and return its reply."""

    async def ping(self) -> Any:
        return await self.send("PING")

    async def add(self, stream: str, entry_id: str, fields: dict[str, str]) -> Any:
        pairs = [word for pair in fields.items() for word in pair]
        return await self.send("XADD", stream, entry_id, *pairs)

    async def length(self, stream: str) -> Any:
        return await self.send("XLEN", stream)

    async def entries(self, stream: str) -> Any:
        return await self.send("XRANGE", stream, "-", "+")

    async def create_group(self, stream: str, group: str) -> Any:
        return await self.send("XGROUP", "CREATE", stream, group, "0", "MKSTREAM")

    async def read_group(self, stream: str, group: str, consumer: str, count: int) -> Any:
        options = ("GROUP", group, consumer, "COUNT", str(count))
        return await self.send("XREADGROUP", *options, "STREAMS", stream, ">")

    async def pending(self, stream: str, group: str) -> Any:
        return await self.send("XPENDING", stream, group)

    async def pending_range(self, stream: str, group: str) -> Any:
        return await self.send("XPENDING", stream, group, "-", "+", "10")

    async def claim(self, stream: str, group: str, consumer: str, entry_id: str) -> Any:
        return await self.send("XCLAIM", stream, group, consumer, "0", entry_id)

    async def autoclaim(self, stream: str, group: str, consumer: str, idle_ms: int) -> Any:
        return await self.send("XAUTOCLAIM", stream, group, consumer, str(idle_ms), "0-0")

    async def ack(self, stream: str, group: str, entry_id: str) -> Any:
        return await self.send("XACK", stream, group, entry_id)

    async def nack(self, stream: str, group: str, entry_id: str) -> Any:
        return await self.send("XNACK", stream, group, "FAIL", "IDS", "1", entry_id)

    async def groups(self, stream: str) -> Any:
        return await self.send("XINFO", "GROUPS", stream)

    async def wait(self, stream: str, last_id: str, block_ms: int) -> Any:
        return await self.send("XREAD", "BLOCK", str(block_ms), "STREAMS", stream, last_id)

    async def set_text(self, key: str) -> Any:
        return await self.send("SET", key, "x")

    async def transaction(self, stream: str) -> Any:
        queued = [
            await self.send("MULTI"),
            await self.send("XADD", stream, "9-1", "item", "mug"),
            await self.send("XLEN", stream),
        ]
        return [*queued, await self.send("EXEC")]
