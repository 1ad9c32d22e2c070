"""`headwater.aio.connect`: makes a `redis.asyncio.Redis` from a url."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from redis.asyncio.connection import Connection, ConnectionPool, parse_url
from redis.asyncio.retry import Retry

from headwater.client.aio.client import AsyncClient
from headwater.client.aio.cluster import AsyncClusterClient
from headwater.client.aio.guarded import guarded
from headwater.client.aio.sentinel import to_primary
from headwater.client.opening import ClientClasses, open_client
from headwater.common.clock import Clock

if TYPE_CHECKING:
    from headwater.client.aio.embedded import AsyncEmbeddedPool
    from headwater.server.turn.node import Node


def _embedded_pool(**options: Any) -> AsyncEmbeddedPool:
    from headwater.client.aio.embedded import AsyncEmbeddedPool  # the server's modules, 80 ms

    return AsyncEmbeddedPool(**options)


CLASSES: Final = ClientClasses[AsyncClient](
    client=AsyncClient,
    cluster_client=AsyncClusterClient,
    embedded_pool=_embedded_pool,
    pool=ConnectionPool,
    connection=Connection,
    guarded=guarded,
    to_primary=to_primary,
    retry=Retry,
    parse_url=parse_url,
    one_connection_per_node=True,
)


def connect(
    url: str | None = None, *, node: Node | None = None, clock: Clock | None = None, **options: Any
) -> AsyncClient:
    """Return a client for asyncio, with the same urls, options, timeouts, retries and errors as
    `headwater.connect`.

    >>> import asyncio
    >>> async def main() -> int:
    ...     async with connect("headwater://memory") as client:
    ...         await client.xadd("orders", {"item": "tea"})
    ...         return await client.xlen("orders")
    >>> asyncio.run(main())
    1

    Do not await the call itself. For an embedded store, the call reads the whole journal before it returns.
    The store's commands, including fsyncs, run in the event loop's thread.
    """
    return open_client(CLASSES, url, node=node, clock=clock, options=options)
