"""Parses durations such as ``"1500ms"``, ``"30s"``, ``"5m"``, ``"1.5h"``, ``"2d"``."""

from __future__ import annotations

import re
from datetime import timedelta

from headwater.errors import DeclarationError

_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_FORM = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)\s*", re.ASCII)

LONGEST_MS = 366 * 86_400_000
"""366 days. A longer duration is more likely a wrong unit."""


def milliseconds(duration: str | timedelta, *, what: str = "duration", least_ms: int = 1) -> int:
    """Return a duration in whole milliseconds.

    Raises `DeclarationError` if it is not a number with a unit, is shorter than ``least_ms``, or is longer
    than `LONGEST_MS`. The error calls it ``what``.

    >>> milliseconds("1.5s"), milliseconds("5m"), milliseconds(timedelta(seconds=2))
    (1500, 300000, 2000)
    """
    if isinstance(duration, timedelta):
        found = round(duration.total_seconds() * 1000)
    else:
        match = _FORM.fullmatch(str(duration))
        if match is None:
            raise DeclarationError(
                f"{what}={duration!r} is not a duration: write a number and a unit, one of "
                f"{', '.join(_UNITS)}, as in '1500ms', '30s', '5m'"
            )
        # Far more than the longest, so that a number beyond a float stays an integer.
        found = round(min(float(match[1]) * _UNITS[match[2]], 10.0 * LONGEST_MS))
    if not least_ms <= found <= LONGEST_MS:
        raise DeclarationError(
            f"{what}={duration!r} is {found} ms; it must be at least {least_ms} ms and at most 366 days"
        )
    return found
