"""Recognises, by counters alone, that the streams have not changed since a poll that found no entries.

A full poll takes some 20 µs for each stream. An idle query polls ten times a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from headwater.spark.log_mode.offsets import Offset

LONGEST_S: Final = 30.0
"""Maximum time without a full poll, in seconds. A full poll also renews the query's line (core/queries.py)."""


class Rest:
    """The offset and the counters of a poll that found no entries, with which later polls are compared.

    >>> now, rest = 0.0, Rest(clock=lambda: now)
    >>> rest.lasts({"to": 1}, ["counters"])
    False
    >>> rest.begin({"to": 1}, ["counters"])
    >>> rest.lasts({"to": 1}, ["counters"]), rest.lasts({"to": 1}, ["others"])
    (True, False)
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._start: Offset | None = None
        self._seen: list[Any] | None = None
        self._until = 0.0

    def begin(self, start: Offset, seen: list[Any] | None) -> None:
        """Record that no entries follow ``start``. ``seen`` are the counters that were read before that poll."""
        self._start, self._seen, self._until = start, seen, self._clock() + LONGEST_S

    def end(self) -> None:
        """Record that the last poll found entries."""
        self._start = self._seen = None

    def lasts(self, start: Offset, seen: list[Any] | None) -> bool:
        """Return whether still no entries follow ``start``. ``seen`` are the current counters, None if unknown."""
        return (
            seen is not None
            and seen == self._seen
            and start == self._start
            and self._clock() < self._until
        )
