"""Connections to the primary that Sentinels name, for threads; `headwater.client.primary` has the
rules."""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar

from redis.connection import AbstractConnection, Connection
from redis.exceptions import ReadOnlyError
from redis.sentinel import Sentinel

from headwater.client.drivers import run
from headwater.client.guarded import derived
from headwater.client.primary import Primary


class MovingConnection(Connection):
    """A connection that is opened again for the next command after one of ``errors``. They show that the server is
    the wrong one."""

    errors: ClassVar[tuple[type[Exception], ...]]
    _wrong = False

    def read_response(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().read_response(*args, **kwargs)
        except self.errors:
            # Closed later: the other replies of a pipeline are still to come.
            self._wrong = True
            raise

    def send_packed_command(self, command: Any, check_health: bool = True) -> None:  # noqa: FBT002
        if self._wrong:
            self._wrong = False
            self.disconnect()
        super().send_packed_command(command, check_health=check_health)


class PrimaryConnection(MovingConnection):
    """The base class that `to_primary` puts before a connection class."""

    errors = (ReadOnlyError,)

    def __init__(self, *args: Any, primary: Primary, **kwargs: Any) -> None:
        self._primary = primary
        super().__init__(*args, **kwargs)

    def _connect(self) -> Any:
        self.host, self.port = run(self._primary.find(Sentinel, Sentinel.close))
        return super()._connect()

    def on_connect_check_health(self, check_health: bool = True) -> None:  # noqa: FBT002
        super().on_connect_check_health(check_health=check_health)
        run(self._primary.confirm(self))


@cache
def to_primary(connection_class: type[AbstractConnection]) -> type[AbstractConnection]:
    """Return ``connection_class`` with `PrimaryConnection` as its first base."""
    return derived("Primary", PrimaryConnection, connection_class)
