"""Finds a record with one flipped bit: it was written completely, so it is damage and not a torn tail.

A checksum is linear: flipping a bit of the record changes it by a value that depends only on the number of bits
that follow. So one pass over the possible values finds the bit. A flip in the length changes the end of the record;
the few possible lengths are tried.

Rule 1. Only records of at most `FLIPPED_RECORD_BYTES` are judged. A torn record looks like a flipped one in
        less than 1 of 100,000 cases.
Rule 2. A write that was torn leaves zeros, from the start, to the end, or in whole sectors of the disk. If
        the flip is a bit that such zeros would have lost, it counts as torn.
"""

from __future__ import annotations

from collections.abc import Iterator

from headwater.journal.format.checksum import place_mask
from headwater.journal.format.records import GROUP_HEADER_BYTES, checksum_of

FLIPPED_RECORD_BYTES = 4096
_SECTOR_BYTES = 512
_POLYNOMIAL = 0x82F63B78
_LENGTH_BITS = 32
_CHECKSUM_BYTE = 4
_COVERED_BYTE = 8


def flipped_bit(
    data: memoryview, offset: int, *, seed: int, turn: int, key: int | None
) -> tuple[int, int] | None:
    """Return the one bit whose flip makes the bytes at ``offset`` a valid group: the offset of its byte, and its
    number in the byte. None if no bit does, or if a torn write explains the difference.

    The arguments are those of `records.read_groups`.
    """
    if offset + GROUP_HEADER_BYTES >= len(data):
        return None
    mask = 0 if key is None else place_mask(key, offset)
    for at, bit, end in _candidates(data, offset, seed, mask):
        group_turn = int.from_bytes(data[offset + 8 : offset + 16], "little")
        if offset + 8 <= at < offset + 16:
            group_turn ^= 1 << (8 * (at - offset - 8) + bit)
        if group_turn >= turn and not _is_torn(data, at, bit, offset, end):
            return at, bit
    return None


def _candidates(
    data: memoryview, offset: int, seed: int, mask: int
) -> Iterator[tuple[int, int, int]]:
    """Yield each bit whose flip makes the checksum fit, and the end that the record has then."""
    length = int.from_bytes(data[offset : offset + 4], "little")
    stored = int.from_bytes(data[offset + 4 : offset + 8], "little") ^ mask
    for bit in range(_LENGTH_BITS):
        end = _end(data, offset, length ^ 1 << bit)
        if end and _checksum(data, offset, end, seed) == stored:
            yield offset + bit // 8, bit % 8, end
    end = _end(data, offset, length)
    if not end:
        return
    wrong = _checksum(data, offset, end, seed) ^ stored
    if wrong.bit_count() == 1:
        bit = wrong.bit_length() - 1
        yield offset + _CHECKSUM_BYTE + bit // 8, bit % 8, end
    change = _POLYNOMIAL
    for after in range(8 * (end - offset - _COVERED_BYTE)):
        if change == wrong:
            yield end - 1 - after // 8, 7 - after % 8, end
        change = change >> 1 ^ (_POLYNOMIAL if change & 1 else 0)


def _end(data: memoryview, offset: int, length: int) -> int:
    """Return the end of a record of this length, or 0 if it is not judged (rule 1)."""
    end = offset + GROUP_HEADER_BYTES + length
    fits = 0 < length and end - offset <= FLIPPED_RECORD_BYTES and end <= len(data)
    return end if fits else 0


def _checksum(data: memoryview, offset: int, end: int, seed: int) -> int:
    length = end - offset - GROUP_HEADER_BYTES
    return checksum_of(data[offset + _COVERED_BYTE : end], seed ^ length)


def _is_torn(data: memoryview, at: int, bit: int, offset: int, end: int) -> bool:
    """Return whether the flip counts as torn (rule 2) in the record from ``offset`` to ``end``."""
    if data[at] != 0 or data[at] >> bit & 1:
        return False
    sector = at - at % _SECTOR_BYTES
    first, last = max(offset, sector), min(end, sector + _SECTOR_BYTES)
    return not (any(data[offset:at]) and any(data[at:end]) and any(data[first:last]))
