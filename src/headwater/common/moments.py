"""Moments and lengths of time as text.

2026-11-23T09:30:00Z  1526569258055  5m ago  now      moments
90s  1.5h  1h30m  PT1H30M  2 days                     lengths of time, in `UNITS`
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime

from headwater.errors import HeadwaterError

LAST_MS = 253_402_300_799_999
"""Last millisecond of the year 9999. ISO 8601 with four digits cannot represent later years."""


UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
"""Milliseconds of each unit."""

_WORDS = {
    "s": ("sec", "secs", "second", "seconds"),
    "m": ("min", "mins", "minute", "minutes"),
    "h": ("hr", "hrs", "hour", "hours"),
    "d": ("day", "days"),
    "w": ("week", "weeks"),
}
_UNIT_OF = {**UNITS, **{word: UNITS[unit] for unit, words in _WORDS.items() for word in words}}

_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.ASCII)
_ISO = re.compile(
    r"p(?:(\d+(?:\.\d+)?)w)?(?:(\d+(?:\.\d+)?)d)?(?:t(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?)?",
    re.ASCII,
)

_TOO_LONG_MS = 10.0 * 366 * UNITS["d"]
"""Maximum length of time in milliseconds. A longer one counts as this maximum, even if too long for a float."""


def length_ms(text: str) -> int | None:
    """Return a length of time in whole milliseconds; None if the text is not a length of time.

    >>> length_ms("1.5s"), length_ms("1h30m"), length_ms("PT1H30M"), length_ms("12 min 7 s"), length_ms("5")
    (1500, 5400000, 5400000, 727000, None)
    """
    text = text.strip().lower()
    iso = _ISO.fullmatch(text)
    if iso is not None and any(iso.groups()):
        units = ("w", "d", "h", "m", "s")
        parts = [(number, unit) for number, unit in zip(iso.groups(), units, strict=True) if number]
    else:
        parts = _PART.findall(text)
        known = all(unit in _UNIT_OF for _number, unit in parts)
        if not parts or not known or not re.fullmatch(f"(?:{_PART.pattern})+", text):
            return None
        sizes = [_UNIT_OF[unit] for _number, unit in parts]
        if sizes != sorted({*sizes}, reverse=True):  # each unit once, the largest first
            return None
    total = sum(min(float(number) * _UNIT_OF[unit], _TOO_LONG_MS) for number, unit in parts)
    return round(min(total, _TOO_LONG_MS))


def milliseconds_of(text: str, option: str, *, now_ms: int | None = None) -> int:
    """Parse a moment and return Unix milliseconds. Raises `HeadwaterError`, whose message names ``option``, the
    source of the text.

    >>> milliseconds_of("2018-05-17T15:00:58.055Z", "--at"), milliseconds_of("1526569258055", "--at")
    (1526569258055, 1526569258055)
    >>> milliseconds_of("1m30s ago", "--from", now_ms=1526569258055)
    1526569168055
    """
    text = text.strip()
    if re.fullmatch(r"\d{1,15}", text, re.ASCII):
        if int(text) > LAST_MS:
            raise HeadwaterError(
                f"{option}: {text} is after the year 9999: write Unix milliseconds"
            )
        return int(text)
    now = round(time.time() * 1000) if now_ms is None else now_ms
    if text.lower() == "now":
        return now
    ago = length_ms(text.lower().removesuffix("ago"))
    if ago is not None:
        return max(0, now - ago)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise HeadwaterError(
            f"{option}: {text!r} is not a time: write ISO 8601 (2026-11-23T09:30:00Z), Unix milliseconds "
            "(1763890200000), or how long ago (5m or '1h30m ago')"
        ) from None
    if moment.tzinfo is None:
        raise HeadwaterError(
            f"{option}: {text!r} has no time zone: write date and time with Z for UTC or an offset, such as "
            "2026-11-23T09:30:00Z"
        )
    return round(moment.timestamp() * 1000)


def iso_time(now_ms: int) -> str:
    """Return Unix milliseconds as ISO 8601 in UTC.

    >>> iso_time(1526569498055)
    '2018-05-17T15:04:58.055Z'
    """
    moment = datetime.fromtimestamp(now_ms // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{now_ms % 1000:03d}Z"
