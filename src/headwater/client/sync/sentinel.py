"""Connections to the primary that Sentinels name.

Rule 1. Each connection asks the Sentinels when it is made, so a failover is followed by connecting
        again: Redis closes the connections of a primary that Sentinels demote.
Rule 2. A server that is a replica already, though a Sentinel names it, is left at once. READONLY is
        the answer of one that became a replica later: the next command connects again.
Rule 3. READONLY stays the reply that it is, for it says that the command did not run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from redis.connection import AbstractConnection, Connection, ConnectionPool
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoPermissionError, ReadOnlyError
from redis.sentinel import Sentinel

from headwater.client.server_url import NodeAddress, SentinelAddress, parse_sentinel

ASK_SECONDS = 2.0
"""How long a Sentinel may take to answer, before another is asked."""


class Primary:
    """Finds the primary of a service. The Sentinel that answered last is asked first."""

    def __init__(self, address: SentinelAddress, options: Mapping[str, Any]) -> None:
        self.address = address
        self.nodes = list(address.nodes)
        self.options = sentinel_options(address, options)

    def find(self) -> tuple[str, int]:
        """Host and port. Raises redis-py's MasterNotFoundError, a ConnectionError."""
        manager = Sentinel(self.nodes, sentinel_kwargs=self.options)
        try:
            host, port = manager.discover_master(self.address.service)
        finally:
            manager.close()
        self.nodes = answered_first(manager.sentinels)
        return str(host), int(port)

    def mistaken(self, host: str, port: int) -> RedisConnectionError:
        """What was found is a replica: ask another Sentinel next. The error to raise."""
        self.nodes = [*self.nodes[1:], self.nodes[0]]
        return RedisConnectionError(
            f"the Sentinels name {host}:{port} as the primary of {self.address.service!r}, and it is "
            "a replica"
        )


def sentinel_options(address: SentinelAddress, options: Mapping[str, Any]) -> dict[str, Any]:
    """What a client of a Sentinel is made with; ``options`` are those of the server's connections."""
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
    """The Sentinels in the order that redis-py has brought them to."""
    where = [one.connection_pool.connection_kwargs for one in sentinels]
    return [NodeAddress(one["host"], one["port"]) for one in where]


class PrimaryConnection(Connection):
    """What `to_primary` puts before a connection class."""

    def __init__(self, *args: Any, primary: Primary, **kwargs: Any) -> None:
        self._primary = primary
        self._demoted = False
        super().__init__(*args, **kwargs)

    def _connect(self) -> Any:
        self.host, self.port = self._primary.find()
        return super()._connect()

    def on_connect_check_health(self, check_health: bool = True) -> None:  # noqa: FBT002
        super().on_connect_check_health(check_health=check_health)
        self.send_command("ROLE", check_health=False)
        try:
            role = self.read_response()[0]
        except NoPermissionError:
            return  # READONLY shows it later
        if role not in (b"master", "master"):
            self.disconnect()
            raise self._primary.mistaken(self.host, self.port)

    def read_response(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().read_response(*args, **kwargs)
        except ReadOnlyError:
            # Not closed yet: the other replies of a pipeline are still to come.
            self._demoted = True
            raise

    def send_packed_command(self, command: Any, check_health: bool = True) -> None:  # noqa: FBT002
        if self._demoted:
            self._demoted = False
            self.disconnect()
        super().send_packed_command(command, check_health=check_health)


@cache
def to_primary(connection_class: type[AbstractConnection]) -> type[AbstractConnection]:
    """``connection_class`` under the rules above."""
    name = f"Primary{connection_class.__name__}"
    return type(name, (PrimaryConnection, connection_class), {"__module__": __name__})


def following(
    url: str, options: dict[str, Any], server_pool: Callable[[str, dict[str, Any]], ConnectionPool]
) -> ConnectionPool:
    """Connections to the primary of the service that ``url`` names."""
    address = parse_sentinel(url)
    pool = server_pool(address.server_url, options)
    pool.connection_kwargs["primary"] = Primary(address, pool.connection_kwargs)
    pool.connection_class = to_primary(pool.connection_class)
    return pool
