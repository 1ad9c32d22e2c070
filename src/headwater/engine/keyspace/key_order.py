"""Keys in the order of their creation, so that SCAN can continue at a cursor.

Every new key gets an ascending number. A cursor is the number at which to continue. A key that exists
during a whole scan keeps its number and is returned. A key that is deleted and created again gets a new
number.

Rule 1. The place of a deleted key remains until there are twice as many places as keys.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Container, Iterable

from headwater.engine.accounts.memory_account import text_bytes

_SLACK = 64
_LOOKS = 10
"""Maximum number of places that a scan visits for each key that it may return. Precedent: Redis,
scanGenericCommand, which visits up to ten times COUNT buckets if they are empty."""


class KeyOrder:
    """The order of ``present``, the keys of a database.

    >>> present = {b"a": 1, b"b": 2, b"c": 3}
    >>> order = KeyOrder(present)
    >>> for key in present: order.add(key, len(present))
    >>> cursor, keys = order.scan(0, 2)
    >>> keys, order.scan(cursor, 2)
    ([b'a', b'b'], (0, [b'c']))
    """

    def __init__(self, present: Container[bytes]) -> None:
        self._present = present
        self.names: list[bytes] = []
        self.numbers: array[int] = array("Q")
        self.next_number = 1
        self.stale_bytes = 0
        """Size of the names of keys that do not exist any more, in bytes."""

    def add(self, key: bytes, keys: int) -> None:
        """Add a new key. ``keys`` is the number of keys including it."""
        self.names.append(key)
        self.numbers.append(self.next_number)
        self.next_number += 1
        if len(self.names) > 2 * keys + _SLACK:
            self._tidy()

    def remove(self, key: bytes, keys: int) -> None:
        """Note that a key was deleted. ``keys`` is the number of keys without it."""
        self.stale_bytes += text_bytes(key)
        if len(self.names) > 2 * keys + _SLACK:
            self._tidy()

    def _tidy(self) -> None:
        """Remove the places of deleted keys."""
        kept = {
            name: number
            for name, number in zip(self.names, self.numbers, strict=True)
            if name in self._present
        }
        ordered = sorted((number, name) for name, number in kept.items())
        self.names = [name for _, name in ordered]
        self.numbers = array("Q", (number for number, _ in ordered))
        self.stale_bytes = 0

    def numbers_of(self, keys: Iterable[bytes]) -> array[int]:
        """Return the numbers of ``keys``. All of them must exist."""
        numbers = dict(zip(self.names, self.numbers, strict=True))
        return array("Q", map(numbers.__getitem__, keys))

    def renumber(self, first: int, numbers: array[int], next_number: int) -> None:
        """Give the keys at place ``first`` and later these ascending ``numbers``, all below ``next_number``."""
        assert first + len(numbers) <= len(self.numbers)
        self.numbers[first : first + len(numbers)] = numbers
        self.next_number = next_number

    def scan(self, cursor: int, count: int) -> tuple[int, list[bytes]]:
        """Return at most ``count`` keys from ``cursor`` (0: the start) on, and the next cursor, 0 at the end,
        as ``(cursor, keys)``."""
        names = self.names
        at = bisect_left(self.numbers, cursor)
        end = min(at + _LOOKS * count, len(names))
        found: dict[bytes, None] = {}
        while at < end and len(found) < count:
            if names[at] in self._present:
                found[names[at]] = None
            at += 1
        return (self.numbers[at] if at < len(names) else 0), list(found)
