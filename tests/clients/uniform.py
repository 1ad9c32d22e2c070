"""One interface to a store for all kinds of clients: redis-py sync and asyncio, embedded and over TCP,
RESP2 and RESP3. A test is written once and runs with each kind."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import headwater
from headwater.client.embedded_opening import node_of
from headwater.server.turn.node import Node
from headwater.testing.clock import ManualClock
from headwater.testing.server import ServerThread, server_thread
from tests.waiting import in_time

KINDS = ("embedded sync", "embedded asyncio", "tcp sync", "tcp asyncio")

_names = (f"headwater://memory/client-{number}" for number in itertools.count())


class UniformClient:
    """A sync or asyncio client; both are called in the same way: ``await client("xadd", "s", {"a": 1})``."""

    def __init__(self, redis: Any, *, asynchronous: bool) -> None:
        self.redis = redis
        self.asynchronous = asynchronous

    async def __call__(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of the client; a sync one in a thread."""
        return await self.call(getattr(self.redis, method), *arguments, **options)

    async def call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call a function of the client's kind: a pipeline's ``execute``, a subscription's ``listen``."""
        if self.asynchronous:
            return await function(*arguments, **options)
        return await asyncio.to_thread(function, *arguments, **options)

    async def close(self) -> None:
        await self("aclose" if self.asynchronous else "close")


class UniformStore:
    """A store and its clients, with a clock that the test advances."""

    def __init__(self, kind: str, *, protocol: int = 3) -> None:
        self.kind = kind
        self.asynchronous = "asyncio" in kind
        self.clock = ManualClock()
        self.protocol = protocol
        self.url = next(_names)
        self.clients: list[UniformClient] = []
        self._server: ServerThread | None = None
        self._stack = ExitStack()
        if "tcp" in kind:
            self._server = self._stack.enter_context(server_thread(clock=self.clock))
            self.url = self._server.url

    def client(self, **options: Any) -> UniformClient:
        """Return a new client."""
        options = {"protocol": self.protocol, "decode_responses": True, **options}
        if self._server is None:
            options["clock"] = self.clock
        connect = headwater.aio.connect if self.asynchronous else headwater.connect
        client = UniformClient(connect(self.url, **options), asynchronous=self.asynchronous)
        self.clients.append(client)
        return client

    @property
    def node(self) -> Node:
        """The store's node, for inspection only."""
        return node_of(self.clients[0].redis) if self._server is None else self._server.server.node

    def advance(self, seconds: float) -> None:
        """Advance the store's clock. Replies that became due are sent before this returns."""
        if self._server is None:
            self.clock.advance(seconds)
        else:
            self._server.advance(seconds)

    async def blocked(self, count: int) -> None:
        """Wait until ``count`` clients are blocked."""
        await in_time(lambda: self.node.blocked.waiting.count == count)

    async def close(self) -> None:
        for client in self.clients:
            await client.close()
        self._stack.close()


async def blocked(client: Any, count: int = 1) -> None:
    """Wait until ``count`` clients of an embedded store are blocked."""
    await in_time(lambda: node_of(client).blocked.waiting.count == count)


def entries(reply: Any) -> list[tuple[str, list[Any]]]:
    """Return a reply of XREAD or XREADGROUP in one shape for both protocols: (stream, entries)."""
    if not reply:
        return []
    pairs: Iterator[Any] = iter(reply.items() if isinstance(reply, dict) else reply)
    found = []
    for name, items in pairs:
        nested = bool(items) and isinstance(items[0], list)
        found.append((name, list(items[0]) if nested else list(items)))
    return found
