"""The option ``start`` of a consumer: where a new group begins to read."""

from __future__ import annotations

from datetime import datetime

from headwater.common.model import MIN_ID, StreamID, id_before
from headwater.errors import DeclarationError

WORDS = {"beginning": str(MIN_ID), "new": "$"}


def group_start(start: str | datetime) -> str:
    """Return the id after which a group begins that is created with this ``start``.

    >>> from datetime import datetime, timezone
    >>> group_start("beginning"), group_start("new"), group_start("1526569498055-3")
    ('0-0', '$', '1526569498055-3')
    >>> group_start(datetime(2018, 5, 17, 15, 4, 58, 55_000, tzinfo=timezone.utc))
    '1526569498054-18446744073709551615'
    """
    if isinstance(start, datetime):
        return _before(start)
    if start in WORDS:
        return WORDS[start]
    try:
        return str(StreamID.parse(start))
    except (ValueError, AttributeError):
        raise DeclarationError(
            f"start={start!r} must be 'beginning', 'new', the id of an entry such as "
            "'1526569498055-0', or a datetime with a time zone"
        ) from None


def _before(moment: datetime) -> str:
    """Return the greatest id before ``moment``."""
    if moment.tzinfo is None:
        raise DeclarationError(
            f"start={moment!r} has no time zone, so it is ambiguous: use datetime(…, tzinfo=timezone.utc)"
        )
    ms = round(moment.timestamp() * 1000)
    return str(StreamID(*id_before(ms, 0))) if ms > 0 else str(MIN_ID)
