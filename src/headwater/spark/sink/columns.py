"""Converts a column's values to the form of an entry's fields (docs/adr/0006): text, raw bytes, JSON.

For ``None`` the entry does not have the field. The bytes are the same as those of `headwater.messages`, so
readers of the stream cannot distinguish a row from Spark and a producer's message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from headwater.errors import DeclarationError
from headwater.spark.core.entry_column import ENTRY_COLUMN, is_entry
from headwater.spark.core.years import in_years

if TYPE_CHECKING:
    import pyarrow as pa

Values = list[bytes | None]
Write = Callable[["pa.Array"], Values]

ID_COLUMN: Final = "id"
"""The column with the entry's id, which is not one of its fields."""

MAP_COLUMN: Final = "fields"
"""The column whose contents are written as fields, if its type is a map from string to string or binary."""

UNFIT: Final = (ValueError, OverflowError, KeyError)
"""The errors of pyarrow, and of a `Write`, for a value that a message cannot contain: text that is not UTF-8, a day
outside of the years 1 to 9999, a map with a repeated key."""

_TIME: Final = "%Y-%m-%dT%H:%M:%S"


def writer_of(type_: DataType) -> Write | None:
    """Return the function that converts a column of ``type_``; None for a nested type, which `json_of` converts,
    and for an unsupported type."""
    return next((write for kind, write in _WRITERS.items() if isinstance(type_, kind)), None)


def is_written(type_: DataType) -> bool:
    """Return whether a message can contain every part of a type."""
    if isinstance(type_, ArrayType):
        return is_written(type_.elementType)
    if isinstance(type_, MapType):
        return isinstance(type_.keyType, StringType) and is_written(type_.valueType)
    if isinstance(type_, StructType):
        return all(is_written(field.dataType) for field in type_.fields)
    return isinstance(type_, tuple(_WRITERS))


def is_field_map(name: str, type_: DataType) -> bool:
    """Return whether a column contains fields, like the source's column ``fields``."""
    return (
        name == MAP_COLUMN
        and isinstance(type_, MapType)
        and isinstance(type_.keyType, StringType)
        and isinstance(type_.valueType, (StringType, BinaryType))
    )


def entry_place(schema: StructType) -> int | None:
    """Return the place of the column with whole entries; None if the columns are the entries' fields instead."""
    places = [at for at, field in enumerate(schema.fields) if is_entry(field.name, field.dataType)]
    return places[0] if places else None


def loses_fields(schema: StructType) -> bool:
    """Return whether a schema is the one that the source reads by default.

    If its rows are written, ``stream`` and ``timestamp`` become fields, and ``fields`` may lack some fields.
    """
    types = {field.name: field.dataType for field in schema.fields}
    return (
        isinstance(types.get("stream"), StringType)
        and isinstance(types.get("timestamp"), TimestampType)
        and is_field_map(MAP_COLUMN, types.get(MAP_COLUMN, NullType()))
        and entry_place(schema) is None
    )


LOSS: Final = (
    "the columns stream, timestamp and fields are what the source reads by default. Written as they are, stream and "
    "timestamp become fields, and a value that is not UTF-8 or a name that occurs twice is lost. To copy entries "
    "exactly, read with includeEntry=true and write select('id', 'entry') or select('entry'). To write these "
    "columns nevertheless, set writeSourceColumns=true; or select only the columns to write."
)


def check_schema(
    schema: StructType, codec: str = "fields", stream_column: str | None = None
) -> None:
    """Raise `DeclarationError`, naming the column, if a column cannot be written."""
    if stream_column is not None:
        _check_stream_column(schema, stream_column)
        schema = StructType([field for field in schema.fields if field.name != stream_column])
    if entry_place(schema) is not None:
        _check_with_entry(schema)
        if codec != "fields":
            raise DeclarationError(
                f"codec={codec} has no effect on the column {ENTRY_COLUMN!r}, whose fields are written as they are; "
                "remove codec"
            )
    seen = set[str]()
    for field in schema.fields:
        if field.name in seen:
            raise DeclarationError(f"two columns are named {field.name!r}; rename one with AS")
        seen.add(field.name)
        if field.name == ID_COLUMN and not isinstance(field.dataType, StringType):
            raise DeclarationError(
                f"the column 'id' is the entry's id, text like 1526569498055-0, but has the type "
                f"{field.dataType.simpleString()}. Give the message's own id another name "
                "(SELECT id AS order_id, …)."
            )
        if not is_written(field.dataType):
            raise DeclarationError(
                f"the column {field.name!r} has the type {field.dataType.simpleString()}, which a "
                "message cannot contain; cast it to string, or remove it"
            )
    if all(field.name == ID_COLUMN for field in schema.fields):
        raise DeclarationError("an entry needs at least one field, but 'id' is the only column")


