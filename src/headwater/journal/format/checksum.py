"""CRC-32C of bytes in a buffer, the mask that binds a checksum to its position in the journal, and what binding counts.

Compiled modules import these functions from ``checksum_c.pxd``: for a group of a hundred bytes, calling a
Python function would cost ten times as much as the checksum. Plain Python uses the equivalents below.

Sources: RFC 3720, appendix B.4, for the polynomial; C. Wellons, "Prospecting for Hash Functions"
(2018), for the mixing function.
"""

from __future__ import annotations

import google_crc32c

ENGINE_KINDS = 0x10
"""The first kind of fact that belongs to the engine."""
LOCAL_KIND = 0x29
"""The fact ``stored``, which says in which file of this directory bodies are. It has its own group. It does not change
what the store contains, and each replica writes its own."""


def extend(crc: int, source: bytearray, start: int, end: int) -> int:
    """Return the checksum ``crc`` continued with the bytes from ``start`` to ``end``-1.

    >>> hex(extend(0, bytearray(b"x123456789"), 1, 10))
    '0xe3069283'
    """
    assert 0 <= start <= end <= len(source)
    found: int = google_crc32c.extend(crc, bytes(source[start:end]))
    return found


def extend_view(crc: int, source: memoryview, start: int, end: int) -> int:
    """Return the same as `extend`, for a memoryview of a file's content."""
    assert 0 <= start <= end <= len(source)
    found: int = google_crc32c.extend(crc, bytes(source[start:end]))
    return found


def place_mask(key: int, offset: int) -> int:
    """Return the 32-bit mask for the checksum of a group at ``offset`` of the file with this key.

    It is a one-to-one function of the offset's low 32 bits: no two positions of a file have the same mask.

    >>> hex(place_mask(0, 1)), hex(place_mask(0, 2))
    ('0x6d3fa73', '0xda7f4e7')
    """
    mixed = (key ^ offset) & 0xFFFFFFFF
    mixed = (mixed ^ mixed >> 16) * 0x21F0AAAD & 0xFFFFFFFF
    mixed = (mixed ^ mixed >> 15) * 0xD35A2D97 & 0xFFFFFFFF
    return mixed ^ mixed >> 15


def bind_groups(target: bytearray, start: int, end: int, key: int, offset: int) -> int:
    """Bind the sealed groups in ``target[start:end]`` to the position at which they will be written:
    ``offset`` of the file with this key. Binding them a second time removes the binding.

    Return the number of bytes by which they move the offset of the store (`headwater.journal.format.records`): those of
    their facts, unless these are the journal's own or `LOCAL_KIND`.
    """
    assert 0 <= start <= end <= len(target)
    counted = 0
    while start < end:
        length = int.from_bytes(target[start : start + 4], "little")
        stored = int.from_bytes(target[start + 4 : start + 8], "little")
        bound = stored ^ place_mask(key, offset)
        target[start + 4 : start + 8] = bound.to_bytes(4, "little")
        if target[start + 24] >= ENGINE_KINDS and target[start + 24] != LOCAL_KIND:
            counted += length
        start += 24 + length
        offset += 24 + length
    assert start == end, "the bytes do not end with a complete group"
    return counted
