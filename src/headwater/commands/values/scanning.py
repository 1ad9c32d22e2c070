"""HSCAN and SSCAN: the fields of a hash or the members of a set, a part in each call.

A small value is returned whole, as in Redis. The names of a large one are divided into parts by their hashes, which do
not change while this process runs. A cursor is the number of the next part and, in its low bits, the logarithm of the
number of parts. A name that exists from the first call to the last is returned exactly once, even if others are
added or removed meanwhile. Each call examines every name: 60 ms for a million fields, 0.2 s for a million members.
Therefore the number of calls is bounded for every COUNT.

Source: Redis's command pages and db.c.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, TypeVar

from headwater.commands.call import Call
from headwater.commands.globs import select
from headwater.commands.scan import ScanOptions, read_cursor
from headwater.commands.values.typed import reading

T = TypeVar("T", dict[bytes, bytes], set[bytes])

_WHOLE: Final = 512
"""Approximate minimum number of names in a part. A million names in parts of 10 would take 100,000 calls."""

_PARTS: Final = 256
"""Half of the maximum number of parts of a value."""

_BITS: Final = 6
_MOST_BITS: Final = 1 << _BITS


def hscan(call: Call) -> None:
    """HSCAN key cursor [MATCH pattern] [COUNT n] [NOVALUES] → [next cursor, fields and their values]."""
    _scan(call, dict, b"hash")


def sscan(call: Call) -> None:
    """SSCAN key cursor [MATCH pattern] [COUNT n] → [next cursor, members]."""
    _scan(call, set, b"set")


def _scan(call: Call, kind: type[T], name: bytes) -> None:
    cursor = read_cursor(call, 2)
    value: Any = reading(call, call.arguments.bytes(1), kind)
    found: list[bytes] = []
    if value is None:
        cursor = 0  # without a key the options are not parsed
    else:
        options = ScanOptions(call, 3, name)
        cursor, found = part_of(value, cursor, options.count)
        found = select(options.pattern, found)
        if isinstance(value, dict) and options.with_values:
            found = [text for field in found for text in (field, value[field])]
    call.reply.array(2)
    call.reply.bulk(b"%d" % cursor)
    call.reply.bulks(found)


def part_of(names: Collection[bytes], cursor: int, count: int) -> tuple[int, list[bytes]]:
    """Return the next cursor (0 after the last part) and the names in the part at ``cursor``.

    >>> part_of([b"a", b"b"], 0, 10)
    (0, [b'a', b'b'])
    """
    part, bits = cursor >> _BITS, cursor % _MOST_BITS
    if not cursor:
        least = max(count, _WHOLE, len(names) // _PARTS)
        bits = ((len(names) - 1) // least).bit_length()
    mask = (1 << bits) - 1
    found = [name for name in names if hash(name) & mask == part]
    return (0 if part >= mask else (part + 1) << _BITS | bits), found
