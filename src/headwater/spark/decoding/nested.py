"""Reads the columns of a message. The text of nested columns is JSON.

Rule 1. The same reader (casting.py) reads a value's text at top level and at any depth. A JSON string is read like
        a field with that text; a number, ``true`` or ``false`` like a field with the same characters.
Rule 2. The smallest part that does not fit is null: an element, a value of a map, an attribute. If the schema does
        not allow a null there, the value that contains the part is null.
Rule 3. A whole number that is read as a timestamp is in seconds, as for Spark's ``from_json``.

A column of structs becomes one column for each attribute, a column of arrays one column of all elements, and these
columns are read like any other. If every value has the strict form of its type, msgspec decodes the whole column
in one call, with the same result. Differences from Spark's ``from_json``: docs/adr/0020-decoding.md.
"""

from __future__ import annotations

import datetime as dt
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypedDict, TypeVar, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from headwater.spark.decoding.casting import arrow_of, cast_column, caster, strict_integer

Misfits = dict[int, str]
"""The places of values that do not fit, each with the path of the null part: empty for the whole, ``.n``, ``[2]``."""


class Formats(NamedTuple):
    """The formats of the timestamps in a column, by path, and the path of the value that is read."""

    path: str
    by_path: Mapping[str, str]

    @property
    def own(self) -> str | None:
        """The format of the value; None if it is not a timestamp with a format."""
        return self.by_path.get(self.path)

    def of(self, name: str) -> Formats:
        """Return the formats for the attribute ``name``."""
        return Formats(f"{self.path}.{name}", self.by_path)


NO_FORMATS: Final = Formats("", {})

T = TypeVar("T")
Reader = Callable[[pa.BinaryArray], tuple[pa.Array, Misfits]]
Texts = Sequence[bytes | None]
Reading = Literal["moment", "string", "other"]
"""The kinds of columns for which the text of the same JSON value differs."""

QUOTE: Final = 0x22
MISFIT: Final = b"\xff"
"""First byte of the text of a value that does not fit any column, because it is not UTF-8."""

_HALF: Final = re.compile(
    rb"\\\\|\\u[dD][89abAB]..\\u[dD][c-fC-F]..|(\\u[dD][89a-fA-F]..)", re.DOTALL
)
"""Matches half of a surrogate pair, in the group, or text that could be mistaken for one, without the group."""
MARK: Final = rb"\ufdd0\ufdd1\ufdd0"
"""JSON escapes of three noncharacters of Unicode, which text does not contain."""

_SECONDS: Final = re.compile(rb"-?[0-9]{1,12}")
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def reader_of(type_: DataType, *, base64: bool = False, formats: Formats = NO_FORMATS) -> Reader:
    """Return a function that reads a column of text as a Spark type, with binary in base64 if ``base64``.

    >>> from pyspark.sql.types import LongType
    >>> column, misfits = reader_of(ArrayType(LongType()))(pa.array([b'[1, "x"]', None]))
    >>> column.to_pylist(), misfits
    ([[1, None], None], {0: '[1]'})
    """
    if isinstance(type_, ArrayType):
        return _Arrays(type_, formats).read
    if isinstance(type_, MapType):
        return _Maps(type_, formats).read
    if isinstance(type_, StructType):
        return _Structs(type_, formats).read
    scalar, arrow = caster(type_, base64=base64, format_=formats.own), arrow_of(type_)

    def read(values: pa.BinaryArray) -> tuple[pa.Array, Misfits]:
        column, places = cast_column(values, scalar, arrow)
        return column, dict.fromkeys(places, "")

    return read


def reading_of(type_: DataType, formats: Formats = NO_FORMATS) -> Reading:
    """Return the `Reading` with which a JSON value becomes text for a column of ``type_``."""
    if isinstance(type_, TimestampType) and formats.own is None:
        return "moment"
    return "string" if isinstance(type_, StringType) else "other"


