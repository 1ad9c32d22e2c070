"""The sizes that entries would have in Redis's listpacks. Redis's node limits count these bytes.

Compiled modules import `weigh` and `integer_bytes` from ``weights_c.pxd``. Plain Python uses the
equivalents below, as with `headwater.native.memory`.

Source: Redis, listpack.c (lpEncodeGetType, lpEncodeBacklenBytes) and t_stream.c (streamAppendItem).
"""

from __future__ import annotations

from array import array

LISTPACK_FRAME = 7
"""A header of six bytes and an end mark of one."""

CONTENT, PAIRS, NAMES_SIZE, VALUES_SIZE = range(4)
"""Indexes of the words that `weigh` sets."""

WORDS = 4

FIRST_MS, FIRST_SEQ, LAST_MS, LAST_SEQ, TAKEN, LIVE, SIZE = range(7)
"""Indexes of the words of a node (nodes.py): the id with which it was created, the last id added to it, the
number of entries added to it, the number of live ones among them, and its size in bytes."""

NODE_WORDS = 7


def integer_bytes(value: int) -> int:
    """Return the size of a listpack element with the integer ``value``, including backlen."""
    if 0 <= value <= 127:
        return 2
    if -4096 <= value <= 4095:
        return 3
    if -32768 <= value <= 32767:
        return 4
    if -8388608 <= value <= 8388607:
        return 5
    return 6 if -2147483648 <= value <= 2147483647 else 10


def element_bytes(value: bytes | bytearray) -> int:
    """Return the size of a listpack element with ``value``. The element is compact if ``value`` is an integer
    in the form in which Redis prints it.

    >>> element_bytes(b"12"), element_bytes(b"tea")
    (2, 5)
    """
    length = len(value)
    if 0 < length <= 20 and value[-1] <= 57:
        digits = value[1:] if value[0] == 45 else value
        if digits.isdigit() and (digits[0] != 48 or length == 1):
            number = int(value)
            if -(2**63) <= number < 2**63:
                return integer_bytes(number)
    if length < 64:
        return _with_backlen(length + 1)
    return _with_backlen(length + 2 if length < 4096 else length + 5)


def _with_backlen(size: int) -> int:
    """Return the size of an element including the bytes for stepping back over it (backlen). The limits are
    Redis's: most are one less than seven bits a byte would allow."""
    if size < 128:
        return size + 1
    if size < 16383:
        return size + 2
    if size < 2097151:
        return size + 3
    return size + 4 if size < 268435455 else size + 5


def weigh(wire: bytearray, start: int, end: int, names: bytes, found: array[int]) -> bool:
    """Measure an entry's fields and values, canonical RESP from ``start`` to ``end``-1. Return whether its
    field names are ``names``, also RESP.

    ``found`` gets the number of bytes of all fields and values, the number of pairs, and the sizes of the
    names and of the values in a listpack.

    >>> found = array("Q", bytes(8 * WORDS))
    >>> weigh(bytearray(b"$4\\r\\nitem\\r\\n$2\\r\\n12\\r\\n"), 0, 18, b"$4\\r\\nitem\\r\\n", found)
    True
    >>> list(found)
    [6, 1, 6, 2]
    """
    assert 0 <= start <= end <= len(wire)
    content = names_size = values_size = pairs = ahead = 0
    same = True
    at = start
    while at < end:
        stop = wire.index(b"\r", at)
        value = stop + 2 + int(wire[at + 1 : stop])
        names_size += element_bytes(wire[stop + 2 : value])
        content += value - stop - 2
        if same:
            same = names.startswith(wire[at : value + 2], ahead)
            ahead += value + 2 - at
        stop = wire.index(b"\r", value + 3)
        at = stop + 2 + int(wire[value + 3 : stop])
        values_size += element_bytes(wire[stop + 2 : at])
        content += at - stop - 2
        at += 2
        pairs += 1
    assert at == end
    found[CONTENT], found[PAIRS] = content, pairs
    found[NAMES_SIZE], found[VALUES_SIZE] = names_size, values_size
    return same and ahead == len(names) and pairs > 0


def grow(words: array[int], at: int, ms: int, seq: int, found: array[int], same: bool) -> None:
    """Add an entry to the node whose words begin at ``at``. ``found`` has the results of `weigh`; ``same``
    is True if the entry has the field names of the node.

    >>> words = array("Q", (5, 0, 5, 0, 1, 1, 30))
    >>> grow(words, 0, 5, 1, array("Q", (6, 1, 6, 2)), True)
    >>> list(words)
    [5, 0, 5, 1, 2, 2, 40]
    """
    assert 0 <= at <= len(words) - NODE_WORDS
    pairs = found[PAIRS]
    size = 2 + integer_bytes(_signed(ms - words[at + FIRST_MS])) + found[VALUES_SIZE]
    size += integer_bytes(_signed(seq - words[at + FIRST_SEQ]))
    parts = 3 + pairs  # flags, ms and seq of the id, values
    if not same:
        size += found[NAMES_SIZE] + integer_bytes(pairs)
        parts += pairs + 1
    words[at + LAST_MS], words[at + LAST_SEQ] = ms, seq
    words[at + TAKEN] += 1
    words[at + LIVE] += 1
    words[at + SIZE] += size + integer_bytes(parts)


def _signed(difference: int) -> int:
    """Return the difference of two unsigned words as a signed 64-bit number."""
    return (difference + 2**63) % 2**64 - 2**63
