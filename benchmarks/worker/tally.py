"""What every measured process has in common, with or without Headwater: messages, and their count.

Rule 1. Measured is the time from the first message that a handler gets to the last one, without the
        messages of the first call, so that neither imports nor connecting count.
Rule 2. A handler does nothing but count.
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
    """The message of this number, 75 bytes of JSON.

    >>> body(17), len(body(17))
    (b'{"id": 17, "customer": "c-00017", "amount": 17.25, "note": "............."}', 75)
    """
    text = f'{{"id": {number}, "customer": "c-{number % 100_000:05}", "amount": {number % 997}.25, '
    return (text + '"note": "' + "." * (BODY_BYTES - len(text) - 11) + '"}').encode()


class Tally:
    """Counts handled messages and takes the times."""

    def __init__(self, messages: int) -> None:
        self.messages = messages
        self.handled = 0
        self._first = 0
        self._began = self._ended = (0.0, 0.0)

    def add(self, count: int = 1) -> bool:
        """A handler got ``count`` messages; whether these were the last."""
        if not self.handled:
            self._first = count
            self._began = _now()
        self.handled += count
        if self.handled >= self.messages:
            self._ended = _now()
            return True
        return False

    def report(self, **more: Any) -> None:
        """Print the measurement, the last line of the process."""
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
