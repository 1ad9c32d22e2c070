"""The slow log: the latest commands that took long, newest first (SLOWLOG).

Bounds are Redis's (slowlog.c): 32 arguments of 128 bytes an entry.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

MAX_ARGUMENTS = 32
MAX_ARGUMENT_BYTES = 128

OFF = -1
"""The threshold that nothing reaches."""


class SlowEntry(NamedTuple):
    """One command: its number, Unix time in seconds, duration, arguments cut to what is kept."""

    number: int
    time: int
    duration_us: int
    arguments: list[bytes]
    address: bytes
    client_name: bytes


class SlowLog:
    """Up to ``max_entries`` entries; what takes ``threshold_us`` or longer is added.

    >>> log = SlowLog()
    >>> log.add(1, 20_000, [b"KEYS", b"*"], b"127.0.0.1:5000", b"")
    >>> [entry.number for entry in log.latest(10)]
    [0]
    """

    def __init__(self) -> None:
        self.threshold_us = OFF
        self.max_entries = 128
        self._entries: deque[SlowEntry] = deque()
        self._next = 0

    def __len__(self) -> int:
        return len(self._entries)

    def add(
        self, time: int, duration_us: int, values: list[bytes], address: bytes, client_name: bytes
    ) -> None:
        """Keep a command; numbers go on after `clear`."""
        entry = SlowEntry(self._next, time, duration_us, _cut(values), address, client_name)
        self._entries.appendleft(entry)
        self._next += 1
        self.trim()

    def trim(self) -> None:
        """Let go what is more than ``max_entries``."""
        while len(self._entries) > self.max_entries:
            self._entries.pop()

    def latest(self, count: int) -> list[SlowEntry]:
        """Up to ``count`` entries, newest first; below 0 all."""
        entries = list(self._entries)
        return entries if count < 0 else entries[:count]

    def clear(self) -> None:
        self._entries.clear()


def _cut(values: list[bytes]) -> list[bytes]:
    kept = values
    if len(values) > MAX_ARGUMENTS:
        left = len(values) - MAX_ARGUMENTS + 1
        kept = [*values[: MAX_ARGUMENTS - 1], b"... (%d more arguments)" % left]
    return [_cut_one(value) for value in kept]


def _cut_one(value: bytes) -> bytes:
    more = len(value) - MAX_ARGUMENT_BYTES
    return value if more <= 0 else value[:MAX_ARGUMENT_BYTES] + b"... (%d more bytes)" % more
