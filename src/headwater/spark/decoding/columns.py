"""Defines the columns of a row, and the source of each.

Without a schema, the columns are the entry's stream, id, timestamp, and its fields as a map. With a schema,
each column is a field of the message, read as the declared type, or one of these:

    stream string        the stream's name
    id string            the entry's id
    timestamp timestamp  the id's milliseconds; null, and the row is bad, after the year 9999
    fields map<…>        the raw fields, values as string or binary
    entry array<struct<name binary, value binary>>   all fields unchanged, for writing them again
    _rescued string      as JSON, the raw fields if a value did not fit, or attributes without a column; else null
    _delivery_count int  in group mode: the number of the entry's deliveries, including this one
    _consumer string     in group mode: the consumer to which the entry was delivered

These names always mean these columns, even if the message has a field of the same name, except that ``entry`` with
another type is a field. The field ``id`` of a message is available as ``fields['id']``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

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
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from headwater.errors import DeclarationError
from headwater.messages.keys import is_reserved
from headwater.spark.core.entry_column import ENTRY_COLUMN, ENTRY_TYPE, is_entry
from headwater.spark.core.options import Codec, Mode, SourceOptions

DEFAULT_SCHEMA: Final = "stream string, id string, timestamp timestamp, fields map<string, string>"

Kind = Literal[
    "stream",
    "id",
    "timestamp",
    "fields",
    "entry",
    "rescued",
    "delivery_count",
    "consumer",
    "value",
]

_METADATA: Final[dict[str, tuple[Kind, tuple[type[DataType], ...], str]]] = {
    "stream": ("stream", (StringType,), "string"),
    "id": ("id", (StringType,), "string"),
    "timestamp": ("timestamp", (TimestampType,), "timestamp"),
    "fields": ("fields", (MapType,), "map<string, string> or map<string, binary>"),
    "_rescued": ("rescued", (StringType,), "string"),
    "_delivery_count": ("delivery_count", (IntegerType,), "int"),
    "_consumer": ("consumer", (StringType,), "string"),
}

PLAIN: Final = (
    StringType,
    BinaryType,
    BooleanType,
    ByteType,
    ShortType,
    IntegerType,
    LongType,
    FloatType,
    DoubleType,
    DecimalType,
    DateType,
    TimestampType,
    TimestampNTZType,
)
"""The types of a flat column."""

_OF_GROUPS: Final = ("_delivery_count", "_consumer")


def default_schema(options: SourceOptions) -> str:
    """Return, as DDL, the columns for a read without a schema.

    >>> from headwater.spark.core.options import parse_options
    >>> given = {"url": "redis://localhost", "stream": "orders"}
    >>> default_schema(parse_options(given))
    'stream string, id string, timestamp timestamp, fields map<string, string>'
    >>> default_schema(parse_options(given | {"columns": "id, item"}))
    '`id` string, `item` string'
    """
    if options.columns is not None:
        return ", ".join(_spelled(name, options) for name in options.columns)
    schema = DEFAULT_SCHEMA
    if options.codec == "bytes":
        schema = schema.removesuffix("map<string, string>") + "map<string, binary>"
    if options.include_entry:
        schema += f", {ENTRY_COLUMN} {ENTRY_TYPE}"
    if options.include_metadata and options.group is not None:
        schema += "".join(f", {name} {_METADATA[name][2]}" for name in _OF_GROUPS)
    return schema


def _spelled(name: str, options: SourceOptions) -> str:
    quoted = f"`{name.replace('`', '``')}`"
    raw = "binary" if options.codec == "bytes" else "string"
    if name == "fields":
        return f"{quoted} map<string, {raw}>"
    if name == ENTRY_COLUMN and options.include_entry:
        return f"{quoted} {ENTRY_TYPE}"
    return f"{quoted} {_METADATA[name][2] if name in _METADATA else raw}"


def narrowed(schema: StructType, options: SourceOptions) -> StructType:
    """Reduce an inferred ``schema`` to the option ``columns``.

    A column that was not inferred is a metadata column or a string.
    """
    if options.columns is None:
        return schema
    from headwater.spark.core.ddl import parse_schema

    found = {each.name: each for each in schema.fields}
    spelled = parse_schema(default_schema(options))
    return StructType([found.get(each.name, each) for each in spelled.fields])


@dataclass(frozen=True)
class Column:
    """One column: its source and its type."""

    name: str
    kind: Kind
    type: DataType
    nullable: bool
    formats: Mapping[str, str] = field(default_factory=dict)
    """The formats of timestamps, by path, such as ``order.at``. Timestamps without a format are in ISO 8601."""


@dataclass(frozen=True)
class RowShape:
    """The form of the rows that entries become. Spark sends it to the executors."""

    schema: StructType
    columns: tuple[Column, ...]
    codec: Codec
    mode: Mode
    include_metadata: bool

    @property
    def keeps_unknown(self) -> bool:
        """True if ``_rescued`` has the attributes of documents that the schema does not have."""
        return self.codec in ("json", "msgpack", "faststream") and any(
            column.kind == "rescued" for column in self.columns
        )

    @classmethod
    def of(cls, schema: StructType, options: SourceOptions) -> RowShape:
        """Return the shape for ``schema``. Raises `DeclarationError`, which names the wrong column."""
        _check_columns(schema, options)
        columns = tuple(
            _column(each.name, each.dataType, options, nullable=each.nullable)
            for each in schema.fields
        )
        return cls(
            schema=schema,
            columns=_with_formats(columns, options),
            codec=options.codec,
            mode=options.mode,
            include_metadata=options.include_metadata,
        )


def _with_formats(columns: tuple[Column, ...], options: SourceOptions) -> tuple[Column, ...]:
    """Return ``columns`` with the options' formats. Raises `DeclarationError` for a format without effect."""
    if not options.timestamp_formats:
        return columns
    paths = {
        column.name: list(_moments(column.type, column.name))
        for column in columns
        if column.kind == "value"
    }
    known = [path for found in paths.values() for path in found]
    formats = dict(options.timestamp_formats)
    if "" in formats:
        formats = dict.fromkeys(known, formats[""])
    wrong = sorted(set(formats) - set(known)) or ["all columns"][: not known]
    if wrong:
        raise DeclarationError(
            f"timestampFormat: {', '.join(wrong)}: not a timestamp that the schema reads from a message; these are "
            f"{', '.join(known) or 'none'}. Attributes of nested values have dotted names, such as order.at"
        )
    return tuple(
        replace(column, formats={p: formats[p] for p in paths.get(column.name, ()) if p in formats})
        for column in columns
    )


