"""Makes the client that a url asks for, from the classes of one of redis-py's two hierarchies.

url ──▶ pool of connections into this process, to a server, or to the primary that Sentinels name
    └─▶ client over that pool; of a cluster, one that opens a client for each node
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from redis.backoff import ExponentialWithJitterBackoff, NoBackoff
from redis.maint_notifications import MaintNotificationsConfig
from redis.retry import AbstractRetry

from headwater.client.cluster_calls import ClusterCalls
from headwater.client.embedded_opening import open_embedded
from headwater.client.primary import follow_primary
from headwater.client.redaction import redacted
from headwater.client.routing import Router
from headwater.client.server_url import (
    NodeAddress,
    is_cluster,
    is_sentinel,
    is_server,
    parse_cluster,
    parse_sentinel,
    plain,
)
from headwater.client.slots import Topology, topology_of
from headwater.clock import Clock
from headwater.errors import ConfigError
from headwater.server.turn.node import Node

C = TypeVar("C")

RESPONSE_SECONDS = 30.0
"""How long an answer may take by default; a store that replays its journal does not answer."""

CONNECT_RETRIES = 10
FIRST_PAUSE_S = 0.01
LONGEST_PAUSE_S = 1.0
"""How often and after which pauses a lost connection is tried again: as redis-py does by default,
about four seconds together, which a server that is restarted rarely needs."""


@dataclass(frozen=True)
class ClientClasses(Generic[C]):
    """What a client is made of: redis-py's classes, and ours that derive from them."""

    client: Callable[..., C]
    cluster_client: Callable[..., C]
    embedded_pool: Callable[..., Any]
    pool: Callable[..., Any]
    connection: Any
    guarded: Callable[[Any], Any]
    to_primary: Callable[[Any], Any]
    retry: Callable[..., AbstractRetry[Any]]
    parse_url: Callable[[str], Any]
    one_connection_per_node: bool
    """Whether a cluster's client keeps to one connection of each node when it is asked to."""


def open_client(
    classes: ClientClasses[C],
    url: str | None,
    *,
    node: Node | None,
    clock: Clock | None,
    options: dict[str, Any],
) -> C:
    """The client that `headwater.connect` returns."""
    single = bool(options.pop("single_connection_client", False))
    if node is None and url is not None and is_server(url):
        refuse_clock(url, clock)
        if is_cluster(url):
            return open_cluster(classes, url, single_connection_client=single, **options)
        pool = server_pool(classes, url, options)
    else:
        handle, url_options = open_embedded(url, node, clock)
        retry = default_retry(classes)
        pool = classes.embedded_pool(handle=handle, **{"retry": retry, **options, **url_options})
    return _client_over(classes, pool, single=single)


def open_cluster(
    classes: ClientClasses[C],
    url: str,
    *,
    topology: Topology | None = None,
    home: str = "",
    stays: bool = False,
    single_connection_client: bool = False,
    **options: Any,
) -> C:
    """A client of the cluster at ``url``, or of the server there, followed where it redirects.

    Clients that share a ``topology`` learn from one another. Commands without a key go to the node of
    the key ``home``. One that ``stays`` keeps to one connection to one node: see `routing`, rule 4.
    """
    single = (single_connection_client or stays) and classes.one_connection_per_node
    # A node's client tries nothing again: another node may have taken its place.
    once = classes.retry(NoBackoff(), 0)
    retry = options.get("retry", default_retry(classes)) or once
    options["retry"] = once
    address = parse_cluster(url)

    def open_node(node: NodeAddress) -> C:
        pool = server_pool(classes, address.node_url(node), options)
        return _client_over(classes, pool, single=single)

    pool = server_pool(
        classes, address.node_url(address.nodes[0]) if is_cluster(url) else url, options
    )
    router = Router(topology or topology_of(url), home=home, stays=stays)
    calls = ClusterCalls(router, open_node, retry=retry)
    kept = {"single_connection_client": True} if single else {}
    return _owning(classes.cluster_client(pool, calls, **kept))


def server_pool(classes: ClientClasses[Any], url: str, options: dict[str, Any]) -> Any:
    """Connections to the server at ``url``, or to the primary that Sentinels name."""
    if is_sentinel(url):
        address = parse_sentinel(url)
        pool = server_pool(classes, address.server_url, options)
        follow_primary(pool, address, classes.to_primary)
        return pool
    url = plain(url)
    arguments: dict[str, Any] = {
        "socket_timeout": RESPONSE_SECONDS,
        "retry": default_retry(classes),
        # A round trip at each connect that only Redis's own cloud answers; while it is on, redis-py
        # also takes a connection that holds an unread answer for a good one.
        "maint_notifications_config": MaintNotificationsConfig(enabled=False),
        **options,
        **parsed(url, classes.parse_url),
    }
    wanted = options.get("connection_class") or arguments.get(
        "connection_class", classes.connection
    )
    arguments["connection_class"] = classes.guarded(wanted)
    pool = classes.pool(**arguments)
    refuse_unknown(url, pool)
    return pool


def default_retry(classes: ClientClasses[Any]) -> AbstractRetry[Any]:
    """How often a lost connection is tried again, unless the caller says otherwise."""
    backoff = ExponentialWithJitterBackoff(base=FIRST_PAUSE_S, cap=LONGEST_PAUSE_S)
    return classes.retry(backoff, CONNECT_RETRIES)


def refuse_clock(url: str, clock: Clock | None) -> None:
    """A server has its own clock. Raises `ConfigError`."""
    if clock is not None:
        raise ConfigError(
            f"clock= is for a store in this process, and {redacted(url)!r} names a server"
        )


def parsed(url: str, parse_url: Callable[[str], Any]) -> dict[str, Any]:
    """What a server's url says to redis-py. `ConfigError` when redis-py cannot read it."""
    try:
        return {**parse_url(url)}
    except ValueError:
        # `from None`: what could not be read may be a part of the password.
        raise ConfigError(
            f"{redacted(url)!r} cannot be read: look at its port and its parameters, and write what "
            "is special in a password by its number (%23 for #)"
        ) from None


def refuse_unknown(url: str, pool: Any) -> None:
    """Make a connection that is never opened: a parameter that none can have is said now."""
    try:
        pool.connection_class(**pool.connection_kwargs)
    except TypeError as error:
        wrong = str(error).partition("__init__() ")[2] or str(error)
        raise ConfigError(
            f"{redacted(url)!r}: its parameters or options are wrong: {wrong}"
        ) from None


def _client_over(classes: ClientClasses[C], pool: Any, *, single: bool) -> C:
    return _owning(classes.client(connection_pool=pool, single_connection_client=single))


def _owning(client: C) -> C:
    """The client, which closes its pool when it is closed."""
    closing: Any = client
    closing.auto_close_connection_pool = True
    return client
