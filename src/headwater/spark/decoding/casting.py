"""Casts the text of a field to a typed Arrow column.

A whole column is cast in one call. If that fails, the column is split in half, repeatedly, until the values that
do not fit are alone. Such values become null, and their places are returned. A clean column costs one cast, and a
bad value some twenty small casts.

Text has the form in which messages write it (ADR 6): decimal numbers, ``true`` and ``false``, dates and
times in ISO 8601 (UTC if there is no zone). nested.py casts nested values.

A value is read exactly, or it does not fit: a decimal without its last digit, a double that would be infinite and
a year that SQL does not have are misfits. Two roundings are usual and intended: a double is the nearest
to its text, and a time loses the digits after its microseconds, as in Spark. Arrow alone does not suffice: its
cast of long text to decimal128 wraps around (pyarrow 26), so Arrow casts only text that certainly fits.
"""

from __future__ import annotations

import decimal
import re
from base64 import b64decode
from collections.abc import Callable
from typing import Annotated, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    FractionalType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from headwater.spark.core.timestamp_formats import ISO, UNITS, pattern
from headwater.spark.core.years import in_years
from headwater.spark.decoding import numbers
from headwater.spark.decoding.page import INSTANT, parsed

Cast = Callable[[pa.Array], pa.Array]
"""Casts a binary column. Raises `ValueError` (`pa.ArrowInvalid` is one) for a bad value."""

_TIME: Final = (
    r"^\d{4}-\d\d-\d\d"
    r"([Tt ]\d\d(:\d\d(:\d\d([.,]\d+)?)?)?([Zz]|[+-]\d\d(:?\d\d)?(\[[\w/+-]+\])?)?)?$"
)
"""ISO 8601 as programs write it: with any number of digits after the second (Go, .NET), with a comma before them
(Python's logging), and with the zone's name after the offset (Java)."""

_WITH_ZONE: Final = r"[T ]\d\d.*(Z|[+-]\d\d(:?\d\d)?)$"
_ZONE: Final = r"(Z|[+-]\d\d(?::?\d\d)?)$"
_SHORT: Final = (
    (r"^(.{10}[T ]\d\d)" + _ZONE, r"\1:00\2"),
    (r"^(.{10}[T ]\d\d:\d\d)" + _ZONE, r"\1:00\2"),
)
"""Replacements that complete a time with a zone but without minutes or seconds, which Arrow does not read."""

_DECIMAL: Final = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
_MOST_DIGITS: Final = 38
_EXACT: Final = decimal.Context(
    prec=_MOST_DIGITS, traps=[decimal.Inexact, decimal.InvalidOperation, decimal.Overflow]
)
_INTEGERS: Final = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
_BITS: Final[dict[type[DataType], int]] = {
    ByteType: 8,
    ShortType: 16,
    IntegerType: 32,
    LongType: 64,
}


def cast_column(
    values: pa.BinaryArray, cast: Cast, type_: pa.DataType
) -> tuple[pa.Array, list[int]]:
    """Return ``values`` as ``type_``, and the places of values that did not fit. Such values become null.

    >>> texts = pa.array([b"17", b"x", None])
    >>> column, bad = cast_column(texts, caster(LongType()), pa.int64())
    >>> column.to_pylist(), bad
    ([17, None, None], [1])
    """
    bad: list[int] = []
    column = _halving(values, cast, type_, 0, bad)
    if column.type != type_:
        column = column.cast(type_)
    return column, bad


def _halving(
    values: pa.Array, cast: Cast, type_: pa.DataType, offset: int, bad: list[int]
) -> pa.Array:
    try:
        return cast(values)
    except (ValueError, TypeError, ArithmeticError):
        if len(values) == 1:
            bad.append(offset)
            return pa.nulls(1, type_)
    half = len(values) // 2
    left = _halving(values[:half], cast, type_, offset, bad)
    right = _halving(values[half:], cast, type_, offset + half, bad)
    return pa.concat_arrays([left, right])


