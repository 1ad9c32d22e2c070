"""The envelope of a DUMP payload: a type byte before the value, version and checksum after it.

    type u8 │ value │ version u16 │ crc64 u64 of all before it

The version determines the types that a payload may have, not their encoding: a stream of type 19 is the same
in every version. Redis refuses versions above its own. Valkey restarted at 80 and refuses Redis's versions
from 12 on. Each type is therefore written with the version that introduced it.

Source: Redis, cluster.c (createDumpPayload, verifyDumpPayload); Valkey, rdb.h.
"""

from __future__ import annotations

from headwater.common.steps import Steps
from headwater.rdb.codes import crc64
from headwater.rdb.errors import BadEnvelope

_FOOTER = 10

_AT_ONCE = 512 * 1024
"""Maximum number of bytes in one step of a checksum. A step takes about a millisecond."""

REDIS_NEWEST = 14
"""The version of Redis 8.8, with stream type 27."""

VALKEY_VERSIONS = (80, 81)
"""The versions of Valkey 9.0 and 9.2. Values that Redis does not have are recognised by their type."""


def unwrap(data: bytearray, start: int, end: int) -> Steps[int]:
    """Check the payload from ``start`` to ``end``-1 of ``data`` and return the end of its value. The type
    byte is at ``start``.

    Raises `BadEnvelope`.
    """
    if end - start < _FOOTER:
        raise BadEnvelope(f"{end - start} bytes are too few for a payload")
    version = int.from_bytes(data[end - 10 : end - 8], "little")
    if version > REDIS_NEWEST and version not in VALKEY_VERSIONS:
        raise BadEnvelope(f"version {version} is unknown")
    checksum = yield from _checksum(data, start, end - 8)
    if int.from_bytes(data[end - 8 : end], "little") != checksum:
        raise BadEnvelope("the checksum is wrong")
    return end - _FOOTER


def wrap(value: bytearray, *, version: int) -> Steps[None]:
    """Append version and checksum to ``value``, which must be a type byte and the value after it."""
    value += version.to_bytes(2, "little")
    checksum = yield from _checksum(value, 0, len(value))
    value += checksum.to_bytes(8, "little")


def _checksum(data: bytearray, start: int, end: int) -> Steps[int]:
    crc = 0
    for at in range(start, end, _AT_ONCE):
        crc = crc64(data, at, min(at + _AT_ONCE, end), crc)
        yield
    return crc
