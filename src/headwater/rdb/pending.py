"""The pending entries of a group, read into columns and written from them (image.py).

    16-byte id big-endian │ time i64 little-endian │ count, a length        for each pending entry
    16-byte id                                                              for each entry of a consumer

Everything is processed a limited number of records at a time, because a group may have millions. An *order*
is an array of record numbers.

Source: Redis, rdb.c (rdbSaveStreamPEL, rdbLoadObject).
"""

from __future__ import annotations

import sys
from array import array

from headwater.common.limits import MAX_DELIVERY_COUNT
from headwater.rdb.errors import BadPayload
from headwater.rdb.image import NOBODY, UNCLAIMED, NodeImage, PendingImage
from headwater.rdb.lengths import ID_BYTES, ByteReader, put_length

try:
    import cython
except ImportError:
    from headwater import _cython as cython

if not cython.compiled:  # memory_c.pxd has them in C
    from headwater.native.memory import (
        offset_at,
        push_offset,
        push_word,
        put_u8,
        put_u64,
        set_offset,
        word_at,
    )

_WORDS = 4
_FIXED_BYTES = 24
_SIGN = 2**63


# --- reading --------------------------------------------------------------------------------------


def read(reader: ByteReader, pending: PendingImage, count: int) -> None:
    """Append the next ``count`` entries to ``pending``, with the owner `UNCLAIMED`. Raises `BadPayload`."""
    data, words, owners = reader.data, pending.words, pending.owners
    size = len(words)
    last_ms = words[size - 4] if size else 0
    last_seq = words[size - 3] if size else 0
    first = not size
    at, limit = reader.at, reader.end
    for _ in range(count):
        if at + _FIXED_BYTES >= limit:
            raise BadPayload(f"{_FIXED_BYTES + 1} bytes expected, {limit - at} left")
        ms, seq = _big_endian(data, at), _big_endian(data, at + 8)
        if not first and (ms < last_ms or (ms == last_ms and seq <= last_seq)):
            raise BadPayload("pending ids are not ascending")
        time = _little_endian(data, at + 16)
        if time >= _SIGN:
            raise BadPayload(f"an entry has the delivery time {time - 2 * _SIGN}")
        deliveries = data[at + _FIXED_BYTES]
        at += _FIXED_BYTES + 1
        if deliveries >= 0x40:
            reader.at = at - 1
            deliveries, at = min(reader.length(), MAX_DELIVERY_COUNT), reader.at
        push_word(words, ms)
        push_word(words, seq)
        push_word(words, time)
        push_word(words, deliveries)
        push_offset(owners, UNCLAIMED)
        last_ms, last_seq, first = ms, seq, False
    reader.at = at


def read_ids(reader: ByteReader, count: int) -> array[int]:
    """Return the next ``count`` ids of 16 bytes, two words each. Raises `BadPayload`."""
    ids = array("Q")
    ids.frombytes(reader.take(ID_BYTES * count))
    if sys.byteorder == "little":
        ids.byteswap()
    return ids


def claim(pending: PendingImage, ids: array[int], owner: int) -> None:
    """Set the owner of these entries. Raises `BadPayload` if one is not pending or already has an owner."""
    words, owners = pending.words, pending.owners
    at = 0
    for place in range(0, len(ids), 2):
        ms, seq = word_at(ids, place), word_at(ids, place + 1)
        at = _find(words, at, ms, seq)
        if at < 0 or offset_at(owners, at) != UNCLAIMED:
            raise BadPayload(f"{(ms, seq)} is not pending, or has another owner")
        set_offset(owners, at, owner)
        at += 1


def unclaimed(pending: PendingImage) -> int:
    """Return the number of entries without a known owner."""
    owners, found = pending.owners, 0
    for at in range(len(owners)):
        found += offset_at(owners, at) == UNCLAIMED
    return found


def _find(words: array[int], near: int, ms: int, seq: int) -> int:
    """Return the number of the record of ``ms-seq``, or -1 if it does not exist. The search begins at ``near``."""
    low, high = 0, len(words) // _WORDS
    middle = near
    while low < high:
        if not low <= middle < high:
            middle = (low + high) // 2
        found = word_at(words, _WORDS * middle)
        found_seq = word_at(words, _WORDS * middle + 1)
        if found == ms and found_seq == seq:
            return middle
        if found < ms or (found == ms and found_seq < seq):
            low = middle + 1
        else:
            high = middle
        middle = -1
    return -1


def _big_endian(data: bytearray, at: int) -> int:
    number = 0
    for place in range(at, at + 8):
        number = number << 8 | data[place]
    return number


def _little_endian(data: bytearray, at: int) -> int:
    number = 0
    for place in range(at + 7, at - 1, -1):
        number = number << 8 | data[place]
    return number


# --- writing --------------------------------------------------------------------------------------


def write(out: bytearray, pending: PendingImage, first: int, end: int) -> None:
    """Write the entries number ``first`` to ``end``-1."""
    words = pending.words
    for number in range(first, end):
        at = _WORDS * number
        _put_big_endian(out, word_at(words, at))
        _put_big_endian(out, word_at(words, at + 1))
        put_u64(out, word_at(words, at + 2))
        deliveries = word_at(words, at + 3)
        if deliveries < 0x40:
            put_u8(out, deliveries)
        else:
            put_length(out, deliveries)