def _check_stream_column(schema: StructType, column: str) -> None:
    kinds = {field.name: field.dataType for field in schema.fields}
    if isinstance(kinds.get(column), StringType) and column != ID_COLUMN:
        return
    there = f"has the type {kinds[column].simpleString()}" if column in kinds else "is missing"
    raise DeclarationError(
        f"streamColumn: the column {column!r} must contain the name of each row's stream, as a string, but it {there}; "
        f"columns are {', '.join(schema.names)}"
    )


def _check_with_entry(schema: StructType) -> None:
    others = [name for name in schema.names if name not in (ID_COLUMN, ENTRY_COLUMN)]
    if others:
        raise DeclarationError(
            f"the column {ENTRY_COLUMN!r} is the whole entry, so {', '.join(map(repr, others))} cannot be written "
            f"with it: select('id', 'entry') or select('entry'), or remove {ENTRY_COLUMN!r}"
        )


def builtins_of(column: pa.Array) -> list[Any]:
    """Return values as Python objects that msgspec can encode: maps as dicts, times in UTC.

    Raises an error of `UNFIT` for a value that Python's types cannot represent.
    """
    import pyarrow as pa

    wanted = _in_utc(column.type)
    if wanted != column.type:
        column = column.cast(wanted)
    if pa.types.is_null(column.type):
        return [None] * len(column)
    found: list[Any] = column.to_pylist(maps_as_pydicts="strict")
    return found


def _in_utc(type_: pa.DataType) -> pa.DataType:
    """Return ``type_`` with every timestamp in UTC; the moments stay the same."""
    import pyarrow as pa

    if pa.types.is_timestamp(type_) and type_.tz is not None:
        return pa.timestamp(type_.unit, "UTC")
    if pa.types.is_map(type_):
        return pa.map_(type_.key_field, type_.item_field.with_type(_in_utc(type_.item_type)))
    if pa.types.is_list(type_):
        return pa.list_(type_.value_field.with_type(_in_utc(type_.value_type)))
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(_in_utc(field.type)) for field in type_])
    return type_


def _text(column: pa.Array) -> Values:
    import pyarrow as pa

    found: Values = column.cast(pa.string()).cast(pa.binary()).to_pylist()
    return found


def _string(column: pa.Array) -> Values:
    column.validate(full=True)  # Spark does not check that a string is UTF-8
    return _text(column)


def _date(column: pa.Array) -> Values:
    return _text(in_years(column))


def _raw(column: pa.Array) -> Values:
    found: Values = column.to_pylist()
    return found


def _double(column: pa.Array) -> Values:
    # Arrow writes 1.0 as 1; messages have Python's form, 1.0.
    return [None if v is None else float.__repr__(v).encode() for v in column.to_pylist()]


def _instant(column: pa.Array) -> Values:
    return _time(column, f"{_TIME}Z", b".000000Z", b"Z")


def _local_time(column: pa.Array) -> Values:
    return _time(column, _TIME, b".000000", b"")


def _time(column: pa.Array, form: str, whole: bytes, ending: bytes) -> Values:
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pc.strftime(in_years(column.cast(pa.timestamp("us"))), form)
    return _text(pc.replace_substring(text, whole.decode(), ending.decode()))


def json_of(values: Iterable[Any]) -> Values:
    """Return values as JSON documents. None stays None."""
    import msgspec

    encode = msgspec.json.Encoder().encode
    return [None if value is None else encode(value) for value in values]


def _nothing(column: pa.Array) -> Values:
    return [None] * len(column)


_WRITERS: Final[dict[type[DataType], Write]] = {
    StringType: _string,
    BinaryType: _raw,
    BooleanType: _text,
    ByteType: _text,
    ShortType: _text,
    IntegerType: _text,
    LongType: _text,
    FloatType: _text,  # the shortest text of its 32 bits; as 64 bits, 0.1 has 17 digits
    DoubleType: _double,
    DecimalType: _text,
    DateType: _date,
    TimestampType: _instant,
    TimestampNTZType: _local_time,
    NullType: _nothing,
}
