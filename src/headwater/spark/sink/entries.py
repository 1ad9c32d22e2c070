"""Encodes record batches as XADDs, byte by byte.

Fields are encoded column by column as RESP arguments, and a row is the concatenation of its columns' pieces.
With redis-py, building and packing a list of arguments per row would take five times as long.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from headwater.common.model import MAX_U64, StreamID
from headwater.errors import EncodeError
from headwater.messages.codecs import DATA_FIELD
from headwater.messages.keys import RESERVED
from headwater.spark.core.finite import NonFinite, has_non_finite, in_words, is_finite
from headwater.spark.sink.columns import (
    ID_COLUMN,
    UNFIT,
    builtins_of,
    entry_place,
    is_field_map,
    json_of,
    writer_of,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from headwater.spark.sink.options import Codec

T = TypeVar("T")

SLICE_ROWS: Final = 1000
"""Number of rows that are encoded at a time. Memory holds these rows twice, once encoded."""

_ID: Final = re.compile(r"([0-9]{1,20})-([0-9]{1,20})")


class EncodedRow(NamedTuple):
    """One entry. ``words`` are the RESP arguments of its fields, ``number`` is their count. ``id`` is None if the
    row sets none. ``stream`` is the stream that the row names; empty without a column of stream names."""

    id: StreamID | None
    words: bytes
    number: int
    stream: str = ""


class RowEncoder:
    """Encodes the rows of one task as entries.

    Raises `EncodeError`, naming the row, for a row that cannot be encoded and for ids that do not increase.
    """

    def __init__(
        self,
        schema: StructType,
        codec: Codec,
        non_finite: NonFinite = "refuse",
        *,
        stream_column: str | None = None,
    ) -> None:
        self._schema = schema
        self._codec = codec
        self._non_finite = non_finite
        names = schema.names
        self._id = names.index(ID_COLUMN) if ID_COLUMN in names else None
        self._stream = None if stream_column is None else names.index(stream_column)
        others = (self._id, self._stream)
        self._columns = [place for place in range(len(names)) if place not in others]
        self._entry = entry_place(schema)
        self._rows = 0
        self._last: dict[str, StreamID] = {}

    def rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[EncodedRow]:
        """Yield the entries of ``batches`` in order."""
        for batch in batches:
            for start in range(0, batch.num_rows, SLICE_ROWS):
                part = batch.slice(start, SLICE_ROWS)
                bodies = self._bodies(part)
                streams = self._streams(part)
                ids = self._ids(part, streams)
                for stream, id_, (words, count) in zip(streams, ids, bodies, strict=True):
                    if not count:
                        raise EncodeError(self._without_fields())
                    yield EncodedRow(id_, words, count, stream)
                    self._rows += 1

    def _without_fields(self) -> str:
        if self._entry is not None:
            return (
                f"row {self._rows} of this task has no fields in the column 'entry': omit such rows"
            )
        return (
            f"row {self._rows} of this task is null in every column, but an entry needs a field: omit such "
            "rows (WHERE … IS NOT NULL), or write with codec=json"
        )

    # --- bodies -----------------------------------------------------------------------------------

    def _bodies(self, batch: pa.RecordBatch) -> Iterator[tuple[bytes, int]]:
        if self._entry is not None:
            return self._entries(batch.column(self._entry))
        return self._fields(batch) if self._codec == "fields" else self._documents(batch)

    def _entries(self, column: pa.Array) -> Iterator[tuple[bytes, int]]:
        """Encode whole entries, with their fields in order."""
        import pyarrow as pa
        import pyarrow.compute as pc

        pairs = column.flatten()
        names, values = (one.to_pylist() for one in pairs.flatten())
        counts = pc.list_value_length(column).fill_null(pa.scalar(0, pa.int32())).to_pylist()
        at = 0
        for row, count in enumerate(counts, self._rows):
            found = list(zip(names[at : at + count], values[at : at + count], strict=True))
            if any(name is None or value is None for name, value in found):
                raise EncodeError(
                    f"row {row} of this task has null as a field's name or value in the column 'entry', which "
                    "an entry cannot have: omit such fields"
                )
            yield b"".join(words(name, value) for name, value in found), 2 * count
            at += count

    def _fields(self, batch: pa.RecordBatch) -> Iterator[tuple[bytes, int]]:
        """Encode a field for each value that is not null."""
        pieces: list[list[bytes]] = []
        spread: list[list[int]] = []
        whole = 0
        for place in self._columns:
            field, column = self._schema.fields[place], batch.column(place)
            if is_field_map(field.name, field.dataType):
                parts, counts = self._converted(place, column, _map_pieces)
                spread.append(counts)
            else:
                parts = _pieces(field.name.encode(), self._written(place, column))
                if column.null_count:
                    spread.append([2 if part else 0 for part in parts])
                else:
                    whole += 2
            pieces.append(parts)
        bodies = map(b"".join, zip(*pieces, strict=True))
        if not spread:
            return ((body, whole) for body in bodies)
        counted = map(sum, zip(*spread, strict=True))
        return ((body, whole + more) for body, more in zip(bodies, counted, strict=True))

    def _written(self, place: int, column: pa.Array) -> list[bytes | None]:
        write = writer_of(self._schema.fields[place].dataType)
        if write is None:
            return json_of(self._values(place, column))
        return self._converted(place, column, write)

    def _converted(self, place: int, column: pa.Array, convert: Callable[[pa.Array], T]) -> T:
        """Return ``convert(column)``. Raises `EncodeError`, naming the row, for a value that a message cannot contain."""
        try:
            return convert(column)
        except UNFIT:
            for row in range(len(column)):
                try:
                    convert(column.slice(row, 1))
                except UNFIT as unfit:
                    name = self._schema.names[place]
                    raise EncodeError(
                        f"row {self._rows + row} of this task has a value in the column {name!r} that a message cannot "
                        f"contain ({unfit}). Text must be UTF-8, days and times in the years 1 to 9999, and the keys "
                        "of a map different: convert such values, or omit such rows"
                    ) from None
            raise

    def _values(self, place: int, column: pa.Array) -> list[Any]:
        """Return the values of a column as objects that JSON can represent."""
        values = self._converted(place, column, builtins_of)
        if not has_non_finite(column):
            return values
        if self._non_finite == "text":
            return [in_words(value) for value in values]
        numbered = enumerate(values, self._rows)
        row = next((at for at, value in numbered if not is_finite(value)), None)
        if row is None:
            return values
        raise EncodeError(
            f"row {row} of this task has NaN or an infinity in the column {self._schema.names[place]!r}, and "
            "JSON has neither. Replace them (nanvl), write them as text (option nonFinite=text), or write "
            "with codec=msgpack"
        )

    def _documents(self, batch: pa.RecordBatch) -> Iterator[tuple[bytes, int]]:
        """Encode each row as one field, which contains a document of all columns."""
        import msgspec

        json = self._codec == "json"
        encode = msgspec.json.Encoder().encode if json else msgspec.msgpack.Encoder().encode
        names = [self._schema.names[place] for place in self._columns]
        columns = [
            self._values(place, batch.column(place))
            if json
            else self._converted(place, batch.column(place), builtins_of)
            for place in self._columns
        ]
        documents = [
            encode(dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)
        ]
        return ((words, 2) for words in _pieces(DATA_FIELD, documents))

    # --- streams and ids --------------------------------------------------------------------------

    def _streams(self, batch: pa.RecordBatch) -> list[str]:
        if self._stream is None:
            return [""] * batch.num_rows
        streams: list[str] = self._texts(self._stream, batch)
        wrong = next((at for at, name in enumerate(streams) if not name or RESERVED in name), None)
        if wrong is not None:
            raise EncodeError(
                f"row {self._rows + wrong} of this task has {streams[wrong]!r} as its stream, in the column "
                f"{self._schema.names[self._stream]!r}: a name is a non-empty string that does not contain "
                f"{RESERVED!r}"
            )
        return streams

    def _texts(self, place: int, batch: pa.RecordBatch) -> list[Any]:
        return self._converted(place, batch.column(place), lambda column: column.to_pylist())

    def _ids(self, batch: pa.RecordBatch, streams: list[str]) -> Iterator[StreamID | None]:
        if self._id is None:
            yield from (None for _row in range(batch.num_rows))
            return
        texts = zip(streams, self._texts(self._id, batch), strict=True)
        for number, (stream, text) in enumerate(texts, self._rows):
            found = _ID.fullmatch(text) if text is not None else None
            id_ = StreamID(int(found[1]), int(found[2])) if found else None
            if id_ is None or max(id_) > MAX_U64 or id_ == (0, 0):
                raise EncodeError(
                    f"row {number} of this task has the invalid id {text!r}; an entry's id looks like "
                    "1526569498055-0. To let the server generate ids, remove the column 'id'."
                )
            last = self._last.get(stream)
            if last is not None and id_ <= last:
                raise EncodeError(
                    f"row {number} of this task has the id {id_}, which is not above the previous one, "
                    f"{last}, but ids of a stream only increase: sort by them (ORDER BY), or "
                    "remove the column 'id'"
                )
            self._last[stream] = id_
            yield id_


def command(*arguments: bytes) -> bytes:
    """Encode a RESP request."""
    return b"*%d\r\n%b" % (len(arguments), words(*arguments))


def words(*arguments: bytes) -> bytes:
    """Encode RESP arguments."""
    return b"".join(b"$%d\r\n%b\r\n" % (len(argument), argument) for argument in arguments)


def _pieces(name: bytes, values: Iterable[bytes | None]) -> list[bytes]:
    head = words(name) + b"$"
    return [
        b"" if value is None else b"%b%d\r\n%b\r\n" % (head, len(value), value) for value in values
    ]


def _map_pieces(column: pa.Array) -> tuple[list[bytes], list[int]]:
    """Encode maps as fields; return for each map its encoded fields and the number of their arguments."""
    parts, counts = [], []
    for pairs in column.to_pylist():
        found = [
            (name.encode(), value.encode() if isinstance(value, str) else value)
            for name, value in pairs or ()
            if value is not None
        ]
        parts.append(b"".join(words(name, value) for name, value in found))
        counts.append(2 * len(found))
    return parts, counts
