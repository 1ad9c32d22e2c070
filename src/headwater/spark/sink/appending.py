"""XADDs to the server, many in flight, from a task.

Rule 1. What is in flight is bounded in rows and in bytes, whichever is less.
Rule 2. When the connection breaks, what was in flight is sent again. To a stage it has ids, so what
        had arrived is refused and is there once. To the stream itself it may be there twice: that
        is what at least once means.
Rule 3. A stage expires in a day from the last write to it, from its very first entry on: one MULTI.
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
from headwater.spark.core.store import connect, patiently
from headwater.spark.sink.entries import EncodedRow, words

if TYPE_CHECKING:
    from headwater.spark.sink.options import SinkOptions

FLUSH_ROWS: Final = 1000
FLUSH_BYTES: Final = 1024 * 1024
"""What is sent before the replies are read."""

_RECEIVE_BYTES: Final = 64 * 1024

STAGE_SECONDS: Final = 24 * 60 * 60
"""How long a stage stays that nobody records: longer than a batch takes, and then it tidies itself."""

_NOT_ABOVE: Final = "equal or smaller"
"""In the error of XADD for an id that is not above the last one, on every server."""


@dataclass(frozen=True)
class Staged:
    """What a task wrote: a stage and what is in it. ``first`` and ``last`` are ids that rows gave."""

    uuid: str
    count: int
    bytes: int
    first: StreamID | None = None
    last: StreamID | None = None


class _Wire:
    """One connection of redis-py, to which packets are sent whole."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client = connect(url)
        self._connection: Any = None

    def exchange(self, packet: bytes, replies: int) -> tuple[list[Any], bool]:
        """The replies, errors among them, and whether the packet was sent more than once."""
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
                # Replies may be under way: this connection's next answer would not be ours.
                self._connection.disconnect()
                raise

        return patiently(self._url, attempt), attempts > 1

    def _receive(self, replies: int) -> list[Any]:
        # redis-py reads a reply in some 4 µs, more than the row took until here. The socket under it,
        # once it has connected and authenticated, gives the bytes, and its parser is quick by itself.
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
            if isinstance(answer, Exception) and str(answer).startswith("LOADING"):
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
        self._wire = _Wire(options.url)
        self._packet: list[bytes] = []
        self._rows = self._bytes = 0
        self.count = self.bytes = 0

    def append_all(self, rows: Iterable[EncodedRow]) -> None:
        """Write ``rows``; returns when the server has answered for all of them."""
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
        """Add the commands that one row takes."""

    @abstractmethod
    def _give_up(self) -> None:
        """Take back what can be taken back."""

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
                ". The column 'id' gives ids, which must rise: across tasks too, and above what "
                "others add. Sort by id into one partition, or leave the column out"
            )
        raise HeadwaterError(
            f"{redacted(self._options.url)} refused an entry for {self._options.stream!r}: "
            f"{answer}{hint}."
        )


class StreamAppender(_Appender):
    """Rows to the stream itself, at least once."""

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
        """Nothing can be: readers may have it already."""


class StageAppender(_Appender):
    """Rows to a stage of their own. Each is an entry ``<n>-0``, n from 1, whose first field ``id``
    is the id that it is to have and whose other fields are the row's."""

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
        """What was written."""
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
        if self.count == replies:  # the first packet: the key comes with its expiry
            first = [b"*1\r\n$5\r\nMULTI\r\n", packet[0], self._expire, b"*1\r\n$4\r\nEXEC\r\n"]
            packet, replies = [*first, *packet[1:]], replies + 3
        super()._exchange([*packet, self._expire], replies + 1)

    def _give_up(self) -> None:
        with contextlib.suppress(HeadwaterError):  # it expires
            self._wire.exchange(b"*2\r\n" + words(b"UNLINK", self._key), 1)