def decoded(decode: Callable[[bytes], T], document: bytes) -> T:
    """Decode JSON. JSON permits half of a surrogate pair, for which msgspec would refuse the whole document. Such
    a string is marked, so that `text_of_json` makes it a misfit. Raises `ValueError` for invalid JSON."""
    try:
        return decode(document)
    except ValueError:
        marked = _HALF.sub(lambda found: MARK if found[1] else found[0], document)
        if marked == document:
            raise
        return decode(marked)


_unquote = msgspec.json.Decoder(str).decode


def text_of_json(value: bytes, reading: Reading = "other") -> bytes | None:
    """Return the text of one JSON value; None for null. If ``reading`` is moment, a whole number is a time.

    >>> text_of_json(b'"tea"'), text_of_json(b"1.50"), text_of_json(b"0", "moment")
    (b'tea', b'1.50', b'1970-01-01T00:00:00Z')
    """
    if value[0] == QUOTE:
        try:
            return MISFIT + value if MARK in value else _unquote(value).encode()
        except ValueError:  # not UTF-8
            return MISFIT + value
    if value == b"null":
        return None
    if reading == "moment":
        return text_of_seconds(value)
    return MISFIT + value if reading == "string" and MARK in value else value


def text_of_seconds(value: bytes) -> bytes:
    """Return the time ``value`` seconds after 1970, in ISO 8601; a misfit if ``value`` is not a whole number."""
    try:
        if _SECONDS.fullmatch(value):
            moment = _EPOCH + dt.timedelta(seconds=int(value))
            return moment.isoformat().encode().replace(b"+00:00", b"Z")
    except OverflowError:
        pass
    return MISFIT + value


def _is_marked(values: pa.BinaryArray) -> bool:
    data = values.buffers()[2]
    return data is not None and MARK in data.to_pybytes()


class _Nested(ABC):
    """The reader of one nested type."""

    kind: Any
    """The type to which msgspec decodes one value; the values inside stay JSON."""

    def __init__(self, type_: DataType) -> None:
        self._type = arrow_of(type_)
        self._decode = msgspec.json.Decoder(self.kind).decode
        strict = _strict(type_)
        self._decode_all = None if strict is None else msgspec.json.Decoder(strict).decode

    def read(self, values: pa.BinaryArray) -> tuple[pa.Array, Misfits]:
        texts = values.to_pylist()
        decode = self._decode_all
        if decode is not None and not _is_marked(values):
            try:
                found = [None if text is None else decode(text) for text in texts]
                return pa.array(found, self._type), {}
            except (ValueError, TypeError, RecursionError, OverflowError):
                pass  # at least one value has another form
        misfits: Misfits = {}
        return self._by_column(self._decoded(texts, misfits), misfits), misfits

    def _decoded(self, texts: Texts, misfits: Misfits) -> list[Any]:
        found: list[Any] = []
        for place, text in enumerate(texts):
            try:
                found.append(None if text is None else decoded(self._decode, text))
            except (ValueError, TypeError, RecursionError):
                misfits[place] = ""
                found.append(None)
        return found

    @abstractmethod
    def _by_column(self, values: list[Any], misfits: Misfits) -> pa.Array:
        """Return the decoded values as a column, and add values that do not fit to ``misfits``."""


class _Listed(_Nested):
    """Arrays and maps: the values inside are a longer column."""

    def __init__(
        self, type_: ArrayType | MapType, inner: DataType, formats: Formats, *, may_be_null: bool
    ) -> None:
        super().__init__(type_)
        self._inner = reader_of(inner, base64=True, formats=formats)
        self._reading = reading_of(inner, formats)
        self._may_be_null = may_be_null

    def _items(
        self, values: list[Any], keys: list[str] | None, misfits: Misfits
    ) -> tuple[pa.Int32Array, pa.Array, pa.BooleanArray]:
        """Return offsets, the values inside, and a mask of the nulls. ``keys`` is None for arrays."""
        starts, owners, texts = [0], list[int](), list[bytes | None]()
        for place, value in enumerate(values):
            items = () if value is None else value if keys is None else value.values()
            texts += [text_of_json(bytes(item), self._reading) for item in items]
            owners += [place] * len(items)
            starts.append(len(texts))

        def path(at: int) -> str:
            return f"[{at - starts[owners[at]]}]" if keys is None else f".{keys[at]}"

        column, inside = self._inner(pa.array(texts, pa.binary()))
        nulls = [value is None for value in values]
        for at, rest in inside.items():
            misfits.setdefault(owners[at], path(at) + rest)
        if not self._may_be_null and column.null_count:
            for at in pc.indices_nonzero(column.is_null()).to_pylist():
                misfits.setdefault(owners[at], path(at))
                nulls[owners[at]] = True
        return pa.array(starts, pa.int32()), column, pa.array(nulls, pa.bool_())


