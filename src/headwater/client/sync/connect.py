"""`headwater.connect`: a url becomes a `redis.Redis`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import redis
from redis.backoff import ExponentialWithJitterBackoff
from redis.connection import Connection, ConnectionPool, parse_url
from redis.maint_notifications import MaintNotificationsConfig
from redis.retry import Retry

from headwater.client.embedded_store import EmbeddedStore
from headwater.client.embedded_url import EXAMPLES, SCHEME, EmbeddedAddress, parse_embedded
from headwater.client.handles import StoreHandle, handle_of, open_handle
from headwater.client.primary import follow_primary
from headwater.client.redaction import redacted
from headwater.client.server_url import is_cluster, is_sentinel, is_server, parse_sentinel, plain
from headwater.client.sync.embedded import EmbeddedPool
from headwater.client.sync.guarded import guarded
from headwater.client.sync.sentinel import to_primary
from headwater.clock import Clock
from headwater.errors import ConfigError, StoreInUse
from headwater.journal.report import RecoveryReport
from headwater.server.node import Node
from headwater.server.opening import open_node

RESPONSE_SECONDS = 30.0
"""How long an answer may take by default; a store that replays its journal does not answer."""

CONNECT_RETRIES = 10
FIRST_PAUSE_S = 0.01
LONGEST_PAUSE_S = 1.0
"""How often and after which pauses a lost connection is tried again: as redis-py does by default,
about four seconds together, which a server that is restarted rarely needs."""

SERVERS = "redis://…, rediss://…, unix://…, redis+cluster://…, redis+sentinel://…"
"""The addresses of servers, for errors. ``valkey`` may stand for ``redis``."""


class Client(redis.Redis):
    """redis-py's client, and what opening the store found."""

    @property
    def recovery(self) -> RecoveryReport | None:
        """What was recovered when the store in this process was opened, and what was cut off or odd
        about its files; None for a client of a server, whose INFO has the numbers.

        >>> with connect("headwater://memory") as client:
        ...     client.recovery
        RecoveryReport(groups=0, cuts=(), notes=())
        """
        return recovery_of(self)


def connect(
    url: str | None = None, *, node: Node | None = None, clock: Clock | None = None, **options: Any
) -> Client:
    """A client of the store at ``url``: redis-py's own, with timeouts and retries that are safe for
    streams.

    ``redis://``, ``rediss://`` and ``unix://`` reach a server, as with `redis.Redis.from_url`, and
    ``valkey://`` and ``valkeys://`` are the same as the first two;
    ``redis+cluster://host:port,host:port`` reaches a cluster and
    ``redis+sentinel://host:port,host:port/service`` the primary that Sentinels name;
    ``headwater:///path`` and ``headwater://memory`` open a store in this process. ``options`` are
    those of ``from_url`` (``decode_responses``, ``protocol``, ``max_connections``, ``ssl_…``).

    >>> client = connect("headwater://memory", decode_responses=True)
    >>> client.xlen(client.xadd("orders", {"item": "tea"}) and "orders")
    1
    >>> client.close()

    - A command that may have run is not sent twice, unless it is a read, XACK, or XADD with an
      idempotent id; the error says so. Connecting is tried again for some seconds.
    - An answer may take 30 seconds (``socket_timeout``) beyond what BLOCK asked to wait.

    ``node`` is a store that the caller has opened and will close; ``clock`` is the clock of one that
    is opened here. ``client.recovery`` says what opening found. Raises `ConfigError` for a url that
    says nothing, `StoreInUse`, `StoreUnusable` and `JournalDamaged` for a directory.
    """
    single = bool(options.pop("single_connection_client", False))
    pool: Any
    if node is None and url is not None and is_server(url):
        refuse_clock(url, clock)
        if is_cluster(url):
            from headwater.client.sync.cluster import open_cluster

            return open_cluster(url, **options)
        pool = server_pool(url, options)
    else:
        handle, url_options = open_embedded(url, node, clock)
        pool = EmbeddedPool(handle=handle, **{"retry": default_retry(), **options, **url_options})
    client = Client(connection_pool=pool, single_connection_client=single)
    client.auto_close_connection_pool = True
    return client


def node_of(client: Any) -> Node:
    """The node behind a client, sync or asyncio, of a store in this process.

    Raises `ConfigError` for a client of a server.
    """
    handle = getattr(client.connection_pool, "handle", None)
    if not isinstance(handle, StoreHandle):
        raise ConfigError(
            f"{client!r} is a client of a server; only a store in this process has a node"
        )
    return handle.store.node


def recovery_of(client: Any) -> RecoveryReport | None:
    """What opening the store behind a client, sync or asyncio, found; None for one of a server."""
    handle = getattr(client.connection_pool, "handle", None)
    if not isinstance(handle, StoreHandle):
        return None
    journal = handle.store.node.journal
    return RecoveryReport() if journal is None else journal.recovery.report()


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
        # A round trip at each connect that only Redis's own cloud answers; while it is on, redis-py
        # also takes a connection that holds an unread answer for a good one.
        "maint_notifications_config": MaintNotificationsConfig(enabled=False),
        **options,
        **parsed(url, parse_url),
    }
    wanted = options.get("connection_class") or arguments.get("connection_class", Connection)
    arguments["connection_class"] = guarded(wanted)
    pool = ConnectionPool(**arguments)
    refuse_unknown(url, pool)
    return pool


# --- what sync and asyncio share --------------------------------------------------------------------


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


def open_embedded(
    url: str | None, node: Node | None, clock: Clock | None
) -> tuple[StoreHandle, dict[str, Any]]:
    """A handle to the store in this process, and what the url says to the client."""
    if node is not None:
        if url is not None or clock is not None:
            raise ConfigError("node= is a store with its clock: give neither url nor clock with it")
        return handle_of(node), {}
    if url is None or not url.startswith(f"{SCHEME}:"):
        shown = None if url is None else redacted(url)
        raise ConfigError(f"{shown!r} names no store. Write {EXAMPLES}, or for a server {SERVERS}.")
    address = parse_embedded(url)
    handle = open_handle(address.key, lambda: _open(address, clock))
    try:
        _refuse_other_settings(address, clock, handle.store)
    except BaseException:
        handle.close()
        raise
    return handle, address.options


def _open(address: EmbeddedAddress, clock: Clock | None) -> EmbeddedStore:
    try:
        node = open_node(address.config(), clock=clock)
    except StoreInUse as error:
        raise StoreInUse(
            f"{error} A directory is held by one process; to share it, let that be "
            f"`headwater serve --dir {address.directory}` and connect to it over redis:// or unix://."
        ) from None
    return EmbeddedStore(node, address=address.shown)


def _refuse_other_settings(
    address: EmbeddedAddress, clock: Clock | None, store: EmbeddedStore
) -> None:
    """A store that is open has its settings. Raises `ConfigError`."""
    wanted = address.config()
    for name in address.settings:
        there, here = store.node.config.get(name), wanted.get(name)
        if there != here:
            raise ConfigError(
                f"{address.shown} is open in this process with {name} {there}, and {address.url!r} "
                f"asks for {here}. Close the other client first, or ask for the same."
            )
    if clock is not None and store.node.clock is not clock:
        raise ConfigError(f"{address.shown} is open in this process with another clock")
