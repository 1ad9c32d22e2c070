"""`headwater.aio.connect`: a url becomes a `redis.asyncio.Redis`."""

from __future__ import annotations

from typing import Any

import redis.asyncio
from redis.asyncio.connection import Connection, ConnectionPool, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialWithJitterBackoff
from redis.maint_notifications import MaintNotificationsConfig

from headwater.client.aio.embedded import AsyncEmbeddedPool
from headwater.client.aio.guarded import guarded
from headwater.client.aio.sentinel import to_primary
from headwater.client.primary import follow_primary
from headwater.client.server_url import is_cluster, is_sentinel, is_server, parse_sentinel, plain
from headwater.client.sync.connect import (
    CONNECT_RETRIES,
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    RESPONSE_SECONDS,
    open_embedded,
    parsed,
    recovery_of,
    refuse_clock,
    refuse_unknown,
)
from headwater.clock import Clock
from headwater.journal.report import RecoveryReport
from headwater.server.node import Node


class AsyncClient(redis.asyncio.Redis):
    """redis-py's client for asyncio, and what opening the store found."""

    @property
    def recovery(self) -> RecoveryReport | None:
        """What was recovered when the store in this process was opened, and what was cut off or odd
        about its files; None for a client of a server, whose INFO has the numbers."""
        return recovery_of(self)


def connect(
    url: str | None = None, *, node: Node | None = None, clock: Clock | None = None, **options: Any
) -> AsyncClient:
    """`headwater.connect` for asyncio: the same urls, options, timeouts and retries.

    >>> import asyncio
    >>> async def main() -> int:
    ...     async with connect("headwater://memory") as client:
    ...         await client.xadd("orders", {"item": "tea"})
    ...         return await client.xlen("orders")
    >>> asyncio.run(main())
    1

    A store in this process is opened here and now: what its journal holds is read before this
    returns. Its commands run in the event loop's thread, an fsync included.
    """
    single = bool(options.pop("single_connection_client", False))
    pool: Any
    if node is None and url is not None and is_server(url):
        refuse_clock(url, clock)
        if is_cluster(url):
            from headwater.client.aio.cluster import open_cluster

            return open_cluster(url, single_connection_client=single, **options)
        pool = server_pool(url, options)
    else:
        handle, url_options = open_embedded(url, node, clock)
        pool = AsyncEmbeddedPool(
            handle=handle, **{"retry": default_retry(), **options, **url_options}
        )
    client = AsyncClient(connection_pool=pool, single_connection_client=single)
    client.auto_close_connection_pool = True
    return client


def default_retry() -> Retry:
    """How often a lost connection is tried again, unless the caller says otherwise."""
    return Retry(
        ExponentialWithJitterBackoff(base=FIRST_PAUSE_S, cap=LONGEST_PAUSE_S), CONNECT_RETRIES
    )


def server_pool(url: str, options: dict[str, Any]) -> ConnectionPool:
    """Connections to the server at ``url``, or to the primary that Sentinels name."""
    if is_sentinel(url):
        address = parse_sentinel(url)
        pool = server_pool(address.server_url, options)
        follow_primary(pool, address, to_primary)
        return pool
    url = plain(url)
    arguments: dict[str, Any] = {
        "socket_timeout": RESPONSE_SECONDS,
        "retry": default_retry(),
        "maint_notifications_config": MaintNotificationsConfig(enabled=False),
        **options,
        **parsed(url, parse_url),
    }
    wanted = options.get("connection_class") or arguments.get("connection_class", Connection)
    arguments["connection_class"] = guarded(wanted)
    pool = ConnectionPool(**arguments)
    refuse_unknown(url, pool)
    return pool
