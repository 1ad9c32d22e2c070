"""Parses a whole column of numbers or times from text, if every value has the common form.

Each function takes an Arrow binary column (``offsets``, one more than there are values, and ``data``). It
returns the bytes of the parsed Arrow column with the number of empty texts, or None as soon as one value has
another form. Then Arrow casts the column, as it does if this module is not compiled. For all texts that are
parsed here, Arrow's cast has the same result. A null looks like an empty text, so the caller must handle both.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from headwater import _cython as cython

COMPILED: bool = cython.compiled

_ZERO = 0x30
_NINE = 0x39
_MINUS = 0x2D
_POINT = 0x2E
_COLON = 0x3A
_SAFE_DIGITS = 18
"""Any number with this many decimal digits fits in an int64."""

_MS_DIGITS = 15
_LAST_MS = 253_402_300_799_999
"""The last millisecond of the year 9999 (decoding/page.py), which has `_MS_DIGITS` digits."""


def integers(
    offsets: memoryview, data: memoryview, low: int, high: int
) -> tuple[bytearray, int] | None:
    """Parse decimal text to int64, with each value between ``low`` and ``high``.

    >>> import array
    >>> text, places = memoryview(b"17-5"), memoryview(array.array("i", [0, 2, 4]))
    >>> memoryview(integers(places, text, -10, 20)[0]).cast("q").tolist()
    [17, -5]
    """
    starts, view = offsets, data
    count = len(starts) - 1
    out = bytearray(8 * count)
    values = memoryview(out).cast("q")
    empty = 0
    for index in range(count):
        at, end = starts[index], starts[index + 1]
        if at == end:
            empty += 1
            continue
        negative = view[at] == _MINUS
        if negative:
            at += 1
        if at == end or end - at > _SAFE_DIGITS:
            return None
        number = 0
        while at < end:
            digit = view[at] - _ZERO
            if digit < 0 or digit > 9:
                return None
            number = number * 10 + digit
            at += 1
        if negative:
            number = -number
        if number < low or number > high:
            return None
        values[index] = number
    return out, empty


def decimals(
    offsets: memoryview, data: memoryview, precision: int, scale: int
) -> tuple[bytearray, int] | None:
    """Parse text to decimal128 with ``scale`` digits after the point; longer fractions are rejected.

    >>> import array
    >>> text, places = memoryview(b"1.5-2"), memoryview(array.array("i", [0, 3, 5]))
    >>> memoryview(decimals(places, text, 10, 2)[0]).cast("q").tolist()
    [150, 0, -200, -1]
    """
    starts, view = offsets, data
    count = len(starts) - 1
    out = bytearray(16 * count)
    values = memoryview(out).cast("q")
    empty = 0
    most = min(precision, _SAFE_DIGITS)
    for index in range(count):
        at, end = starts[index], starts[index + 1]
        if at == end:
            empty += 1
            continue
        negative = view[at] == _MINUS
        if negative:
            at += 1
        number = digits = 0
        behind = -1  # digits after the point, or -1 before it
        while at < end:
            byte = view[at]
            if byte == _POINT and behind < 0 and digits > 0:
                behind = 0
            elif byte < _ZERO or byte > _NINE or digits == _SAFE_DIGITS:
                return None
            else:
                number = number * 10 + (byte - _ZERO)
                digits += 1
                if behind >= 0:
                    behind += 1
            at += 1
        if digits == 0 or behind == 0:
            return None
        behind = max(behind, 0)
        if behind > scale or digits + scale - behind > most:
            return None
        for _ in range(scale - behind):
            number *= 10
        if negative:
            number = -number
        values[2 * index] = number
        values[2 * index + 1] = -1 if number < 0 else 0
    return out, empty


def _digits(data: memoryview, at: int, count: int) -> int:
    """Return the number in ``count`` digits from ``at``; negative if one is not a digit."""
    number = 0
    for index in range(count):
        digit = data[at + index] - _ZERO
        if digit < 0 or digit > 9:
            return -1
        number = number * 10 + digit
    return number


def _days(year: int, month: int, day: int) -> int:
    """Return the days since 1970-01-01, for years from 1; years are counted from March."""
    if month <= 2:
        year -= 1
        month += 12
    before = 365 * year + year // 4 - year // 100 + year // 400
    return before + (153 * (month - 3) + 2) // 5 + day - 1 - 719468


def _days_in(year: int, month: int) -> int:
    if month == 2:
        leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        return 29 if leap else 28
    return 30 if month == 4 or month == 6 or month == 9 or month == 11 else 31


def _instant(data: memoryview, at: int, end: int) -> int:
    """Return the microseconds of ``2013-01-31T05:00:00.25Z`` between ``at`` and ``end``.

    Returns -1 for any other form and for times before 1970; Arrow reads those.
    """
    if end - at < 19:
        return -1
    year, month = _digits(data, at, 4), _digits(data, at + 5, 2)
    day, hour = _digits(data, at + 8, 2), _digits(data, at + 11, 2)
    minute, second = _digits(data, at + 14, 2), _digits(data, at + 17, 2)
    if year < 1970 or month < 1 or month > 12 or day < 1 or hour < 0 or minute < 0 or second < 0:
        return -1
    if hour > 23 or minute > 59 or second > 59 or day > _days_in(year, month):
        return -1
    if data[at + 4] != _MINUS or data[at + 7] != _MINUS:
        return -1
    if data[at + 13] != _COLON or data[at + 16] != _COLON:
        return -1
    if data[at + 10] != 0x54 and data[at + 10] != 0x20:  # T or a space
        return -1
    if data[end - 1] == 0x5A:  # Z
        end -= 1
    at += 19
    fraction = 0
    if at < end:
        places = end - at - 1
        if data[at] != _POINT or places < 1:
            return -1
        while places > 6:  # Go, Java and .NET write nanoseconds; Spark has microseconds
            digit = data[at + places] - _ZERO
            if digit < 0 or digit > 9:
                return -1
            places -= 1
        fraction = _digits(data, at + 1, places)
        if fraction < 0:
            return -1
        for _ in range(6 - places):
            fraction *= 10
    seconds = _days(year, month, day) * 86400 + hour * 3600 + minute * 60 + second
    return seconds * 1000000 + fraction


def instants(offsets: memoryview, data: memoryview) -> tuple[bytearray, int] | None:
    """Parse ISO 8601 in UTC, with or without Z, to microseconds since 1970."""
    starts, view = offsets, data
    count = len(starts) - 1
    out = bytearray(8 * count)
    values = memoryview(out).cast("q")
    empty = 0
    for index in range(count):
        at, end = starts[index], starts[index + 1]
        if at == end:
            empty += 1
            continue
        moment = _instant(view, at, end)
        if moment < 0:
            return None
        values[index] = moment
    return out, empty


def id_instants(offsets: memoryview, data: memoryview) -> tuple[bytearray, int] | None:
    """Parse ids such as ``1526569498055-0`` to microseconds since 1970, up to the end of the year 9999."""
    starts, view = offsets, data
    count = len(starts) - 1
    out = bytearray(8 * count)
    values = memoryview(out).cast("q")
    for index in range(count):
        at, end = starts[index], starts[index + 1]
        first = at
        number = 0
        while at < end and view[at] != _MINUS:
            digit = view[at] - _ZERO
            if digit < 0 or digit > 9 or at - first == _MS_DIGITS:
                return None
            number = number * 10 + digit
            at += 1
        if not first < at < end:
            return None
        if number > _LAST_MS:
            return None
        values[index] = number * 1000
    return out, 0
