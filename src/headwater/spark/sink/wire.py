"""A connection that sends packets of many commands, and reads their replies as hiredis parses them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headwater.client.server_url import is_cluster
from headwater.spark.core.connection import connect_to_owner, patiently

if TYPE_CHECKING:
    import redis

_RECEIVE_BYTES: Final = 64 * 1024

_ELSEWHERE_OR_LATER: Final = (
    *("LOADING", "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN"),
    *("READONLY", "MASTERDOWN"),  # a primary that has become a replica
)
"""Errors after which a new connection, perhaps to another node of a cluster, will be served."""


_MOST_NODES: Final = 64
"""Maximum number of keys of a cluster that have connections at a time."""


class Wire:
    """A connection of ``client`` to the server, or to the node of a cluster.

    After an error it connects again: replies may still arrive, so the next reply would not belong to the next request.
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

        return patiently(self._url, attempt), attempts > 1

    def once(self, packet: bytes, replies: int) -> list[Any]:
        """Do the same as `exchange` without patience. After an error the packet may have been executed."""
        if self._connection is None:
            self._connection = self._client.connection_pool.get_connection()
        try:
            self._connection.send_packed_command([packet])
            return self._receive(replies)
        except BaseException:
            self._connection.disconnect()
            raise

    def _receive(self, replies: int) -> list[Any]:
        # redis-py takes some 4 µs per reply, more than encoding the row. Once it has connected and
        # authenticated, this reads the bytes from its socket and parses them with hiredis directly.
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
    """Clients and wires of the server, or of the nodes of the cluster, that own certain keys.

    A server has one of each for all keys.
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
