"""Connections to the primary that Sentinels name, for asyncio; `headwater.client.primary` has the
rules."""

from __future__ import annotations

from functools import cache
from typing import Any

from redis.asyncio.connection import AbstractConnection, Connection
from redis.asyncio.sentinel import Sentinel
from redis.exceptions import ReadOnlyError

from headwater.client.drivers import perform
from headwater.client.guarded import derived
from headwater.client.primary import Primary


class AsyncPrimaryConnection(Connection):
    """The base class that `to_primary` puts before an asyncio connection class."""

    def __init__(self, *args: Any, primary: Primary, **kwargs: Any) -> None:
        self._primary = primary
        self._demoted = False
        super().__init__(*args, **kwargs)

    async def _connect(self) -> None:
        self.host, self.port = await perform(self._primary.find(Sentinel, Sentinel.aclose))
        await super()._connect()

    async def on_connect_check_health(self, check_health: bool = True) -> None:  # noqa: FBT002
        await super().on_connect_check_health(check_health=check_health)
        await perform(self._primary.confirm(self))

    async def read_response(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return await super().read_response(*args, **kwargs)
        except ReadOnlyError:
            # Closed later: the other replies of a pipeline are still to come.
            self._demoted = True
            raise

    async def send_packed_command(self, command: Any, check_health: bool = True) -> None:  # noqa: FBT002
        if self._demoted:
            self._demoted = False
            await self.disconnect()
        await super().send_packed_command(command, check_health=check_health)


@cache
def to_primary(connection_class: type[AbstractConnection]) -> type[AbstractConnection]:
    """Return ``connection_class`` with `AsyncPrimaryConnection` as its first base."""
    return derived("Primary", AsyncPrimaryConnection, connection_class)
