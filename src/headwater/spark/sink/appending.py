"""Sends XADDs to the server from a task, with many in flight.

Rule 1. The requests in flight are limited by rows and by bytes, whichever is reached first.
Rule 2. When the connection breaks, all requests in flight are sent again. Entries of a stage have ids, so
        the server refuses those that had arrived, and each is there once. Entries of the stream itself may
        be there twice, which is what at-least-once means.
Rule 3. A stage expires one day after the last write to it, from its very first entry on: one MULTI.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headwater.client.redaction import redacted
from headwater.errors import HeadwaterError
from headwater.messages.keys import stage_key
from headwater.model import StreamID
from headwater.spark.core.connection import connect_to_owner, patiently
from headwater.spark.sink.entries import EncodedRow, words

if TYPE_CHECKING:
    from headwater.spark.sink.options import SinkOptions

FLUSH_ROWS: Final = 1000
FLUSH_BYTES: Final = 1024 * 1024
"""How much is sent before the replies are read."""

_RECEIVE_BYTES: Final = 64 * 1024

STAGE_SECONDS: Final = 24 * 60 * 60
"""When a stage that no driver recorded expires: later than a batch takes."""

_ELSEWHERE_OR_LATER: Final = ("LOADING", "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN")
"""Errors after which a new connection, perhaps to another node of a cluster, will be served."""

_NOT_ABOVE: Final = "equal or smaller"
"""Part of XADD's error for an id that is not above the last one, on every server."""


@dataclass(frozen=True)
class Staged:
    """What a task wrote: a stage and its size. ``first`` and ``last`` are ids given by rows."""

    uuid: str
    count: int
    bytes: int
    first: StreamID | None = None
    last: StreamID | None = None


class _Wire:
    """A connection of redis-py that sends packets of several commands."""

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
            if self._connection is None:
                self._connection = self._client.connection_pool.get_connection()
            try:
                self._connection.send_packed_command([packet])
                return self._receive(replies)
            except BaseException:
                # Replies may still arrive, so the next reply would not belong to the next request.
                self._connection.disconnect()
                raise

        return patiently(self._url, attempt), attempts > 1

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


class _Appender(ABC):
    """Collects commands and sends them together."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._wire = _Wire(options.url, options.stream)
        self._packet: list[bytes] = []
        self._rows = self._bytes = 0
        self.count = self.bytes = 0

    def append_all(self, rows: Iterable[EncodedRow]) -> None:
        """Write ``rows``; returns when the server has replied to all of them."""
        try:
            for row in rows:
                self._append(row)
                if self._rows >= FLUSH_ROWS or self._bytes >= FLUSH_BYTES:
                    self._flush()
            if self._rows:
                self._flush()
        except Exception:
            self._give_up()
            raise
        finally:
            self._wire.close()

    @abstractmethod
    def _append(self, row: EncodedRow) -> None:
        """Add the commands for one row."""

    @abstractmethod
    def _give_up(self) -> None:
        """Undo what can be undone after an error."""

    def _add(self, command: bytes) -> None:
        self._packet.append(command)
        self._rows += 1
        self._bytes += len(command)

    def _flush(self) -> None:
        packet, replies = self._packet, self._rows
        self.count += self._rows
        self.bytes += self._bytes
        self._packet, self._rows, self._bytes = [], 0, 0
        self._exchange(packet, replies)

    def _exchange(self, packet: list[bytes], replies: int) -> None:
        answers, again = self._wire.exchange(b"".join(packet), replies)
        for answer in answers:
            self._check(answer, again=again)

    def _check(self, answer: Any, *, again: bool) -> None:
        if isinstance(answer, list):
            for one in answer:
                self._check(one, again=again)
        if not isinstance(answer, Exception) or (again and _NOT_ABOVE in str(answer)):
            return
        hint = ""
        if _NOT_ABOVE in str(answer):
            hint = (
                ". The column 'id' sets ids, which must increase: across tasks too, and above those that "
                "others add. Sort by id into one partition, or remove the column"
            )
        raise HeadwaterError(
            f"{redacted(self._options.url)} refused an entry for {self._options.stream!r}: "
            f"{answer}{hint}."
        )


class StreamAppender(_Appender):
    """Appends rows to the stream itself, at least once."""

    def __init__(self, options: SinkOptions) -> None:
        super().__init__(options)
        place = [options.stream, *options.trim]
        self._head = words(b"XADD", *(word.encode() for word in place))
        self._arguments = 1 + len(place) + 1

    def _append(self, row: EncodedRow) -> None:
        id_ = b"*" if row.id is None else str(row.id).encode()
        self._add(
            b"*%d\r\n%b$%d\r\n%b\r\n%b"
            % (self._arguments + row.number, self._head, len(id_), id_, row.words)
        )

    def _give_up(self) -> None:
        """Do nothing: readers may already have the entries."""


class StageAppender(_Appender):
    """Appends rows to a new stage.

    Each row is an entry ``<n>-0``, n from 1. Its first field ``id`` is the id that the published entry
    will have; the other fields are the row's.
    """

    def __init__(self, options: SinkOptions, query: str, uuid: str) -> None:
        super().__init__(options)
        self._uuid = uuid
        self._key = stage_key(options.stream, query, uuid).encode()
        self._head = words(b"XADD", self._key)
        self._expire = b"*3\r\n" + words(b"EXPIRE", self._key, b"%d" % STAGE_SECONDS)
        self._number = 0
        self._first: StreamID | None = None
        self._last: StreamID | None = None

    def staged(self) -> Staged:
        """Return what was written."""
        return Staged(self._uuid, self.count, self.bytes, self._first, self._last)

    def _append(self, row: EncodedRow) -> None:
        self._number += 1
        place = b"%d-0" % self._number
        id_ = b"*"
        if row.id is not None:
            id_ = str(row.id).encode()
            self._first, self._last = self._first or row.id, row.id
        self._add(
            b"*%d\r\n%b$%d\r\n%b\r\n$2\r\nid\r\n$%d\r\n%b\r\n%b"
            % (5 + row.number, self._head, len(place), place, len(id_), id_, row.words)
        )

    def _exchange(self, packet: list[bytes], replies: int) -> None:
        if self.count == replies:  # the first packet: create the key together with its expiry
            first = [b"*1\r\n$5\r\nMULTI\r\n", packet[0], self._expire, b"*1\r\n$4\r\nEXEC\r\n"]
            packet, replies = [*first, *packet[1:]], replies + 3
        super()._exchange([*packet, self._expire], replies + 1)

    def _give_up(self) -> None:
        with contextlib.suppress(HeadwaterError):  # otherwise the stage expires
            self._wire.exchange(b"*2\r\n" + words(b"UNLINK", self._key), 1)
