"""Parses durations such as ``"1500ms"``, ``"30s"``, ``"5m"``, ``"1.5h"``, ``"1h30m"``, ``"2d"``."""

from __future__ import annotations

from datetime import timedelta

from headwater.common.moments import UNITS, length_ms
from headwater.errors import DeclarationError

LONGEST_MS = 366 * 86_400_000
"""Maximum duration, 366 days. A longer one probably has a wrong unit."""


def milliseconds(duration: str | timedelta, *, what: str = "duration", least_ms: int = 1) -> int:
    """Return a duration in whole milliseconds.

    Raises `DeclarationError` if ``duration`` is not a number with a unit, is shorter than ``least_ms``, or is
    longer than `LONGEST_MS`. ``what`` is the name of the duration in the error.

    >>> milliseconds("1.5s"), milliseconds("5m"), milliseconds(timedelta(seconds=2))
    (1500, 300000, 2000)
    """
    if isinstance(duration, timedelta):
        found = round(duration.total_seconds() * 1000)
    else:
        length = length_ms(str(duration))
        if length is None:
            raise DeclarationError(
                f"{what}={duration!r} is not a duration: write a number and a unit, one of "
                f"{', '.join(UNITS)}, as in '1500ms', '30s', '5m', '1h30m'"
            )
        found = length
    if not least_ms <= found <= LONGEST_MS:
        raise DeclarationError(
            f"{what}={duration!r} is {found} ms; it must be at least {least_ms} ms and at most 366 days"
        )
    return found
