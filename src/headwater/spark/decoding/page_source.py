"""The connection that pages come over: the only place that takes bytes from redis-py's socket.

redis-py hands out decoded replies only. Once it has connected and authenticated, the socket under it
(TCP, TLS or unix) gives the bytes of replies as they are.

Rule 1. One request is under way at most, and `PageSource.ahead` sends the next as soon as it is known,
        so the server works on a page while the one before it is decoded.
Rule 2. After an error half a reply may be under way: the connection is closed, and asking again opens
        another. What is asked again is the same range, so nothing is read twice.
Rule 3. A connection with no reply under way stays open for the process's next partition: opening one
        takes three round trips and five times as long as reading a few rows. redis-py looks whether
        the server has closed it meanwhile. Spark ends a Python process that is idle for a minute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import hiredis

from headwater.model import IDRange
from headwater.spark.core.store import connect
from headwater.spark.decoding.page import Page
from headwater.spark.decoding.reply import PageDecoder

if TYPE_CHECKING:
    import redis

_NOT_YET: Final = ("LOADING", "MASTERDOWN", "TRYAGAIN", "CLUSTERDOWN")
"""Errors of a server that will answer soon."""


_MOST_STORES: Final = 4
"""Of which a process keeps connections open."""

_stores: dict[str, redis.Redis] = {}


class Request(NamedTuple):
    """One page: at most ``most`` entries of ``stream`` from ``ids``."""

    stream: str
    ids: IDRange
    most: int


class PageSource:
    """One connection to the server at ``url``."""

    def __init__(self, url: str) -> None:
        self._client = _store(url)
        self._connection: Any = None
        self._decoder = PageDecoder()
        self._asked: Request | None = None

    @property
    def weight(self) -> int:
        """Bytes of the last page's reply."""
        return self._decoder.weight

    def ahead(self, request: Request) -> None:
        """Send what `page` will be asked for next; if that fails, `page` sends it again."""
        import redis

        try:
            self._send(request)
        except (redis.RedisError, OSError):
            self._drop()

    def page(self, request: Request) -> Page:
        """One page. The caller may ask again after an error.

        Raises redis-py's errors for the connection and the server's, `ProtocolError` for a reply that
        is none.
        """
        try:
            if self._asked != request:
                self._send(request)
            return self._receive()
        except hiredis.ReplyError as error:
            self._drop()
            raise _of_redis(str(error)) from None
        except BaseException:
            self._drop()
            raise

    def _send(self, request: Request) -> None:
        if self._asked is not None:
            self._drop()
        if self._connection is None:
            self._connection = self._client.connection_pool.get_connection()
        stream, ids, most = request
        self._asked = request  # before: what was sent in part must not be kept either
        self._connection.send_command("XRANGE", stream, str(ids.start), str(ids.end), "COUNT", most)

    def _receive(self) -> Page:
        import redis

        sock = self._connection._sock  # noqa: SLF001 - see above
        while True:
            size = sock.recv_into(self._decoder.room())
            if not size:
                raise redis.ConnectionError("the server closed the connection")
            page = self._decoder.received(size)
            if page is not None:
                self._asked = None
                return page

    def _drop(self) -> None:
        self._asked = None
        self._decoder = PageDecoder()
        if self._connection is not None:
            self._connection.disconnect()
            self._client.connection_pool.release(self._connection)
            self._connection = None

    def close(self) -> None:
        """Keep the connection for the next partition, unless a reply is under way on it."""
        if self._asked is not None:
            self._drop()
        elif self._connection is not None:
            self._client.connection_pool.release(self._connection)
            self._connection = None


def _store(url: str) -> redis.Redis:
    """This process's client of the server at ``url``."""
    client = _stores.get(url)
    if client is None:
        while len(_stores) >= _MOST_STORES:
            _stores.pop(next(iter(_stores)))  # its connections are closed with it
        client = _stores[url] = connect(url)
    return client


def _of_redis(text: str) -> Exception:
    """The server's error as redis-py raises it, so that it is judged as everywhere else."""
    import redis

    if text.startswith(_NOT_YET):
        return redis.BusyLoadingError(text)
    return redis.ResponseError(text)