class _Arrays(_Listed):
    kind = list[msgspec.Raw]

    def __init__(self, type_: ArrayType, formats: Formats) -> None:
        super().__init__(type_, type_.elementType, formats, may_be_null=type_.containsNull)

    def _by_column(self, values: list[Any], misfits: Misfits) -> pa.Array:
        starts, items, nulls = self._items(values, None, misfits)
        return pa.ListArray.from_arrays(starts, items, type=self._type, mask=nulls)


class _Maps(_Listed):
    kind = dict[str, msgspec.Raw]

    def __init__(self, type_: MapType, formats: Formats) -> None:
        super().__init__(type_, type_.valueType, formats, may_be_null=type_.valueContainsNull)

    def _by_column(self, values: list[Any], misfits: Misfits) -> pa.Array:
        keys = [key for value in values for key in value or ()]
        starts, items, nulls = self._items(values, keys, misfits)
        return pa.MapArray.from_arrays(
            starts, pa.array(keys, pa.string()), items, type=self._type, mask=nulls
        )


class _Structs(_Nested):
    kind = dict[str, msgspec.Raw]

    def __init__(self, type_: StructType, formats: Formats) -> None:
        super().__init__(type_)
        self._fields = [
            (
                field.name,
                reader_of(field.dataType, base64=True, formats=formats.of(field.name)),
                reading_of(field.dataType, formats.of(field.name)),
                field.nullable,
            )
            for field in type_.fields
        ]

    def _by_column(self, values: list[Any], misfits: Misfits) -> pa.Array:
        nulls = [value is None for value in values]
        columns = []
        for name, reader, reading, nullable in self._fields:
            raws = [None if value is None else value.get(name) for value in values]
            texts = [None if raw is None else text_of_json(bytes(raw), reading) for raw in raws]
            column, inside = reader(pa.array(texts, pa.binary()))
            for place, path in inside.items():
                misfits.setdefault(place, f".{name}{path}")
            if not nullable and column.null_count:
                for place in pc.indices_nonzero(column.is_null()).to_pylist():
                    if values[place] is not None:
                        misfits.setdefault(place, f".{name}")
                        nulls[place] = True
            columns.append(column)
        return pa.StructArray.from_arrays(
            columns, fields=list(self._type), mask=pa.array(nulls, pa.bool_())
        )


def _strict(type_: DataType) -> Any:
    """Return the msgspec type that decodes like `_Nested._by_column`, or fails; None if msgspec has none."""
    if isinstance(type_, ArrayType):
        inner = _strict(type_.elementType)
        return inner and list[inner | None if type_.containsNull else inner]  # type: ignore[misc]
    if isinstance(type_, MapType):
        inner = _strict(type_.valueType)
        return inner and dict[str, inner | None if type_.valueContainsNull else inner]  # type: ignore[misc]
    if isinstance(type_, StructType):
        if not all(field.nullable for field in type_.fields):
            return None
        inners = {field.name: _strict(field.dataType) for field in type_.fields}
        if None in inners.values():
            return None
        kinds = {name: inner | None for name, inner in inners.items()}
        return cast("Any", TypedDict)("Row", kinds, total=False)
    if isinstance(type_, StringType):
        return str
    if isinstance(type_, BooleanType):
        return bool
    if isinstance(type_, DoubleType):
        return float
    return strict_integer(type_)
