"""Finds the primary that Sentinels name; shared by `sync.sentinel` and `aio.sentinel`.

Rule 1. For each new connection the Sentinels are asked, so reconnecting follows a failover. Redis closes
        the connections of a primary that Sentinels demote.
Rule 2. If the named server is already a replica, the connection is closed immediately. A server
        that becomes a replica later replies READONLY, and the next command connects again.
Rule 3. The caller receives the READONLY reply, which means that the command did not run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoPermissionError

from headwater.client.drivers import Procedure
from headwater.client.server_url import NodeAddress, SentinelAddress

ASK_SECONDS = 2.0
"""Maximum time to wait for a Sentinel's reply before the next one is asked, in seconds."""


class Primary:
    """Finds the primary of a service. It first asks the Sentinel that replied last."""

    def __init__(self, address: SentinelAddress, options: Mapping[str, Any]) -> None:
        self.address = address
        self.nodes = list(address.nodes)
        self.options = sentinel_options(address, options)

    def find(
        self, sentinel: Callable[..., Any], close: Callable[[Any], Any]
    ) -> Procedure[tuple[str, int]]:
        """Return the primary's host and port, using redis-py's class ``sentinel`` and its method ``close``.

        Raises redis-py's MasterNotFoundError, a ConnectionError.
        """
        manager = sentinel(self.nodes, sentinel_kwargs=self.options)
        try:
            host, port = yield partial(manager.discover_master, self.address.service)
        finally:
            yield partial(close, manager)
        self.nodes = answered_first(manager.sentinels)
        return str(host), int(port)

    def confirm(self, connection: Any) -> Procedure[None]:
        """Check that the server of a new connection is a primary. Disconnects from a replica and raises
        redis-py's ConnectionError."""
        yield partial(connection.send_command, "ROLE", check_health=False)
        try:
            role = (yield connection.read_response)[0]
        except NoPermissionError:
            return  # a replica will reply READONLY to a write
        if role in (b"master", "master"):
            return
        yield connection.disconnect
        self.nodes = [*self.nodes[1:], self.nodes[0]]  # another Sentinel is asked next
        raise RedisConnectionError(
            f"the Sentinels name {connection.host}:{connection.port} as the primary of "
            f"{self.address.service!r}, but it is a replica"
        )


def sentinel_options(address: SentinelAddress, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a Sentinel's client. ``options`` are those of connections to the server."""
    found: dict[str, Any] = {
        "socket_timeout": ASK_SECONDS,
        "socket_connect_timeout": ASK_SECONDS,
        "username": address.username,
        "password": address.password,
    }
    if address.tls:
        found |= {name: value for name, value in options.items() if name.startswith("ssl_")}
        found["ssl"] = True
    return found


def answered_first(sentinels: list[Any]) -> list[NodeAddress]:
    """Return the Sentinels' addresses in redis-py's order: the one that replied is first."""
    where = [one.connection_pool.connection_kwargs for one in sentinels]
    return [NodeAddress(one["host"], one["port"]) for one in where]


def follow_primary(pool: Any, address: SentinelAddress, to_primary: Callable[..., Any]) -> None:
    """Make ``pool`` connect to the primary of a service. ``to_primary`` derives its connection class."""
    pool.connection_kwargs["primary"] = Primary(address, pool.connection_kwargs)
    pool.connection_class = to_primary(pool.connection_class)