def write_ids(
    out: bytearray, pending: PendingImage, order: array[int], first: int, end: int
) -> None:
    """Write the ids of the records at ``first`` to ``end``-1 of an order."""
    words = pending.words
    for place in range(first, end):
        at = _WORDS * offset_at(order, place)
        _put_big_endian(out, word_at(words, at))
        _put_big_endian(out, word_at(words, at + 1))


def write_words(out: bytearray, ids: array[int]) -> None:
    """Write ids of two words each."""
    for at in range(len(ids)):
        _put_big_endian(out, word_at(ids, at))


def _put_big_endian(out: bytearray, number: int) -> None:
    for shift in range(56, -1, -8):
        put_u8(out, number >> shift & 0xFF)


# --- orders ---------------------------------------------------------------------------------------


def of_each(pending: PendingImage, consumers: int) -> tuple[array[int], array[int]]:
    """Group the records by owner, ascending within each. Return the place in the order where each owner's records
    begin, indexed by owner number (they end where the next owner's begin), and the order."""
    owners = pending.owners
    begins = array("I", bytes(4 * (consumers + 3)))
    order = array("I", bytes(4 * len(owners)))
    for at in range(len(owners)):
        owner = offset_at(owners, at) + 2
        set_offset(begins, owner, offset_at(begins, owner) + 1)
    for owner in range(2, consumers + 3):
        set_offset(begins, owner, offset_at(begins, owner) + offset_at(begins, owner - 1))
    for at in range(len(owners)):
        owner = offset_at(owners, at) + 1
        place = offset_at(begins, owner)
        set_offset(order, place, at)
        set_offset(begins, owner, place + 1)
    return begins, order


def owned(pending: PendingImage, first: int, end: int) -> array[int]:
    """Return an order of the records among ``first`` to ``end``-1 that a consumer owns: by time and, for the
    same time, by id."""
    owners, words, order = pending.owners, pending.words, array("I")
    sound, last = True, 0
    for number in range(first, end):
        if offset_at(owners, number) != NOBODY:
            push_offset(order, number)
            time = word_at(words, _WORDS * number + 2)
            sound = sound and time >= last
            last = time
    if sound:
        return order
    times = [words[_WORDS * number + 2] for number in order]
    return array("I", [number for _, number in sorted(zip(times, order, strict=True))])


def merged(pending: PendingImage, one: array[int], other: array[int]) -> array[int]:
    """Merge two orders by time. Records of ``one`` precede those of ``other`` with the same time."""
    words = pending.words
    if (
        not one
        or not other
        or (words[_WORDS * one[len(one) - 1] + 2] <= words[_WORDS * other[0] + 2])
    ):
        return one + other
    order = array("I", bytes(4 * (len(one) + len(other))))
    at, at_other = 0, 0
    count, other_count = len(one), len(other)
    for place in range(count + other_count):
        if at_other == other_count or (
            at < count
            and word_at(words, _WORDS * offset_at(one, at) + 2)
            <= word_at(words, _WORDS * offset_at(other, at_other) + 2)
        ):
            set_offset(order, place, offset_at(one, at))
            at += 1
        else:
            set_offset(order, place, offset_at(other, at_other))
            at_other += 1
    return order


def run_end(pending: PendingImage, order: array[int], first: int, most: int) -> int:
    """Return the end of the run of records with the same owner that begins at ``first`` of an order. The run has
    at most ``most`` records."""
    owners, at = pending.owners, first + 1
    owner, limit = offset_at(owners, offset_at(order, first)), min(len(order), first + most)
    while at < limit and offset_at(owners, offset_at(order, at)) == owner:
        at += 1
    return at


def records(pending: PendingImage, order: array[int], first: int, end: int) -> array[int]:
    """Return the four words of each record at ``first`` to ``end``-1 of an order."""
    words, found = pending.words, array("Q")
    for place in range(first, end):
        at = _WORDS * offset_at(order, place)
        for word in range(at, at + _WORDS):
            push_word(found, word_at(words, word))
    return found


def of_ids(pending: PendingImage, ids: array[int]) -> array[int]:
    """Return the four words of each of these entries, in this order. All of them must be pending."""
    order, near = array("I"), 0
    for place in range(0, len(ids), 2):
        near = _find(pending.words, near, word_at(ids, place), word_at(ids, place + 1))
        push_offset(order, near)
        near += 1
    return records(pending, order, 0, len(order))


def pass_live(pending: PendingImage, at: int, node: NodeImage) -> tuple[int, bool]:
    """Skip records of live entries of ``node``, from record number ``at`` downwards. Return the number of the
    first other record, or -1, and whether its id is at or after the node's first entry. If so, no earlier
    node contains its entry either."""
    words, ids, dead = pending.words, node.ids, node.dead
    entry = len(dead) - 1
    while at >= 0 and entry >= 0:
        ms, seq = word_at(words, _WORDS * at), word_at(words, _WORDS * at + 1)
        entry_ms, entry_seq = word_at(ids, 2 * entry), word_at(ids, 2 * entry + 1)
        if entry_ms > ms or (entry_ms == ms and entry_seq > seq):
            entry -= 1
        elif entry_ms == ms and entry_seq == seq and not dead[entry]:
            entry -= 1
            at -= 1
        else:
            return at, True
    return at, False
