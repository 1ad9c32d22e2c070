"""Reading little-endian values from a memoryview of bytes, which may be read-only.

Compiled modules import these functions from ``views_c.pxd``. Plain Python uses the equivalents below, as with
``memory.py``. Positions must exist; the C functions raise ``IndexError`` otherwise.
"""

from __future__ import annotations

import sys
from array import array


def view_u8(source: memoryview, at: int) -> int:
    """Return the byte at ``at``."""
    assert at >= 0  # the view checks the upper bound
    return source[at]


def view_u32(source: memoryview, at: int) -> int:
    """Return the unsigned number in the four bytes at ``at``."""
    assert 0 <= at <= len(source) - 4
    return int.from_bytes(source[at : at + 4], "little")


def view_u64(source: memoryview, at: int) -> int:
    """Return the unsigned number in the eight bytes at ``at``."""
    assert 0 <= at <= len(source) - 8
    return int.from_bytes(source[at : at + 8], "little")


def view_i64(source: memoryview, at: int) -> int:
    """Return the signed number in the eight bytes at ``at``."""
    assert 0 <= at <= len(source) - 8
    return int.from_bytes(source[at : at + 8], "little", signed=True)


def cut_view(source: memoryview, start: int, end: int) -> bytes:
    """Return the bytes from ``start`` to ``end``-1."""
    assert 0 <= start <= end <= len(source)
    return bytes(source[start:end])


def append_view(target: bytearray, source: memoryview, start: int, end: int) -> None:
    """Append the bytes of ``source`` from ``start`` to ``end``-1 to ``target``."""
    assert 0 <= start <= end <= len(source)
    target += source[start:end]


def view_words(like: array[int], source: memoryview, at: int, count: int) -> array[int]:
    """Return the ``count`` words from the position ``at`` on, as an array of the type of ``like``.

    >>> list(view_words(array("Q"), memoryview(bytes((0, 1, 0, 0, 0, 0, 0, 0, 0))), 1, 1))
    [1]
    """
    assert 0 <= at <= len(source) - 8 * count
    found = array(like.typecode)
    found.frombytes(source[at : at + 8 * count])
    if sys.byteorder == "big":
        found.byteswap()
    return found
