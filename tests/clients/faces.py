"""One way to talk to a store, whatever stands between: redis-py sync and asyncio, in process and
over TCP, RESP2 and RESP3. A test is written once and run through each face."""

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

KINDS = ("embedded sync", "embedded asyncio", "tcp sync", "tcp asyncio")

_names = (f"headwater://memory/face-{number}" for number in itertools.count())


class Face:
    """A client, called the same way whichever it is: ``await face("xadd", "s", {"a": 1})``."""

    def __init__(self, client: Any, *, asynchronous: bool) -> None:
        self.client = client
        self.asynchronous = asynchronous

    async def __call__(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of the client; a sync one in a thread of its own."""
        return await self.call(getattr(self.client, method), *arguments, **options)

    async def call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call what belongs to the client: a pipeline's ``execute``, a subscription's ``listen``."""
        if self.asynchronous:
            return await function(*arguments, **options)
        return await asyncio.to_thread(function, *arguments, **options)

    async def close(self) -> None:
        await self("aclose" if self.asynchronous else "close")


class Place:
    """A store and those who look at it; the clock is a test's to advance."""

    def __init__(self, kind: str, *, protocol: int = 3) -> None:
        self.kind = kind
        self.asynchronous = "asyncio" in kind
        self.clock = ManualClock()
        self.protocol = protocol
        self.url = next(_names)
        self.faces: list[Face] = []
        self._server: ServerThread | None = None
        self._stack = ExitStack()
        if "tcp" in kind:
            self._server = self._stack.enter_context(server_thread(clock=self.clock))
            self.url = self._server.url

    def face(self, **options: Any) -> Face:
        """A client of its own."""
        options = {"protocol": self.protocol, "decode_responses": True, **options}
        if self._server is None:
            options["clock"] = self.clock
        connect = headwater.aio.connect if self.asynchronous else headwater.connect
        face = Face(connect(self.url, **options), asynchronous=self.asynchronous)
        self.faces.append(face)
        return face

    @property
    def node(self) -> Node:
        """The store; only to be looked at."""
        return node_of(self.faces[0].client) if self._server is None else self._server.server.node

    def advance(self, seconds: float) -> None:
        """Let time pass in the store; what was due has been answered when this returns."""
        if self._server is None:
            self.clock.advance(seconds)
        else:
            self._server.advance(seconds)

    async def blocked(self, count: int) -> None:
        """Wait until so many clients are blocked."""
        await until(lambda: self.node.blocked.waiting.count == count)

    async def close(self) -> None:
        for face in self.faces:
            await face.close()
        self._stack.close()


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what another thread or a server brings about, and announces by nothing else."""
    while not condition():  # noqa: ASYNC110 - see above
        await asyncio.sleep(0.001)


async def blocked(client: Any, count: int = 1) -> None:
    """Wait until so many clients of the store in this process are blocked."""
    await until(lambda: node_of(client).blocked.waiting.count == count)


def entries(reply: Any) -> list[tuple[str, list[Any]]]:
    """What XREAD or XREADGROUP brought, in one shape for both protocols: (stream, entries)."""
    if not reply:
        return []
    pairs: Iterator[Any] = iter(reply.items() if isinstance(reply, dict) else reply)
    found = []
    for name, items in pairs:
        nested = bool(items) and isinstance(items[0], list)
        found.append((name, list(items[0]) if nested else list(items)))
    return found
