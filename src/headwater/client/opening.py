"""Makes the client for a url, from the classes of one of redis-py's two hierarchies.

url ──▶ pool of connections to an embedded store, to a server, or to the primary that Sentinels name
    └─▶ client over that pool; for a cluster, a client that opens another client for each node
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from redis.backoff import ExponentialWithJitterBackoff, NoBackoff
from redis.maint_notifications import MaintNotificationsConfig
from redis.retry import AbstractRetry

from headwater.client.cluster_calls import ClusterCalls
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
from headwater.common.clock import Clock
from headwater.errors import ConfigError

if TYPE_CHECKING:
    from headwater.journal.log.report import RecoveryReport
    from headwater.server.turn.node import Node

C = TypeVar("C")


class Recovered:
    """The property that the sync and the asyncio client have in addition to those of redis-py's clients."""

    @property
    def recovery(self) -> RecoveryReport | None:
        """Report of what was recovered, cut off or found suspicious when the embedded store was opened;
        None for a client of a server, which reports the numbers in INFO.

        >>> from headwater import connect
        >>> with connect("headwater://memory") as client:
        ...     client.recovery
        RecoveryReport(groups=0, cuts=(), notes=())
        """
        from headwater.client.embedded_opening import recovery_of  # the server's modules, 80 ms

        return recovery_of(self)


RESPONSE_SECONDS = 30.0
"""Default ``socket_timeout`` of a connection to a server, in seconds: how long it may be silent (`silence`)."""

CONNECT_RETRIES = 10
FIRST_PAUSE_S = 0.01
LONGEST_PAUSE_S = 1.0
"""Number of retries after a lost connection, and the first and longest pause between them, in seconds.
They are redis-py's defaults. They add up to about four seconds, usually longer than a restart of the server."""


@dataclass(frozen=True)
class ClientClasses(Generic[C]):
    """The classes that make up a client: redis-py's, and those derived from them here."""

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
    """True if a cluster client can be limited to one connection to each node."""


def open_client(
    classes: ClientClasses[C],
    url: str | None,
    *,
    node: Node | None,
    clock: Clock | None,
    options: dict[str, Any],
) -> C:
    """Return the client that `headwater.connect` or `headwater.aio.connect` returns, made of ``classes``."""
    single = bool(options.pop("single_connection_client", False))
    if node is None and url is not None and is_server(url):
        refuse_clock(url, clock)
        if is_cluster(url):
            return open_cluster(classes, url, single_connection_client=single, **options)
        pool = server_pool(classes, url, options)
    else:
        from headwater.client.embedded_opening import open_embedded  # the server's modules, 80 ms

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
    """Return a client of the cluster or the server at ``url``. The client follows redirections.

    Clients that share a ``topology`` share their knowledge of the cluster. Commands without a key go to
    the node of the key ``home``. With ``stays``, the client uses one connection to one node (`routing`,
    rule 4).
    """
    single = (single_connection_client or stays) and classes.one_connection_per_node
    # The client of a node does not retry, because another node may have replaced this one.
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
    """Return a pool of connections to the server at ``url``, or to the primary that Sentinels name."""
    if is_sentinel(url):
        address = parse_sentinel(url)
        pool = server_pool(classes, address.server_url, options)
        follow_primary(pool, address, classes.to_primary)
        return pool
    url = plain(url)
    arguments: dict[str, Any] = {
        "socket_timeout": RESPONSE_SECONDS,
        "retry": default_retry(classes),
        # These notifications cost a round trip at each connect, and only Redis's cloud supports them. With
        # them, redis-py also considers a connection with an unread reply healthy.
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
    """Return the default retry policy for lost connections."""
    backoff = ExponentialWithJitterBackoff(base=FIRST_PAUSE_S, cap=LONGEST_PAUSE_S)
    return classes.retry(backoff, CONNECT_RETRIES)


def refuse_clock(url: str, clock: Clock | None) -> None:
    """Raise `ConfigError` if ``clock`` is given for a server, which has its own clock."""
    if clock is not None:
        raise ConfigError(
            f"clock= is for a store in this process, and {redacted(url)!r} names a server: remove clock="
        )


def parsed(url: str, parse_url: Callable[[str], Any]) -> dict[str, Any]:
    """Return the connection options that redis-py reads from a server's url. Raises `ConfigError` if
    redis-py cannot parse it."""
    try:
        return {**parse_url(url)}
    except ValueError:
        # `from None`: the original error may show a part of the password.
        raise ConfigError(
            f"{redacted(url)!r} cannot be parsed: check its port and its parameters, and "
            "percent-encode special characters in a password (%23 for #)"
        ) from None


def refuse_unknown(url: str, pool: Any) -> None:
    """Raise `ConfigError` for an unknown parameter, by making a connection object that is never opened."""
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
    """Return ``client``, after making it close its pool when it is closed."""
    closing: Any = client
    closing.auto_close_connection_pool = True
    return client
