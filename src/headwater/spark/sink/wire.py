"""A connection that sends packets of many commands, and reads their replies as hiredis parses them."""

from __future__ import annotations

from typing import Any, Final

from headwater.spark.core.connection import connect_to_owner, patiently

_RECEIVE_BYTES: Final = 64 * 1024

_ELSEWHERE_OR_LATER: Final = ("LOADING", "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN")
"""Errors after which a new connection, perhaps to another node of a cluster, will be served."""


class Wire:
    """A connection of redis-py to the server, or to the node that owns ``key``.

    After an error it connects again: replies may still arrive, so the next reply would not belong to the next request.
    """

    def __init__(self, url: str, key: str) -> None:
        self._url = url
        self._client = connect_to_owner(url, key)
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
        self._client.close()
