"""The one place where a worker opens connections.

Reading, settling and renewing have a connection each, so that a blocked read, a long batch and a
handler that blocks the event loop do not wait for one another.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit

from headwater.errors import Disconnected, StoreClosed, StoreInUse
from headwater.worker.meeting import served_at

if TYPE_CHECKING:
    import redis
    import redis.asyncio

    from headwater.server.node import Node

C = TypeVar("C")

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0
"""Seconds between attempts to come back: doubling, so that a store that restarts is not stormed."""

MEMORY = "headwater://memory"


class Connections:
    """Opens clients of one store. What it opens, its caller closes.

    ``node`` is a store in this process that the caller has made; ``url`` then only names it.
    """

    def __init__(self, url: str, *, node: Node | None = None) -> None:
        self.url = url
        self._node = node
        self._place = url
        parts = urlsplit(url)
        self._directory: str | None = None
        if parts.scheme == "headwater" and not parts.netloc:
            self._directory = unquote(parts.path)
        if url == MEMORY:
            # A store of one's own would be another one for each connection.
            self._place = f"{MEMORY}/app-{secrets.token_hex(8)}"
        self._anchor: redis.Redis | None = None
        self._lock = threading.Lock()

    def asynchronous(self, **options: Any) -> redis.asyncio.Redis:
        """A client with a pool, for the running event loop. A lost connection is its caller's."""
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff

        from headwater.client.aio import connect

        return self._open(lambda where: connect(retry=Retry(NoBackoff(), 0), **where, **options))

    def reading(self) -> redis.asyncio.Redis:
        """A client with exactly one connection: its blocked read can be named by CLIENT ID."""
        return self.asynchronous(single_connection_client=True)

    def synchronous(self) -> redis.Redis:
        """A client for code without an event loop; safe among threads."""
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        from headwater.client.connect import connect

        return self._open(lambda where: connect(retry=Retry(NoBackoff(), 0), **where))

    @property
    def movable(self) -> bool:
        """Whether a new client may find the store elsewhere: a directory is opened in this process,
        or served by another one."""
        return self._node is None and self._directory is not None

    def _open(self, make: Callable[[dict[str, Any]], C]) -> C:
        """A client, of the directory's server while another process serves it."""
        directory = self._directory
        if self._node is not None or directory is None:
            return make(self._where())
        served = served_at(directory)
        if served is None:
            try:
                return make(self._where())
            except StoreInUse:
                # Another process may have begun to serve it just now.
                served = served_at(directory)
                if served is None:
                    raise
        return make({"url": served})

    def _where(self) -> dict[str, Any]:
        if self._node is not None:
            return {"node": self._node}
        if self._place.startswith(MEMORY):
            self._hold()
        return {"url": self._place}

    def _hold(self) -> None:
        """A store in memory is gone with its last client: keep one as long as this object lives."""
        from headwater.client.connect import connect

        with self._lock:
            if self._anchor is None:
                self._anchor = connect(self._place)


def lost_connection() -> tuple[type[Exception], ...]:
    """The errors that mean: the store went away; what was sent may or may not have run."""
    from redis.exceptions import ConnectionError as RedisConnectionError
    from redis.exceptions import TimeoutError as RedisTimeoutError

    return (RedisConnectionError, RedisTimeoutError, Disconnected, StoreClosed, OSError)


def refused_for_good() -> tuple[type[Exception], ...]:
    """The errors that no waiting mends: a wrong password, no permission."""
    from redis.exceptions import AuthenticationError, AuthorizationError

    return (AuthenticationError, AuthorizationError)


def may_have_run(error: Exception) -> bool:
    """Whether a connection was lost after something was sent that must not be repeated."""
    from headwater.client import guarded

    return guarded.may_have_run(error)
