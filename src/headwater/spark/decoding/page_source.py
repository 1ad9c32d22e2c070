"""The connection from which pages are read. Only this module and `sink/wire.py` take bytes from redis-py's socket.

redis-py returns only decoded replies. After redis-py has connected and authenticated, this module reads the raw
bytes of replies from redis-py's socket (TCP, TLS or unix).

Rule 1. At most one request is pending. `PageSource.ahead` sends the next request as soon as it is known, so the
        server prepares a page while the previous page is decoded.
Rule 2. After an error, part of a reply may still arrive. Therefore the connection is closed, and the next request
        opens another one and requests the same range again, so no entry is read twice.
Rule 3. A connection without a pending reply stays open for the process's next partition. Opening a connection
        takes three round trips, five times as long as reading a few rows. redis-py checks whether the server has
        closed the connection meanwhile. Spark ends a Python process that has been idle for a minute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import hiredis

from headwater.client.drivers import run
from headwater.client.server_url import NodeAddress
from headwater.client.sync.cluster import ClusterClient
from headwater.common.model import IDRange
from headwater.spark.core.connection import connect
from headwater.spark.decoding.page import Page
from headwater.spark.decoding.reply import PageDecoder

if TYPE_CHECKING:
    import redis

_NOT_YET: Final = ("LOADING", "MASTERDOWN", "TRYAGAIN", "CLUSTERDOWN")
"""Errors after which a server will soon be able to execute the command."""


_MOST_STORES: Final = 4
"""Maximum number of stores to which a process keeps connections open."""

_stores: dict[str, redis.Redis] = {}


class Request(NamedTuple):
    """One page: at most ``most`` entries of ``stream`` in ``ids``."""

    stream: str
    ids: IDRange
    most: int


class PageSource:
    """A connection to the server at ``url``."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client: redis.Redis | None = None
        self._connection: Any = None
        self._node: NodeAddress | None = None
        """The node of the cluster to which the connection is or was last open; None without a cluster."""
        self._asked_of: NodeAddress | None = None
        """The node to which the stream's slot is moving, if it already has the stream; else None."""
        self._decoder = PageDecoder()
        self._asked: Request | None = None

    @property
    def weight(self) -> int:
        """The size of the last page's reply in bytes."""
        return self._decoder.weight

    def ahead(self, request: Request) -> None:
        """Send the request of the next call of `page`. If sending fails, `page` sends the request again."""
        import redis

        try:
            self._send(request)
        except (redis.RedisError, OSError):
            self._drop()

    def page(self, request: Request) -> Page:
        """Return one page. The caller may repeat the call after an error.

        Raises redis-py's errors for the connection and for error replies, and `ProtocolError` for an
        invalid reply.
        """
        try:
            if self._asked != request:
                self._send(request)
            return self._receive()
        except hiredis.ReplyError as error:
            self._drop()
            raise self._of_redis(str(error)) from None
        except BaseException:
            self._doubt()
            self._drop()
            raise

    def _send(self, request: Request) -> None:
        if self._asked is not None:
            self._drop()
        stream, ids, most = request
        if self._connection is None:
            self._connection = self._opened(stream)
        if self._asked_of is not None:
            self._connection.send_command("ASKING")
            self._connection.read_response()
        self._asked = request  # set first: a partly sent request must not be kept either
        self._connection.send_command("XRANGE", stream, str(ids.start), str(ids.end), "COUNT", most)

    def _opened(self, stream: str) -> Any:
        """Return a connection to the server, or to the node of the cluster that has ``stream``."""
        self._client = _store(self._url)
        if isinstance(self._client, ClusterClient):
            calls = self._client.calls
            self._node = self._asked_of or run(calls.known_owner(stream))
            self._client = calls.client_of(self._node)
        return self._client.connection_pool.get_connection()

    def _of_redis(self, text: str) -> Exception:
        """Return a server's error as the exception that redis-py raises for such an error."""
        import redis

        kind, _, rest = text.partition(" ")
        if kind == "MOVED" and self._node is None:
            return redis.exceptions.MovedError(rest)
        if (
            kind in ("MOVED", "ASK") and self._node is not None
        ):  # the next attempt connects to the other node
            error = redis.exceptions.MovedError(rest)
            error.host = error.host or self._node.host
            self._asked_of = NodeAddress(error.host, error.port) if kind == "ASK" else None
            if kind == "MOVED":
                _store(self._url).calls.moved(error)
            return redis.BusyLoadingError(text)
        return (redis.BusyLoadingError if text.startswith(_NOT_YET) else redis.ResponseError)(text)

    def _receive(self) -> Page:
        import redis

        sock = self._connection._sock  # noqa: SLF001 - see the module's docstring
        while True:
            size = sock.recv_into(self._decoder.room())
            if not size:
                raise redis.ConnectionError("the server closed the connection")
            page = self._decoder.received(size)
            if page is not None:
                self._asked = None
                return page

    def _doubt(self) -> None:
        """Report a lost connection to the cluster's client, because another node may have replaced this node."""
        client = _store(self._url)
        if self._node is not None and isinstance(client, ClusterClient):
            client.calls.doubt(self._node)
        self._asked_of = None

    def _drop(self) -> None:
        self._asked = None
        self._decoder = PageDecoder()
        if self._connection is not None:
            self._connection.disconnect()
            self._release()

    def close(self) -> None:
        """Keep the connection open for the next partition, unless a reply is pending on it."""
        if self._asked is not None:
            self._drop()
        elif self._connection is not None:
            self._release()

    def _release(self) -> None:
        assert self._client is not None, "a connection belongs to a client"
        self._client.connection_pool.release(self._connection)
        self._connection = None


def _store(url: str) -> Any:
    """Return this process's client of the server or cluster at ``url``."""
    client = _stores.get(url)
    if client is None:
        while len(_stores) >= _MOST_STORES:
            _stores.pop(next(iter(_stores)))  # this closes its connections
        client = _stores[url] = connect(url)
    return client
