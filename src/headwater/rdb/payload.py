"""What a payload of DUMP is wrapped in: a type byte before the value, version and checksum behind it.

    type u8 │ value │ version u16 │ crc64 u64 of all before it

The version says which types a payload may have, not how they are written: a stream of type 19 is the
same in every version. Redis refuses versions above its own; Valkey began anew at 80 and refuses those
of Redis from 12 on. So each type is written with the version that it came with.

Source: Redis, cluster.c (createDumpPayload, verifyDumpPayload); Valkey, rdb.h.
"""

from __future__ import annotations

from headwater.rdb.codes import crc64
from headwater.rdb.errors import BadEnvelope
from headwater.steps import Steps

_FOOTER = 10

_AT_ONCE = 512 * 1024
"""Bytes of one step of a checksum, about a millisecond."""

REDIS_NEWEST = 14
"""The version of Redis 8.8, with stream type 27."""

VALKEY_VERSIONS = (80, 81)
"""Those of Valkey 9.0 and 9.2; what they have and Redis has not is known by its type."""


def unwrap(data: bytearray, start: int, end: int) -> Steps[int]:
    """The end of the value in the payload that stands from ``start`` to ``end``-1 of ``data``; its type
    byte stands at ``start``.

    Raises `BadEnvelope`.
    """
    if end - start < _FOOTER:
        raise BadEnvelope(f"{end - start} bytes are too few")
    version = int.from_bytes(data[end - 10 : end - 8], "little")
    if version > REDIS_NEWEST and version not in VALKEY_VERSIONS:
        raise BadEnvelope(f"version {version} is not known")
    checksum = yield from _checksum(data, start, end - 8)
    if int.from_bytes(data[end - 8 : end], "little") != checksum:
        raise BadEnvelope("the checksum is another")
    return end - _FOOTER


def wrap(value: bytearray, *, version: int) -> Steps[None]:
    """Make a payload of a type byte and its value."""
    value += version.to_bytes(2, "little")
    checksum = yield from _checksum(value, 0, len(value))
    value += checksum.to_bytes(8, "little")


def _checksum(data: bytearray, start: int, end: int) -> Steps[int]:
    crc = 0
    for at in range(start, end, _AT_ONCE):
        crc = crc64(data, at, min(at + _AT_ONCE, end), crc)
        yield
    return crc