def _moments(type_: DataType, path: str) -> Iterator[str]:
    """Yield the paths of the timestamps in a type. Elements and values have the path of their array or map."""
    if isinstance(type_, (TimestampType, TimestampNTZType)):
        yield path
    elif isinstance(type_, ArrayType):
        yield from _moments(type_.elementType, path)
    elif isinstance(type_, MapType):
        yield from _moments(type_.valueType, path)
    elif isinstance(type_, StructType):
        for each in type_.fields:
            yield from _moments(each.dataType, f"{path}.{each.name}")


def _check_columns(schema: StructType, options: SourceOptions) -> None:
    """Check that a schema agrees with the options ``columns`` and ``includeEntry``, because Spark expects the
    columns of the schema."""
    if options.include_entry and not any(is_entry(f.name, f.dataType) for f in schema.fields):
        raise DeclarationError(
            f"includeEntry has no effect: the schema, or columns, does not have the column `{ENTRY_COLUMN} "
            f"{ENTRY_TYPE}`. Add it, or remove includeEntry."
        )
    if options.columns is None or set(options.columns) == set(schema.fieldNames()):
        return
    raise DeclarationError(
        f"columns names {', '.join(options.columns)}, but the schema has "
        f"{', '.join(schema.fieldNames())}. A schema already names its columns: remove columns, or "
        "remove the schema to read each of columns as a string"
    )


def _column(name: str, type_: DataType, options: SourceOptions, *, nullable: bool) -> Column:
    if is_entry(name, type_):
        return Column(name, "entry", type_, nullable)
    if name in _METADATA:
        kind, types, spelled = _METADATA[name]
        if not isinstance(type_, types) or (kind == "fields" and not _is_field_map(type_)):
            raise DeclarationError(
                f"schema: the column {name!r} is the entry's metadata and has the type {spelled}, not "
                f"{type_.simpleString()}. A field of the message with that name is read from "
                f"fields['{name}']: add a column `fields map<string, string>`."
            )
        if name in _OF_GROUPS and options.group is None:
            raise DeclarationError(
                f"schema: {name!r} describes a delivery to a member of a group, but no group is named: "
                "set the option group, or remove the column"
            )
        return Column(name, kind, type_, nullable)
    if is_reserved(name) and not options.include_metadata:
        raise DeclarationError(
            f"schema: {name!r} is a field reserved by Headwater; set includeMetadata=true to "
            "read it"
        )
    if options.codec == "bytes" and not isinstance(type_, (BinaryType, StringType)):
        raise DeclarationError(
            f"schema: the column {name!r} has the type {type_.simpleString()}, but codec=bytes does not "
            "convert fields: use binary, or string for text. codec=fields parses numbers, times and "
            "other types from text."
        )
    unsupported = _unsupported(type_)
    if unsupported is not None:
        raise DeclarationError(
            f"schema: the column {name!r} has the type {type_.simpleString()}; "
            f"{unsupported.simpleString()} cannot be read from a message's text. Types are string, "
            "binary, boolean, tinyint, smallint, int, bigint, float, double, decimal, date, "
            "timestamp, timestamp_ntz, and array, map and struct of them (as JSON)."
        )
    return Column(name, "value", type_, nullable)


def _is_field_map(type_: DataType) -> bool:
    return (
        isinstance(type_, MapType)
        and isinstance(type_.keyType, StringType)
        and isinstance(type_.valueType, (StringType, BinaryType))
    )


def _unsupported(type_: DataType) -> DataType | None:
    """Return the part of a type to which text cannot be cast; None if there is no such part."""
    if isinstance(type_, ArrayType):
        return _unsupported(type_.elementType)
    if isinstance(type_, MapType):
        return (
            type_.keyType
            if not isinstance(type_.keyType, StringType)
            else _unsupported(type_.valueType)
        )
    if isinstance(type_, StructType):
        return next(filter(None, (_unsupported(each.dataType) for each in type_.fields)), None)
    return None if isinstance(type_, PLAIN) else type_
