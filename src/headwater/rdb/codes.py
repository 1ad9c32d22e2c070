"""CRC-64 and LZF: the checksum of a DUMP payload, and the compression of its strings.

A payload ends with a CRC-64 with the Jones polynomial:

    polynomial ad93d23594c935a9, bits reflected, initial value 0, no final XOR

Redis and Valkey compress long strings in payloads with LZF. Headwater reads such strings, but writes strings
uncompressed, which every server reads. An LZF string is a sequence of literals and back-references:

    000lllll                    l+1 bytes follow uncompressed
    lllooooo oooooooo           l+2 bytes from o+1 bytes back (l 1 to 6)
    111ooooo llllllll oooooooo  l+9 bytes from o+1 bytes back

Sources: Redis, crc64.c, whose check value is in the example of `crc64`; LibLZF, lzf_d.c.
"""

from __future__ import annotations

from array import array

from headwater.rdb.errors import BadPayload

try:
    import cython
except ImportError:
    from headwater import _cython as cython

if not cython.compiled:  # memory_c.pxd has them in C
    from headwater.native.memory import cut, put_part

_REFLECTED = 0x95AC9329AC4BC9B5
"""The polynomial, bit 0 first."""


def _table() -> array[int]:
    """Return the checksum of each single byte, from which `crc64` computes the checksum of many."""
    rows = array("Q")
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ _REFLECTED if crc & 1 else crc >> 1
        rows.append(crc)
    return rows


_TABLE = _table()


def crc64(data: bytearray, start: int, end: int, crc: int = 0) -> int:
    """Return the checksum of ``data[start:end]``. ``crc`` is the checksum of the bytes before it.

    >>> hex(crc64(bytearray(b"123456789"), 0, 9))
    '0xe9c6d914c4b8d9ca'
    """
    table = _TABLE
    for at in range(start, end):
        crc = table[(crc ^ data[at]) & 0xFF] ^ (crc >> 8)
    return crc


MOST_GROWTH = 88
"""Maximum growth of a string by decompression: three bytes become at most 264."""


def decompress(data: bytearray, start: int, end: int, size: int) -> bytes:
    """Return the ``size`` bytes that result from decompressing the LZF bytes of ``data`` from ``start`` to ``end``-1.

    >>> decompress(bytearray.fromhex("01 61 61 c0 01"), 0, 5, 10)
    b'aaaaaaaaaa'

    Raises `BadPayload` if the compressed bytes are malformed or the result does not have ``size`` bytes. Allocates
    2 * ``size`` bytes at most, and nothing if ``size`` is more than `MOST_GROWTH` times the compressed size.
    """
    if size > MOST_GROWTH * (end - start):
        raise BadPayload(f"{end - start} compressed bytes cannot be {size} bytes")
    made = bytearray(size)
    at, done = start, 0
    while at < end:
        control = data[at]
        at += 1
        if control < 32:
            length = control + 1
            if length > end - at:
                raise BadPayload("a compressed string ends within a literal")
            if length > size - done:
                raise BadPayload(f"a compressed string is longer than its {size} bytes")
            put_part(made, done, data, at, at + length)
            at += length
        else:
            length = control >> 5
            if at + (2 if length == 7 else 1) > end:
                raise BadPayload("a compressed string ends within a reference")
            if length == 7:
                length += data[at]
                at += 1
            length += 2
            first = done - ((control & 31) << 8 | data[at]) - 1
            at += 1
            if first < 0:
                raise BadPayload("a compressed string refers to bytes before its start")
            if length > size - done:
                raise BadPayload(f"a compressed string is longer than its {size} bytes")
            _repeat(made, first, done, length)
        done += length
    if done != size:
        raise BadPayload(f"a compressed string decompresses to {done} bytes instead of {size}")
    return cut(made, 0, size)


def _repeat(made: bytearray, first: int, at: int, length: int) -> None:
    """Copy ``length`` bytes within ``made`` from ``first`` to ``at``, which is after ``first``. If the ranges overlap,
    the bytes between the two positions are repeated, as LZF requires."""
    run = at - first
    while length > 0:
        run = min(run, length)
        put_part(made, at, made, first, first + run)
        at += run
        length -= run
