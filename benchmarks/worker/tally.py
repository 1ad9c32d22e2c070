"""Shared by all measured processes, with or without Headwater: messages, and counting them.

Rule 1. The measured time is from the first call of a handler to the last one, without the messages of
        the first call, so that imports and connecting do not count.
Rule 2. A handler only counts.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

STREAM = "bench:orders"
RESULTS = "bench:invoices"
GROUP = "bench"
BATCH = 500

BODY_BYTES = 75


def body(number: int) -> bytes:
    """Return the message with this number, 75 bytes of JSON.

    >>> body(17), len(body(17))
    (b'{"id": 17, "customer": "c-00017", "amount": 17.25, "note": "............."}', 75)
    """
    text = f'{{"id": {number}, "customer": "c-{number % 100_000:05}", "amount": {number % 997}.25, '
    return (text + '"note": "' + "." * (BODY_BYTES - len(text) - 11) + '"}').encode()


class Tally:
    """Counts handled messages and measures the times."""

    def __init__(self, messages: int) -> None:
        self.messages = messages
        self.handled = 0
        self._first = 0
        self._began = self._ended = (0.0, 0.0)

    def add(self, count: int = 1) -> bool:
        """Count ``count`` messages that a handler received; return whether these were the last."""
        if not self.handled:
            self._first = count
            self._began = _now()
        self.handled += count
        if self.handled >= self.messages:
            self._ended = _now()
            return True
        return False

    def took(self, seconds: float, cpu_seconds: float) -> None:
        """Set the times, if they were measured in another way."""
        self._began, self._ended = (0.0, 0.0), (seconds, cpu_seconds)

    def report(self, **more: Any) -> None:
        """Print the measurement as the last line of the process's output."""
        found = {
            "messages": self.handled - self._first,
            "seconds": self._ended[0] - self._began[0],
            "cpu_seconds": self._ended[1] - self._began[1],
            **more,
        }
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()
