"""The slow log: the latest slow commands, newest first (SLOWLOG).

The bounds are Redis's (slowlog.c): 32 arguments of 128 bytes per entry.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from headwater.engine.accounts.memory_account import text_bytes
from headwater.resp.arguments import Arguments

MAX_ARGUMENTS = 32
MAX_ARGUMENT_BYTES = 128

_ENTRY_BYTES, _PLACE_BYTES = 340, 9
"""Bytes per entry without its texts, and per argument for its place in the list."""

OFF = -1
"""Value of the threshold that disables the slow log."""


class SlowEntry(NamedTuple):
    """An entry as SLOWLOG GET shows it: number, Unix time in seconds, duration, arguments cut by `cut_values`."""

    number: int
    time: int
    duration_us: int
    arguments: list[bytes]
    address: bytes
    client_name: bytes

    def memory_bytes(self) -> int:
        """Return the memory of the entry, including the client's name, which may be a separate object."""
        size = _ENTRY_BYTES + _PLACE_BYTES * len(self.arguments) + text_bytes(self.client_name)
        return size + sum(map(text_bytes, self.arguments))


class SlowLog:
    """Up to ``max_entries`` commands that took ``threshold_us`` or longer.

    >>> log = SlowLog(128)
    >>> log.add(1, 20_000, [b"KEYS", b"*"], b"127.0.0.1:5000", b"")
    >>> [entry.number for entry in log.latest(10)]
    [0]
    """

    def __init__(self, max_entries: int) -> None:
        self.threshold_us = OFF
        self.max_entries = max_entries
        self._entries: deque[SlowEntry] = deque()
        self._bytes = 0
        self._next = 0

    def __len__(self) -> int:
        return len(self._entries)

    def add(
        self, time: int, duration_us: int, values: list[bytes], address: bytes, client_name: bytes
    ) -> None:
        """Add a command. The numbers continue after `clear`."""
        entry = SlowEntry(self._next, time, duration_us, values, address, client_name)
        self._entries.appendleft(entry)
        self._bytes += entry.memory_bytes()
        self._next += 1
        self.trim()

    def memory_bytes(self) -> int:
        """Return the memory of the entries."""
        return self._bytes

    def trim(self) -> None:
        """Remove the oldest entries above ``max_entries``."""
        while len(self._entries) > self.max_entries:
            self._bytes -= self._entries.pop().memory_bytes()

    def latest(self, count: int) -> list[SlowEntry]:
        """Return up to ``count`` entries, newest first; all if ``count`` is negative."""
        entries = list(self._entries)
        return entries if count < 0 else entries[:count]

    def clear(self) -> None:
        self._entries.clear()
        self._bytes = 0


def first_values(arguments: Arguments) -> list[bytes]:
    """Return the arguments that an entry shows, each cut to its maximum length. The rest is not
    copied: it may be hundreds of megabytes.

    >>> first_values(Arguments.of(b"SET", b"k", b"v" * 130))[2][-20:]
    b'vv... (2 more bytes)'
    """
    return [_first_bytes(arguments, index) for index in range(min(arguments.count, MAX_ARGUMENTS))]


def _first_bytes(arguments: Arguments, index: int) -> bytes:
    start, end = arguments.starts[index], arguments.ends[index]
    more = end - start - MAX_ARGUMENT_BYTES
    if more <= 0:
        return arguments.bytes(index)
    shown = bytes(arguments.buffer[start : start + MAX_ARGUMENT_BYTES])
    return shown + b"... (%d more bytes)" % more


def cut_values(values: list[bytes], count: int) -> list[bytes]:
    """Replace the last of ``values`` with the number of omitted arguments if ``count`` exceeds `MAX_ARGUMENTS`."""
    if count <= MAX_ARGUMENTS:
        return values
    left = count - MAX_ARGUMENTS + 1
    return [*values[: MAX_ARGUMENTS - 1], b"... (%d more arguments)" % left]
