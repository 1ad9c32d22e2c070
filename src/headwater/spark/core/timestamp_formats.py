"""The formats of timestamps that are not written in ISO 8601: units since 1970, or patterns of letters.

Letters have the same meaning as in Spark: ``yyyy-MM-dd HH:mm:ss.SSS xxx``. A pattern without a zone is in UTC. A
part that the pattern omits has the smallest value: the first month and day, midnight.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import groupby
from typing import Final

from headwater.errors import DeclarationError

ISO: Final = "iso"
UNITS: Final = {"s": 6, "ms": 3, "us": 0, "ns": -3}
"""Units, with the power of ten that converts them to microseconds."""

_MONTHS: Final = (
    *("january", "february", "march", "april", "may", "june", "july", "august", "september"),
    *("october", "november", "december"),
)
_DAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_OFFSET: Final = r"(?P<zone>Z|[+-]\d\d(?::?\d\d)?)"
_LETTERS: Final = {
    "yyyy": r"(?P<year>\d{4})",
    "MM": r"(?P<month>\d\d)",
    "M": r"(?P<month>\d\d?)",
    "MMM": f"(?P<name>(?i:{'|'.join(one[:3] for one in _MONTHS)}))",
    "MMMM": f"(?P<name>(?i:{'|'.join(_MONTHS)}))",
    "dd": r"(?P<day>\d\d)",
    "d": r"(?P<day>\d\d?)",
    "E": f"(?i:{'|'.join(one[:3] for one in _DAYS)})",
    "EEE": f"(?i:{'|'.join(one[:3] for one in _DAYS)})",
    "EEEE": f"(?i:{'|'.join(_DAYS)})",
    "HH": r"(?P<hour>\d\d)",
    "H": r"(?P<hour>\d\d?)",
    "hh": r"(?P<hour12>\d\d)",
    "h": r"(?P<hour12>\d\d?)",
    "a": r"(?P<half>(?i:am|pm))",
    "mm": r"(?P<minute>\d\d)",
    "m": r"(?P<minute>\d\d?)",
    "ss": r"(?P<second>\d\d)",
    "s": r"(?P<second>\d\d?)",
    **{letter * count: _OFFSET for letter in "Xx" for count in (1, 2, 3)},
    "Z": _OFFSET,
}
_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - the offset is subtracted

Parse = Callable[[str], int]
"""Returns the microseconds since 1970 for a string. Raises `ValueError` if the string has another form."""


def checked(option: str, text: str) -> str:
    """Return ``text`` if it is a format. Raises `DeclarationError` otherwise."""
    if text != ISO and text not in UNITS:
        try:
            pattern(text)
        except ValueError as error:
            raise DeclarationError(
                f"{option}: {text!r} is neither iso, s, ms, us, ns nor a pattern like 'yyyy-MM-dd HH:mm:ss': {error}"
            ) from None
    return text


@lru_cache(64)
def pattern(text: str) -> Parse:
    """Return the parser of a pattern. Raises `ValueError`, which describes the fault, for an invalid pattern.

    >>> pattern("dd/MM/yyyy HH:mm:ss.SSS xxx")("21/11/2026 10:00:00.5 +01:00") - 1_795_251_600_000_000
    500000
    """
    expression = "".join(_expressions(text))
    names = re.findall(r"\?P<(\w+)>", expression)
    if len(set(names)) < len(names):
        raise ValueError("it has a part twice")
    if "year" not in names:
        raise ValueError("it has no year (yyyy)")
    if ("hour12" in names) != ("half" in names):
        raise ValueError("h and a belong together; use H for 0 to 23")
    compiled = re.compile(expression, re.ASCII)

    def parse(value: str) -> int:
        found = compiled.fullmatch(value)
        if found is None:
            raise ValueError("another form")
        return _microseconds(found.groupdict())

    return parse


def _expressions(text: str) -> Iterator[str]:
    """Yield the regular expression of each part of a pattern."""
    for place, part in enumerate(text.split("'")):
        if place % 2:
            yield re.escape(part) if part else "'"
            continue
        for letter, run in groupby(part):
            word = letter * len(list(run))
            if not letter.isalpha():
                yield re.escape(word)
            elif letter == "S" and len(word) <= 9:
                yield r"(?P<fraction>\d{1,9})"
            elif word in _LETTERS:
                yield _LETTERS[word]
            else:
                raise ValueError(
                    f"{word!r} means nothing; letters are yyyy, M to MMMM, d, dd, E, H, HH, h with a, m, mm, s, ss, S, X, x "
                    "and Z, and other text is put between apostrophes"
                )
    if text.count("'") % 2:
        raise ValueError("an apostrophe is missing")


def _microseconds(found: dict[str, str | None]) -> int:
    month = int(found.get("month") or 1)
    name = found.get("name")
    if name:
        month = 1 + [one[:3] for one in _MONTHS].index(name[:3].lower())
    hour = int(found.get("hour") or 0)
    if (half := found.get("half")) is not None:
        hour12 = int(found["hour12"] or 0)
        if not 1 <= hour12 <= 12:
            raise ValueError("no hour")
        hour = hour12 % 12 + (12 if half.lower() == "pm" else 0)
    moment = dt.datetime(  # noqa: DTZ001 - the offset is subtracted
        int(found["year"] or 0),
        month,
        int(found.get("day") or 1),
        hour,
        int(found.get("minute") or 0),
        int(found.get("second") or 0),
    )
    fraction = (found.get("fraction") or "")[:6].ljust(6, "0")
    return (moment - _EPOCH) // dt.timedelta(microseconds=1) + int(fraction) - _offset(found)


def _offset(found: dict[str, str | None]) -> int:
    zone = found.get("zone") or "Z"
    if zone == "Z":
        return 0
    digits = zone[1:].replace(":", "").ljust(4, "0")
    if int(digits[:2]) > 18 or int(digits[2:]) > 59:
        raise ValueError("no offset")
    seconds = 3600 * int(digits[:2]) + 60 * int(digits[2:])
    return 1_000_000 * (-seconds if zone[0] == "-" else seconds)
