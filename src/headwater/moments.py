"""Moments as text: ISO 8601 and Unix milliseconds."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from headwater.errors import HeadwaterError

LAST_MS = 253_402_300_799_999
"""The last millisecond of the year 9999, after which there is no ISO 8601 of four digits."""


def milliseconds_of(text: str, option: str) -> int:
    """Parse a time and return Unix milliseconds. Raises `HeadwaterError`, which names ``option``, the place of the
    text.

    >>> milliseconds_of("2018-05-17T15:00:58.055Z", "--at"), milliseconds_of("1526569258055", "--at")
    (1526569258055, 1526569258055)
    """
    if re.fullmatch(r"\d{1,15}", text):
        if int(text) > LAST_MS:
            raise HeadwaterError(
                f"{option}: {text} is after the year 9999: write Unix milliseconds"
            )
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise HeadwaterError(
            f"{option}: {text!r} is not a time: write ISO 8601, such as 2026-11-23T09:30:00Z, or Unix milliseconds"
        ) from None
    if moment.tzinfo is None:
        raise HeadwaterError(
            f"{option}: {text!r} has no time zone: add Z for UTC, or an offset such as +02:00"
        )
    return round(moment.astimezone(UTC).timestamp() * 1000)


def iso_time(now_ms: int) -> str:
    """Return Unix milliseconds as ISO 8601 in UTC.

    >>> iso_time(1526569498055)
    '2018-05-17T15:04:58.055Z'
    """
    moment = datetime.fromtimestamp(now_ms // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{now_ms % 1000:03d}Z"
