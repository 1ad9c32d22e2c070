"""Sends XADDs to the server from a task, with many in flight.

Rule 1. The requests in flight are limited by rows and by bytes, whichever is reached first.
Rule 2. When the connection breaks, all requests in flight are sent again. Packs of a stage have ids, so the
        server refuses packs that had arrived, and the stage contains each pack once. Entries of the stream
        itself may be added twice: delivery is at least once.
Rule 3. A stage expires one day after the last write to it. One MULTI adds the first pack and sets the expiry.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headwater.client.redaction import redacted
from headwater.common.model import StreamID
from headwater.errors import HeadwaterError
from headwater.messages.keys import stage_key
from headwater.spark.sink.entries import EncodedRow, command, words
from headwater.spark.sink.packs import pack
from headwater.spark.sink.wire import OwnerConnections

if TYPE_CHECKING:
    from headwater.spark.sink.options import SinkOptions

FLUSH_ROWS: Final = 1000
FLUSH_BYTES: Final = 1024 * 1024
"""Maximum number of rows before the replies are read, and of bytes, which only a single row may exceed. Both also
limit a pack: publishing a pack takes some milliseconds, in which the server does nothing else."""

STAGE_SECONDS: Final = 24 * 60 * 60
"""Time after which a stage expires unless a driver records it, in seconds. It must exceed a batch's duration."""

_NOT_ABOVE: Final = "equal or smaller"
"""Part of XADD's error for an id that is not above the last one, on every server."""


@dataclass(frozen=True)
class Staged:
    """A stage that a task wrote. ``count`` is its number of rows. ``first`` and ``last`` are the ids that its
    first and last row set; None if its rows do not set ids."""

    uuid: str
    count: int
    bytes: int
    first: StreamID | None
    last: StreamID | None
    packs: int


class _Appender(ABC):
    """Encodes rows as XADDs to one stream, and sends them together."""

    def __init__(self, options: SinkOptions, connections: OwnerConnections) -> None:
        self._options = options
        self._connections = connections
        place = [options.stream, *options.trim]
        self._head = words(b"XADD", *(word.encode() for word in place))
        self._arguments = 1 + len(place) + 1
        self._packet: list[bytes] = []
        self.waiting = 0
        """The number of bytes that are not sent yet."""
        self.count = self.bytes = 0

    def append(self, row: EncodedRow) -> None:
        """Add a row. Send the waiting rows if their number or size has reached its limit."""
        id_ = b"*" if row.id is None else str(row.id).encode()
        request = b"*%d\r\n%b$%d\r\n%b\r\n%b" % (
            self._arguments + row.number,
            self._head,
            len(id_),
            id_,
            row.words,
        )
        if self.waiting + len(request) > FLUSH_BYTES:
            self.flush()
        self._packet.append(request)
        self.waiting += len(request)
        if len(self._packet) >= FLUSH_ROWS or self.waiting >= FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Send the waiting rows, and wait until the server has replied to all of them."""
        if not self._packet:
            return
        packet, self._packet = self._packet, []
        self.count += len(packet)
        self.bytes += self.waiting
        self.waiting = 0
        self._send(packet)

    @abstractmethod
    def give_up(self) -> None:
        """Undo the writes as far as possible; called after an error."""

    @abstractmethod
    def _send(self, rows: list[bytes]) -> None:
        """Send ``rows``. Each row is an XADD to the stream."""

    def _exchange(self, packet: bytes, replies: int) -> None:
        wire = self._connections.wire(self._options.stream)
        answers, again = wire.exchange(packet, replies)
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
                ". The column 'id' sets ids, which must increase across all tasks and be above those that "
                "others add. Sort by id into one partition, or remove the column"
            )
        raise HeadwaterError(
            f"{redacted(self._options.url)} refused an entry for {self._options.stream!r}: "
            f"{answer}{hint}."
        )


class StreamAppender(_Appender):
    """Appends rows to the stream itself, at least once."""

    def _send(self, rows: list[bytes]) -> None:
        self._exchange(b"".join(rows), len(rows))

    def give_up(self) -> None:
        """Do nothing: readers may already have the entries."""


class StageAppender(_Appender):
    """Appends rows to a new stage, many in one entry (packs.py)."""

    def __init__(
        self, options: SinkOptions, connections: OwnerConnections, query: str, uuid: str
    ) -> None:
        super().__init__(options, connections)
        self._uuid = uuid
        self._key = stage_key(options.stream, query, uuid).encode()
        self._expire = command(b"EXPIRE", self._key, b"%d" % STAGE_SECONDS)
        self._packs = 0
        self._first: StreamID | None = None
        self._last: StreamID | None = None

    def staged(self) -> Staged:
        """Return a description of the stage."""
        return Staged(self._uuid, self.count, self.bytes, self._first, self._last, self._packs)

    def append(self, row: EncodedRow) -> None:
        if row.id is not None:
            self._first, self._last = self._first or row.id, row.id
        super().append(row)

    def _send(self, rows: list[bytes]) -> None:
        add = pack(self._key, rows, last=self.count, sets_ids=self._first is not None)
        if self._packs:
            self._exchange(add + self._expire, 2)
        else:  # the key is created together with its expiry
            packet = [command(b"MULTI"), add, self._expire, command(b"EXEC")]
            self._exchange(b"".join(packet), len(packet))
        self._packs += 1

    def give_up(self) -> None:
        with contextlib.suppress(HeadwaterError):  # otherwise the stage expires
            wire = self._connections.wire(self._options.stream)
            wire.exchange(command(b"UNLINK", self._key), 1)
