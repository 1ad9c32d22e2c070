"""Infers the narrowest type that fits all values of a sample.

There are two kinds of values. The form of a field's text shows its type; the values of a document (JSON,
MessagePack) have types. If the types of the values differ, the column is a string.

    text of a field                                       type
    true, false                                           boolean
    17, -3, but not 007, +5 (they would change)           bigint, decimal(38, 0) or, for more digits, string
    1.5, 2e9                                              double, if it keeps all digits of every value
    2013-01-31                                            date
    2013-01-31T23:00:00Z                                  timestamp; string if it is finer than a microsecond
    {"item": "tea"}, [1, 2]                               struct, array
    not UTF-8                                             binary
    everything else, and the empty text                   string
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any, Final

import msgspec
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

_WHOLE: Final = re.compile(r"0|-?[1-9][0-9]*")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}.*")

_NANOSECONDS: Final = re.compile(r"[.,][0-9]{6}[0-9]*[1-9]")

_MOST_TEXT: Final = 39
"""Maximum number of characters of a whole number. Longer numbers do not fit any numeric type."""

_MOST_NESTED: Final = 32
"""Maximum depth of a type. Deeper documents stay strings, because such a type is not useful in queries."""


class Differs(Exception):
    """Raised if the values do not have a common type other than string."""


class LongNumber(str):
    """A number that a double would change."""

    __slots__ = ()


def kept_number(text: str) -> float | LongNumber:
    """Return a number as a float if a float keeps all of its digits, else as a `LongNumber`.

    >>> kept_number("0.10"), kept_number("0.12345678901234567")
    (0.1, '0.12345678901234567')
    """
    try:
        kept = Decimal(repr(float(text))) == Decimal(text)
    except ArithmeticError:
        kept = False
    return float(text) if kept else LongNumber(text)


decode_json = msgspec.json.Decoder(float_hook=kept_number).decode
"""Decodes a document without changing its numbers."""


def type_of_texts(values: Sequence[bytes]) -> DataType:
    """Return the type of a field with the texts ``values``, which must not be empty.

    >>> type_of_texts([b"17", b"4"]).simpleString(), type_of_texts([b"17", b"0.5"]).simpleString()
    ('bigint', 'double')
    """
    try:
        texts = [value.decode() for value in values]
    except UnicodeDecodeError:
        return BinaryType()
    if set(texts) <= {"true", "false"}:
        return BooleanType()
    if all(map(_WHOLE.fullmatch, texts)):
        if max(map(len, texts)) > _MOST_TEXT:
            return StringType()
        return _whole_number(int(text) for text in texts)
    if all(map(_NUMBER.fullmatch, texts)):
        kept = all(isinstance(kept_number(text), float) for text in texts)
        return DoubleType() if kept else StringType()
    written = type_of_strings(texts)
    if not isinstance(written, StringType):
        return written
    if all(text[:1] in ("{", "[") for text in texts):
        try:
            return type_of_values([decode_json(value) for value in values])
        except (ValueError, RecursionError):
            return StringType()
    return StringType()


def type_of_strings(texts: Sequence[str]) -> DataType:
    """Return the type of strings: date or timestamp if all have that form, otherwise string."""
    if all(map(_DATE.fullmatch, texts)):
        return DateType()
    if all(map(_TIME.fullmatch, texts)) and not any(map(_NANOSECONDS.search, texts)):
        return TimestampType()
    return StringType()


def type_of_values(values: Sequence[Any]) -> DataType:
    """Return the type of a document's attribute with ``values``; None values are ignored.

    >>> type_of_values([{"n": 1}, {"n": None, "at": [1.5]}, None]).simpleString()
    'struct<n:bigint,at:array<double>>'
    """
    present = [value for value in values if value is not None]
    if present and all(isinstance(value, str) for value in present):
        return type_of_strings(present)
    try:
        return _common(present, 0)
    except Differs:
        return StringType()


def _common(values: Sequence[Any], depth: int) -> DataType:
    """Return the common type of a document's values; strings are not examined for dates. Raises `Differs`."""
    if depth > _MOST_NESTED:
        raise Differs
    present = [value for value in values if value is not None]
    kinds = {type(value) for value in present}
    if kinds <= {str}:
        return StringType()
    if kinds == {bool}:
        return BooleanType()
    if kinds == {int}:
        return _whole_number(present)
    if kinds <= {int, float}:
        if any(isinstance(value, int) and not _is_double(value) for value in present):
            raise Differs
        return DoubleType()
    if kinds == {bytes}:
        return BinaryType()
    if kinds == {dt.datetime}:
        return TimestampType()
    if kinds == {list}:
        return ArrayType(_common([item for value in present for item in value], depth + 1))
    if kinds == {dict}:
        return _struct(present, depth)
    raise Differs


def _struct(values: Sequence[dict[Any, Any]], depth: int) -> StructType:
    names: dict[str, None] = {}
    for value in values:
        for name in value:
            if not isinstance(name, str):
                raise Differs
            names[name] = None
    if not names:
        raise Differs  # Parquet does not have structs without fields; a string shows {}
    return StructType(
        [
            StructField(name, _common([value.get(name) for value in values], depth + 1))
            for name in names
        ]
    )


def _is_double(number: int) -> bool:
    return abs(number) < 2**1023 and float(number) == number


def _whole_number(numbers: Iterable[int]) -> DataType:
    most = max(map(abs, numbers))
    if most < 2**63:
        return LongType()
    return DecimalType(38, 0) if most < 10**38 else StringType()
