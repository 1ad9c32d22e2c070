"""Random values with what exact parsing in Python makes of them, for every type; the judge of what Spark reads.

Texts are near what fits and what does not: numbers around every bound and beyond 38 digits, times with nanoseconds,
leap seconds and offsets, the first and the last year, half a surrogate pair, words like ``nan``.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
import struct
from collections.abc import Callable
from decimal import Decimal, localcontext
from random import Random
from typing import Any, NamedTuple

MISFIT = None
"""What does not fit is read as null."""


class Exact(NamedTuple):
    """A Spark type, a maker of texts for it, and their exact value."""

    type: str
    make: Callable[[Random], str]
    value: Callable[[str], Any]


def _digits(random: Random, most: int) -> str:
    return "".join(random.choices("0123456789", k=random.randint(1, most)))


def _number(random: Random) -> str:
    edge = random.choice((8, 16, 32, 63, 64, 128, 256))
    made = random.choice((
        str(2**edge // random.choice((1, 2)) + random.randint(-2, 2)),
        str(10 ** random.choice((2, 15, 18, 19, 20, 36, 37, 38, 39)) + random.randint(-2, 2)),
        _digits(random, 45),
        f"{_digits(random, 25)}.{_digits(random, 25)}",
        f"{random.randint(0, 999)}.{random.randint(0, 99):02}",
        f"{_digits(random, 4)}e{random.randint(-45, 420)}",
        str(random.randint(0, 300)),
        random.choice(("nan", "inf", "Infinity", "NaN", "", "-", "1_0", "0x11", " 1", "1 ", "٣", "1.", ".5", "+5")),
    ))  # fmt: skip
    return "-" + made if random.random() < 0.3 else made


def _time(random: Random) -> str:
    year = random.choice((1, 2, 1582, 1899, 1969, 1970, 2013, 2024, 9999, random.randint(0, 10000)))
    month, day = random.randint(1, 12), random.choice((1, 28, 29, 30, 31, random.randint(0, 32)))
    date = f"{year:04}-{month:02}-{day:02}"
    if random.random() < 0.15:
        return date
    hour, minute, second = random.randint(0, 24), random.randint(0, 59), random.randint(0, 60)
    fraction = random.choice(("", "", f".{_digits(random, 12)}", f",{_digits(random, 9)}"))
    zone = random.choice(
        ("", "Z", "Z", "z", "+02:00", "-0530", "+14", "-12:45", "+01:00[Europe/Paris]", "+25:00")
    )
    clock = random.choice(
        (f"{hour:02}:{minute:02}:{second:02}{fraction}", f"{hour:02}:{minute:02}", f"{hour:02}")
    )
    return f"{date}{random.choice('TT t')}{clock}{zone}"


def _word(random: Random) -> str:
    return random.choice(
        ("true", "false", "True", "FALSE", "1", "0", "yes", "t", "", "true ", "null")
    )


def _string(random: Random) -> str:
    parts = (
        "tea",
        "né",
        "\U0001f600",
        "\n",
        '"',
        "\\",
        "\\ud800",
        "\x00",
        " ",
        "\ufdd0",
        "{",
        "1.50",
        "null",
    )
    return "".join(random.choices(parts, k=random.randint(0, 5)))


def _whole(bits: int) -> Callable[[str], Any]:
    def value(text: str) -> Any:
        if not re.fullmatch(r"-?[0-9]+", text):
            return MISFIT
        found = int(text)
        return found if -(2 ** (bits - 1)) <= found < 2 ** (bits - 1) else MISFIT

    return value


def _decimal(precision: int, scale: int) -> Callable[[str], Any]:
    def value(text: str) -> Any:
        if not re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text):
            return MISFIT
        with localcontext(prec=2000):
            scaled = Decimal(text).scaleb(scale)
            if scaled != scaled.to_integral_value() or abs(scaled) >= 10**precision:
                return MISFIT
            return Decimal(text)

    return value


def _real(form: str) -> Callable[[str], Any]:
    def value(text: str) -> Any:
        words = {"nan": math.nan, "inf": math.inf, "infinity": math.inf}
        bare = text.removeprefix("-")
        if bare.lower() in words:
            return -words[bare.lower()] if bare != text else words[bare.lower()]
        if not re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text):
            return MISFIT
        try:
            found = float(struct.unpack(form, struct.pack(form, float(text)))[0])
        except OverflowError:
            return MISFIT
        return MISFIT if math.isinf(found) else found

    return value


_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[Tt ](\d\d)(?::(\d\d)(?::(\d\d)(?:[.,](\d+))?)?)?"
    r"(?:([Zz])|([+-]\d\d):?(\d\d)?(?:\[[\w/+-]+\])?)?)?",
    re.ASCII,
)


def _moment(text: str) -> Any:
    found = _TIME.fullmatch(text)
    if found is None:
        return MISFIT
    year, month, day, hour, minute, second = (int(part or 0) for part in found.groups()[:6])
    micros = int(((found[7] or "") + "000000")[:6])
    hours, minutes = int(found[9] or 0), int(found[10] or 0)
    if abs(hours) > 23 or minutes > 59:
        return MISFIT
    ahead = dt.timedelta(hours=abs(hours), minutes=minutes) * (
        -1 if (found[9] or "").startswith("-") else 1
    )
    try:
        local = dt.datetime(year, month, day, hour, minute, second, micros, dt.UTC)
        return local - ahead
    except (ValueError, OverflowError):
        return MISFIT


def _date(text: str) -> Any:
    try:
        return (
            dt.date.fromisoformat(text)
            if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text)
            else MISFIT
        )
    except ValueError:
        return MISFIT


def _boolean(text: str) -> Any:
    return {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), MISFIT)


TYPES = (
    Exact("tinyint", _number, _whole(8)),
    Exact("smallint", _number, _whole(16)),
    Exact("int", _number, _whole(32)),
    Exact("bigint", _number, _whole(64)),
    Exact("decimal(38, 0)", _number, _decimal(38, 0)),
    Exact("decimal(38, 18)", _number, _decimal(38, 18)),
    Exact("decimal(10, 2)", _number, _decimal(10, 2)),
    Exact("decimal(2, 2)", _number, _decimal(2, 2)),
    Exact("double", _number, _real("<d")),
    Exact("float", _number, _real("<f")),
    Exact("timestamp", _time, _moment),
    Exact("date", _time, _date),
    Exact("boolean", _word, _boolean),
    Exact("string", _string, str),
)

_JSON_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


def token_of(random: Random, text: str) -> str:
    """Return a JSON value whose text is ``text``: a number or a word as it is, or in quotes."""
    bare = text in {"true", "false"} or _JSON_NUMBER.fullmatch(text)
    if bare and random.random() < 0.5:
        return text
    return json.dumps(text, ensure_ascii=random.random() < 0.5)


def same(found: Any, expected: Any) -> bool:
    """Return whether two values are equal; NaN is equal to itself, and -0.0 differs from 0.0."""
    if type(found) is not type(expected):
        return False
    return repr(found) == repr(expected) if isinstance(expected, float) else found == expected
