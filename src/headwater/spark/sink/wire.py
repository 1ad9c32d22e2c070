"""A connection that sends packets of many commands, and reads their replies as hiredis parses them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headwater.client.server_url import is_cluster
from headwater.errors import Disconnected
from headwater.spark.core.connection import connect_to_owner, patiently

if TYPE_CHECKING:
    import redis

_RECEIVE_BYTES: Final = 64 * 1024

_ONE_ROW: Final = 2 * 1024 * 1024
"""Number of bytes beyond which a packet has only one row (appending.py)."""

_ELSEWHERE_OR_LATER: Final = (
    *("LOADING", "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN"),
    *("READONLY", "MASTERDOWN"),  # a primary that has become a replica
)
"""Errors after which a later attempt on a new connection, perhaps to another node, can succeed."""


_MOST_NODES: Final = 64
"""Maximum number of keys in a cluster for which connections are open at the same time."""


class Wire:
    """A connection of ``client`` to the server, or to one node of a cluster.

    After an error, the next request uses a new connection: on the old one it could receive replies to earlier requests.
    """

    def __init__(self, url: str, client: redis.Redis) -> None:
        self._url = url
        self._client = client
        self._connection: Any = None

    def exchange(self, packet: bytes, replies: int) -> tuple[list[Any], bool]:
        """Return the replies, including errors, and whether the packet was sent more than once."""
        attempts = 0

        def attempt() -> list[Any]:
            nonlocal attempts
            attempts += 1
            return self.once(packet, replies)

        try:
            return patiently(self._url, attempt), attempts > 1
        except Disconnected as error:
            if len(packet) <= _ONE_ROW:
                raise
            raise Disconnected(
                f"{error} A server also closes the connection if a value is longer than its proto-max-bulk-len (by "
                f"default 512 MB), and a row of this request has about {len(packet):,} bytes."
            ) from None

    def once(self, packet: bytes, replies: int) -> list[Any]:
        """Return the replies to ``packet``, which is sent once. After an error it may have been executed."""
        if self._connection is None:
            self._connection = self._client.connection_pool.get_connection()
        try:
            self._connection.send_packed_command([packet])
            return self._receive(replies)
        except BaseException:
            self._connection.disconnect()
            raise

    def _receive(self, replies: int) -> list[Any]:
        # redis-py takes some 4 µs per reply, longer than encoding a row takes. So redis-py only connects and
        # authenticates; this function reads from the socket and parses the replies with hiredis directly.
        import hiredis
        import redis

        sock, reader = self._connection._sock, hiredis.Reader()  # noqa: SLF001
        answers: list[Any] = []
        while len(answers) < replies:
            data = sock.recv(_RECEIVE_BYTES)
            if not data:
                raise redis.ConnectionError("the server closed the connection")
            reader.feed(data)
            while (answer := reader.gets(False)) is not False:
                answers.append(answer)
        for answer in answers:
            if isinstance(answer, Exception) and str(answer).startswith(_ELSEWHERE_OR_LATER):
                raise redis.BusyLoadingError(str(answer))
        return answers

    def close(self) -> None:
        if self._connection is not None:
            self._connection.disconnect()
            self._client.connection_pool.release(self._connection)
            self._connection = None


class OwnerConnections:
    """Clients and wires for keys: to the server, or to those nodes of a cluster that own the keys.

    Without a cluster, all keys share one client and one wire.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._one_for_all = not is_cluster(url)
        self._clients: dict[str, redis.Redis] = {}
        self._wires: dict[str, Wire] = {}

    def client(self, key: str) -> redis.Redis:
        """Return a client for commands with ``key``."""
        place = "" if self._one_for_all else key
        if place not in self._clients:
            if len(self._clients) >= _MOST_NODES:
                self._close(next(iter(self._clients)))
            self._clients[place] = connect_to_owner(self._url, key)
        return self._clients[place]

    def wire(self, key: str) -> Wire:
        """Return a wire for commands with ``key``."""
        place = "" if self._one_for_all else key
        client = self.client(key)
        if place not in self._wires:
            self._wires[place] = Wire(self._url, client)
        return self._wires[place]

    def close(self) -> None:
        for place in list(self._clients):
            self._close(place)

    def _close(self, place: str) -> None:
        wire = self._wires.pop(place, None)
        if wire is not None:
            wire.close()
        self._clients.pop(place).close()
