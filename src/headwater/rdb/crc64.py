"""CRC-64 with the Jones polynomial: what a payload of DUMP ends with.

    polynomial ad93d23594c935a9, bits reflected, starts at 0, ends as it is

Source: Redis, crc64.c; its check value is that of the example.
"""

from __future__ import annotations

from array import array

_REFLECTED = 0x95AC9329AC4BC9B5
"""The polynomial, bit 0 first."""


def _table() -> array[int]:
    """For each byte, what it does to the checksum."""
    rows = array("Q")
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ _REFLECTED if crc & 1 else crc >> 1
        rows.append(crc)
    return rows


_TABLE = _table()


def crc64(data: bytes) -> int:
    """The checksum of ``data``.

    >>> hex(crc64(b"123456789"))
    '0xe9c6d914c4b8d9ca'
    """
    table = _TABLE
    crc = 0
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc
