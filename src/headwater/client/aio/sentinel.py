"""`headwater.client.sync.sentinel` for asyncio: the same rules."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from redis.asyncio.connection import AbstractConnection, Connection, ConnectionPool
from redis.asyncio.sentinel import Sentinel
from redis.exceptions import NoPermissionError, ReadOnlyError

from headwater.client.server_url import parse_sentinel
from headwater.client.sync import sentinel
from headwater.client.sync.sentinel import answered_first


class Primary(sentinel.Primary):
    """Finds the primary of a service from a coroutine."""

    async def ask(self) -> tuple[str, int]:
        """As `find`."""
        manager = Sentinel(self.nodes, sentinel_kwargs=self.options)
        try:
            host, port = await manager.discover_master(self.address.service)
        finally:
            for one in manager.sentinels:
                await one.aclose()
        self.nodes = answered_first(manager.sentinels)
        return str(host), int(port)


class PrimaryConnection(Connection):
    """What `to_primary` puts before an asyncio connection class."""

    def __init__(self, *args: Any, primary: Primary, **kwargs: Any) -> None:
        self._primary = primary
        self._demoted = False
        super().__init__(*args, **kwargs)

    async def _connect(self) -> None:
        self.host, self.port = await self._primary.ask()
        await super()._connect()

    async def on_connect_check_health(self, check_health: bool = True) -> None:  # noqa: FBT002
        await super().on_connect_check_health(check_health=check_health)
        await self.send_command("ROLE", check_health=False)
        try:
            role = (await self.read_response())[0]
        except NoPermissionError:
            return  # READONLY shows it later
        if role not in (b"master", "master"):
            await self.disconnect()
            raise self._primary.mistaken(self.host, self.port)

    async def read_response(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return await super().read_response(*args, **kwargs)
        except ReadOnlyError:
            # Not closed yet: the other replies of a pipeline are still to come.
            self._demoted = True
            raise

    async def send_packed_command(self, command: Any, check_health: bool = True) -> None:  # noqa: FBT002
        if self._demoted:
            self._demoted = False
            await self.disconnect()
        await super().send_packed_command(command, check_health=check_health)


@cache
def to_primary(connection_class: type[AbstractConnection]) -> type[AbstractConnection]:
    """``connection_class`` under the rules."""
    name = f"Primary{connection_class.__name__}"
    return type(name, (PrimaryConnection, connection_class), {"__module__": __name__})


def following(
    url: str, options: dict[str, Any], server_pool: Callable[[str, dict[str, Any]], ConnectionPool]
) -> ConnectionPool:
    """Connections to the primary of the service that ``url`` names."""
    address = parse_sentinel(url)
    pool = server_pool(address.server_url, options)
    pool.connection_kwargs["primary"] = Primary(address, pool.connection_kwargs)
    connection_class: Any = pool.connection_class
    pool.connection_class = to_primary(connection_class)
    return pool