def caster(type_: DataType, *, base64: bool = False, format_: str | None = None) -> Cast:
    """Return a function that casts text to a Spark type. If ``base64`` is true, binary values are in base64.

    ``format_`` is the format of a timestamp (timestamp_formats.py); None means ISO 8601.
    """
    if format_ is not None and format_ != ISO:
        arrow = arrow_of(type_)
        return lambda values: in_years(_by_format(values, format_)).cast(arrow)
    if isinstance(type_, BinaryType):
        return _from_base64 if base64 else lambda values: values
    if isinstance(type_, StringType):
        return lambda values: values.cast(pa.string())
    if isinstance(type_, TimestampType):
        return _or_parsed(_to_instant, lambda values: parsed(values, numbers.instants, INSTANT))
    if isinstance(type_, TimestampNTZType):
        return lambda values: _to_instant(values).cast(pa.timestamp("us"))
    if type(type_) in _BITS:
        bits = _BITS[type(type_)]
        return _or_parsed(
            lambda values: _to_integer(values, bits),
            lambda values: _parse_integer(values, bits),
        )
    arrow = arrow_of(type_)
    if isinstance(type_, DecimalType):
        decimal_ = arrow
        return _or_parsed(
            lambda values: _to_decimal(values, decimal_),
            lambda values: parsed(values, numbers.decimals, decimal_, type_.precision, type_.scale),
        )
    if isinstance(type_, FractionalType):
        return lambda values: _to_float(values, arrow)
    if isinstance(type_, DateType):
        return _to_date
    return lambda values: values.cast(pa.string()).cast(arrow)


def arrow_of(type_: DataType) -> pa.DataType:
    """Return the Arrow type of a column; times are in UTC."""
    from pyspark.sql.pandas.types import to_arrow_type

    return to_arrow_type(type_, timezone="UTC")


def strict_integer(type_: DataType) -> Any:
    """Return the msgspec type of the integers that ``type_`` can hold; None if it is not an integer type."""
    if type(type_) not in _BITS:
        return None
    top = 2 ** (_BITS[type(type_)] - 1)
    return Annotated[int, msgspec.Meta(ge=-top, le=top - 1)]


def _or_parsed(cast: Cast, parse: Callable[[pa.Array], pa.Array | None]) -> Cast:
    """Return ``parse`` with ``cast`` as its fallback or, if numbers.py is not compiled, only ``cast``."""
    if not numbers.COMPILED:
        return cast

    def either(values: pa.Array) -> pa.Array:
        found = parse(values)
        return cast(values) if found is None else found

    return either


def _parse_integer(values: pa.Array, bits: int) -> pa.Array | None:
    top = 2 ** (bits - 1)
    found = parsed(values, numbers.integers, pa.int64(), -top, top - 1)
    return found if found is None or bits == 64 else found.cast(_INTEGERS[bits])


def _to_integer(values: pa.Array, bits: int) -> pa.Array:
    text = values.cast(pa.string())
    # Arrow reads 0x11 as 17, but decimal text never means that.
    for letter in ("x", "X"):  # ignore_case would take three times as long
        if pc.any(pc.match_substring(text, letter)).as_py():
            raise ValueError("not decimal")
    return text.cast(_INTEGERS[bits])


def _to_decimal(values: pa.Array, type_: pa.Decimal128Type) -> pa.Array:
    whole, scale = type_.precision - type_.scale, type_.scale
    text = values.cast(pa.string())
    fraction = rf"(\.[0-9]{{1,{scale}}})?" if scale else ""
    if (
        whole
        and pc.all(pc.match_substring_regex(text, f"^-?[0-9]{{1,{whole}}}{fraction}$")).as_py()
    ):
        return text.cast(type_)
    unit = decimal.Decimal(1).scaleb(-scale)
    return pa.array(
        [None if value is None else _exact(value, unit) for value in values.to_pylist()], type_
    )


