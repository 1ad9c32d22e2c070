"""CRC-32C of bytes within a buffer, as the journal's groups have it.

Compiled modules take `extend` from ``checksum_c.pxd``, where a group of a hundred bytes costs what the
bytes cost and not ten times as much for the call; plain Python takes the twin below.

Source: RFC 3720, appendix B.4, for the polynomial.
"""

from __future__ import annotations

import google_crc32c


def extend(crc: int, source: bytearray, start: int, end: int) -> int:
    """The checksum of what ``crc`` was of, followed by the bytes from ``start`` to ``end``-1.

    >>> hex(extend(0, bytearray(b"x123456789"), 1, 10))
    '0xe3069283'
    """
    assert 0 <= start <= end <= len(source)
    found: int = google_crc32c.extend(crc, bytes(source[start:end]))
    return found
