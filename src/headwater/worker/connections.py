"""The one place where a worker opens connections.

Reading, settling and renewing have a connection each, so that a blocked read, a long batch and a
handler that blocks the event loop do not wait for one another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from headwater.errors import Disconnected
from headwater.groups.claiming import MAX_BLOCK_MS

if TYPE_CHECKING:
    import redis
    import redis.asyncio

READ_SECONDS = MAX_BLOCK_MS / 1000 + 10
"""A read that takes longer than the longest BLOCK and this much more has lost its connection."""

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0
"""Seconds between attempts to come back: doubling, so that a store that restarts is not stormed."""


class Connections:
    """Opens clients of one store. What it opens, its caller closes."""

    def __init__(self, url: str) -> None:
        self.url = url

    def asynchronous(self) -> redis.asyncio.Redis:
        """A client with a pool, for the running event loop."""
        import redis.asyncio
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff

        client: redis.asyncio.Redis = redis.asyncio.Redis.from_url(
            self.url, retry=Retry(NoBackoff(), 0), **_timeouts()
        )
        return client

    def reading(self) -> redis.asyncio.Redis:
        """A client with exactly one connection: its blocked read can be named by CLIENT ID."""
        import redis.asyncio
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff

        client: redis.asyncio.Redis = redis.asyncio.Redis.from_url(
            self.url, retry=Retry(NoBackoff(), 0), single_connection_client=True, **_timeouts()
        )
        return client

    def synchronous(self) -> redis.Redis:
        """A client for code without an event loop; safe among threads."""
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        client: redis.Redis = redis.Redis.from_url(
            self.url, retry=Retry(NoBackoff(), 0), **_timeouts()
        )
        return client


def _timeouts() -> dict[str, Any]:
    return {
        "socket_timeout": READ_SECONDS,
        "socket_connect_timeout": 5,
        "socket_keepalive": True,
        "decode_responses": False,
    }


def lost_connection() -> tuple[type[Exception], ...]:
    """The errors that mean: the store went away; what was sent may or may not have run."""
    from redis.exceptions import ConnectionError as RedisConnectionError
    from redis.exceptions import TimeoutError as RedisTimeoutError

    return (RedisConnectionError, RedisTimeoutError, Disconnected, OSError)


def refused_for_good() -> tuple[type[Exception], ...]:
    """The errors that no waiting mends: a wrong password, no permission."""
    from redis.exceptions import AuthenticationError, AuthorizationError

    return (AuthenticationError, AuthorizationError)


def shown_url(url: str) -> str:
    """A URL without its password, for log lines.

    >>> shown_url("redis://ann:secret@localhost:6379/0")
    'redis://ann:***@localhost:6379/0'
    """
    parts = urlsplit(url)
    credentials, at, host = parts.netloc.rpartition("@")
    if not at:
        return url
    user = credentials.partition(":")[0]
    return parts._replace(netloc=f"{user}:***@{host}", query="").geturl()
