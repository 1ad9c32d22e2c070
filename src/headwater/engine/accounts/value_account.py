"""The memory of one database's keys and values, and the changes of lists, sets and hashes that it counts.

    sizes   key ──▶ bytes of its list, set or hash, with all that it contains
    bytes   all keys and values of the database, except streams

Rule 1. The size of a string follows from the string. The size of a list, set or hash is kept in ``sizes``, so
        that removing, moving or copying a large one takes constant time.
Rule 2. Each function below, apart from `places_of`, changes a value and returns its growth in bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from sys import getsizeof

from headwater.engine.accounts.memory_account import MemoryAccount, container_bytes, text_bytes

UNCOUNTED = -1
"""Stands for the size of a string or stream, which is not counted, or of a value that is to be measured."""

_FEW = 4
"""Maximum number of texts that are removed from a list one by one, which moves the texts between them and the nearer
end. To remove more, all texts from the nearer end to the farthest one are taken out, and the others put back."""


class ValueAccount:
    """The account of a database, which is part of the account of its keyspace.

    >>> account = ValueAccount(MemoryAccount())
    >>> account.place(b"orders:count", b"10", UNCOUNTED)
    >>> account.bytes, account.remove(b"orders:count", b"10"), account.bytes
    (96, -1, 0)
    """

    def __init__(self, memory: MemoryAccount) -> None:
        self.memory = memory
        self.sizes: dict[bytes, int] = {}
        self.bytes = 0

    def place(self, key: bytes, value: object, size: int) -> None:
        """Count a new key with its value. ``size`` is the size of a list, set or hash, or `UNCOUNTED`."""
        total = text_bytes(key)
        if isinstance(value, bytes):
            total += text_bytes(value)
        elif isinstance(value, (dict, deque, set)):
            self.sizes[key] = size if size >= 0 else container_bytes(value)
            total += self.sizes[key]
        self.count(total)

    def remove(self, key: bytes, value: object) -> int:
        """Take a removed key with its value from the account. Return the size of a list, set or hash,
        else `UNCOUNTED`."""
        size: int = self.sizes.pop(key, UNCOUNTED)
        value_size = text_bytes(value) if isinstance(value, bytes) else max(0, size)
        self.count(-text_bytes(key) - value_size)
        return size

    def resize(self, key: bytes, change: int) -> None:
        """Count that the list, set or hash at ``key`` has grown by ``change`` bytes."""
        self.sizes[key] += change
        self.count(change)

    def count(self, change: int) -> None:
        """Count ``change`` more bytes."""
        self.bytes += change
        self.memory.values += change

    def clear(self) -> None:
        """Take everything from the account."""
        self.count(-self.bytes)
        self.sizes = {}


def update_hash(value: dict[bytes, bytes], pairs: Sequence[tuple[bytes, bytes]]) -> int:
    """Set fields of a hash."""
    grown = -getsizeof(value)
    for field, text in pairs:
        old = value.get(field)
        grown += text_bytes(text)
        grown += text_bytes(field) if old is None else -text_bytes(old)
        value[field] = text
    return grown + getsizeof(value)


def remove_fields(value: dict[bytes, bytes], fields: Sequence[bytes]) -> int:
    """Remove ``fields`` from a hash. Ignore fields that it does not have."""
    grown = -getsizeof(value)
    for field in fields:
        old = value.pop(field, None)
        if old is not None:
            grown -= text_bytes(field) + text_bytes(old)
    return grown + getsizeof(value)


def extend_list(value: deque[bytes], texts: Sequence[bytes], *, left: bool) -> int:
    """Push texts one after the other to one end of a list."""
    grown = -getsizeof(value)
    if left:
        value.extendleft(texts)
    else:
        value.extend(texts)
    for text in texts:
        grown += text_bytes(text)
    return grown + getsizeof(value)


def shorten_list(value: deque[bytes], count: int, *, left: bool) -> int:
    """Remove ``count`` texts from one end of a list."""
    grown = -getsizeof(value)
    for _ in range(count):
        grown -= text_bytes(value.popleft() if left else value.pop())
    return grown + getsizeof(value)


def set_text(value: deque[bytes], index: int, text: bytes) -> int:
    """Replace the text at ``index`` of a list."""
    grown = text_bytes(text) - text_bytes(value[index])
    value[index] = text
    return grown


def places_of(value: deque[bytes], text: bytes, count: int, left: bool) -> list[int]:
    """Return the places of the first (``left``) or last ``count`` texts that equal ``text``, in ascending order; of
    all of them if there are fewer.

    >>> places_of(deque([b"a", b"b", b"a", b"a"]), b"a", 2, False)
    [2, 3]
    """
    found: list[int] = []
    for place, one in enumerate(value if left else reversed(value)):
        if one == text:
            found.append(place)
            if len(found) == count:
                break
    if left:
        return found
    last = len(value) - 1
    return [last - place for place in reversed(found)]


def remove_places(value: deque[bytes], places: list[int]) -> int:
    """Remove the texts at ``places``, which are equal and in ascending order, from a list."""
    grown = -getsizeof(value) - len(places) * text_bytes(value[places[0]])
    if len(places) <= _FEW:
        for place in reversed(places):
            del value[place]
        return grown + getsizeof(value)
    left = (
        places[-1] < len(value) - places[0]
    )  # True if they are nearer to the first text than to the last
    count = places[-1] + 1 if left else len(value) - places[0]
    place = 0 if left else len(value) - 1
    step = 1 if left else -1
    following = iter(places if left else places[::-1])
    kept, gone, take = [], next(following), value.popleft if left else value.pop
    for _ in range(count):
        one = take()
        if place == gone:
            gone = next(following, -1)
        else:
            kept.append(one)
        place += step
    (value.extendleft if left else value.extend)(reversed(kept))
    return grown + getsizeof(value)


def update_set(value: set[bytes], members: Sequence[bytes]) -> int:
    """Add members to a set."""
    grown = -getsizeof(value)
    for member in members:
        if member not in value:
            grown += text_bytes(member)
            value.add(member)
    return grown + getsizeof(value)


def remove_members(value: set[bytes], members: Sequence[bytes]) -> int:
    """Remove ``members`` from a set. Ignore members that it does not have."""
    grown = -getsizeof(value)
    for member in members:
        if member in value:
            grown -= text_bytes(member)
            value.remove(member)
    return grown + getsizeof(value)