def _exact(text: bytes, unit: decimal.Decimal) -> decimal.Decimal:
    """Return a number as a multiple of ``unit``. Raises `ArithmeticError` or `ValueError` if it is not one."""
    if _DECIMAL.fullmatch(text) is None:
        raise ValueError("not a decimal number")
    return decimal.Decimal(text.decode()).quantize(unit, context=_EXACT)


def _to_float(values: pa.Array, type_: pa.DataType) -> pa.Array:
    text = values.cast(pa.string())
    found = text.cast(type_)
    infinite = text.filter(pc.is_inf(found))
    if pc.any(pc.match_substring_regex(infinite, "[0-9]")).as_py():  # not the word
        raise ValueError("beyond the range")
    return found


def _to_date(values: pa.Array) -> pa.Array:
    return in_years(values.cast(pa.string()).cast(pa.date32()))


def _to_instant(values: pa.Array) -> pa.Array:
    return in_years(_times(values.cast(pa.string())))


def _by_format(values: pa.Array, format_: str) -> pa.Array:
    """Parse times that are numbers of a unit since 1970, or that match a pattern."""
    text = values.cast(pa.string())
    shift = UNITS.get(format_)
    if shift is not None and pc.all(pc.match_substring_regex(text, "^[0-9]{1,18}$")).as_py():
        number = text.cast(pa.int64())
        if shift < 0:
            moments = pc.divide(number, 10**-shift)
        else:
            moments = pc.multiply_checked(number, 10**shift)
    else:
        parse = pattern(format_) if shift is None else lambda value: _from_unit(value, shift)
        moments = pa.array([None if v is None else parse(v) for v in text.to_pylist()], pa.int64())
    return moments.cast(INSTANT)


def _from_unit(text: str, shift: int) -> int:
    """Return a number of units, which may have a fraction, in whole microseconds, rounded down."""
    if _DECIMAL.fullmatch(text.encode()) is None:
        raise ValueError("not a decimal number")
    number = decimal.Decimal(text)
    if number and number.adjusted() > _MOST_DIGITS:
        raise ValueError("not in the years 1 to 9999")
    exact = decimal.Context(prec=len(text) + 2 * _MOST_DIGITS, rounding=decimal.ROUND_FLOOR)
    return int(number.scaleb(shift, exact).to_integral_value(context=exact))


def _times(text: pa.Array) -> pa.Array:
    zoned, local = pa.timestamp("us", "UTC"), pa.timestamp("us")
    try:
        if pc.all(pc.ends_with(text, "Z")).as_py():  # the form in which messages write times
            return text.cast(zoned)
    except pa.ArrowInvalid:
        pass  # perhaps a time has more digits
    text = _as_arrow_reads(text)
    has_zone = pc.match_substring_regex(text, _WITH_ZONE)
    if pc.all(has_zone).as_py():
        return text.cast(zoned)
    nothing = pa.scalar(None, pa.string())
    with_zone = pc.if_else(has_zone, text, nothing).cast(zoned)
    without = pc.if_else(has_zone, nothing, text).cast(local)
    return pc.coalesce(with_zone, pc.assume_timezone(without, "UTC"))


def _as_arrow_reads(text: pa.Array) -> pa.Array:
    """Return times in a form that Arrow accepts: without nanoseconds, commas, lowercase letters or zone names."""
    if not pc.all(pc.match_substring_regex(text, _TIME)).as_py():
        return text
    text = pc.replace_substring_regex(text, r"\[.*", "")
    text = pc.utf8_upper(pc.replace_substring(text, ",", "."))
    text = pc.replace_substring_regex(text, r"(\.\d{6})\d+", r"\1")
    for short, complete in _SHORT:
        text = pc.replace_substring_regex(text, short, complete)
    return text


def _from_base64(values: pa.Array) -> pa.Array:
    decoded = [
        None if value is None else b64decode(value, validate=True) for value in values.to_pylist()
    ]
    return pa.array(decoded, pa.binary())
