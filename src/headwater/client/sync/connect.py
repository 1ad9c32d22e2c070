"""`headwater.connect`: makes a `redis.Redis` from a url."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from redis.connection import Connection, ConnectionPool, parse_url
from redis.retry import Retry

from headwater.client.opening import ClientClasses, open_client
from headwater.client.sync.client import Client
from headwater.client.sync.cluster import ClusterClient
from headwater.client.sync.guarded import guarded
from headwater.client.sync.sentinel import to_primary
from headwater.common.clock import Clock

if TYPE_CHECKING:
    from headwater.client.sync.embedded import EmbeddedPool
    from headwater.server.turn.node import Node


def _embedded_pool(**options: Any) -> EmbeddedPool:
    from headwater.client.sync.embedded import EmbeddedPool  # the server's modules, 80 ms

    return EmbeddedPool(**options)


CLASSES: Final = ClientClasses[Client](
    client=Client,
    cluster_client=ClusterClient,
    embedded_pool=_embedded_pool,
    pool=ConnectionPool,
    connection=Connection,
    guarded=guarded,
    to_primary=to_primary,
    retry=Retry,
    parse_url=parse_url,
    one_connection_per_node=False,
)


def connect(
    url: str | None = None, *, node: Node | None = None, clock: Clock | None = None, **options: Any
) -> Client:
    """Return a redis-py client of the store at ``url``, with timeouts and retries that are safe for streams.

    >>> client = connect("headwater://memory", decode_responses=True)
    >>> client.xlen(client.xadd("orders", {"item": "tea"}) and "orders")
    1
    >>> client.close()

    - ``url``: ``redis://``, ``rediss://`` and ``unix://`` connect to a server, as with
      ``redis.Redis.from_url``; ``valkey://`` and ``valkeys://`` are aliases of the first two.
      ``redis+cluster://host:port,host:port`` connects to a cluster, and
      ``redis+sentinel://host:port,host:port/service`` to the primary that Sentinels name.
      ``headwater:///path`` and ``headwater://memory`` open a store in this process.
    - ``node``: instead of a url, a store in this process that the caller has opened and will close.
    - ``clock``: the clock of a store that this call opens, such as a `ManualClock`.
    - ``options``: those of ``from_url``: ``decode_responses``, ``protocol``, ``max_connections``,
      ``ssl_…``.

    A command that may have run is not sent again, unless it is a read, XACK, or XADD with an idempotent
    id. The error says that the command may have run. The client retries connecting for about four seconds.
    A server may be silent for ``socket_timeout`` seconds (default 30) longer than BLOCK.

    Raises `ConfigError` if the url does not name a store. For a directory, raises `StoreInUse`,
    `StoreUnusable` and `JournalDamaged`. A lost connection raises redis-py's errors. See docs/guide/client.md.
    """
    return open_client(CLASSES, url, node=node, clock=clock, options=options)
