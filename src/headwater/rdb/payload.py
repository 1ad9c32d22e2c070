"""What a payload of DUMP is wrapped in: a type byte before the value, version and checksum behind it.

    type u8 │ value │ version u16 │ crc64 u64 of all before it

The version says which types a payload may have, not how they are written: a stream of type 19 is the
same in every version. Redis refuses versions above its own; Valkey began anew at 80 and refuses those
of Redis from 12 on. So each type is written with the version that it came with.

Source: Redis, cluster.c (createDumpPayload, verifyDumpPayload); Valkey, rdb.h.
"""

from __future__ import annotations

from headwater.rdb.crc64 import crc64

_FOOTER = 10

REDIS_NEWEST = 14
"""The version of Redis 8.8, with stream type 27."""

VALKEY_VERSIONS = (80, 81)
"""Those of Valkey 9.0 and 9.2; what they have and Redis has not is known by its type."""


class BadPayload(ValueError):
    """The value is not what it should be; the text says how, for whoever debugs."""


class BadEnvelope(ValueError):
    """A payload's version is not known here, or its checksum is another."""


def unwrap(payload: bytes) -> bytes:
    """The type byte and the value of ``payload``.

    >>> unwrap(wrap(b"\\x00\\x01x", version=10))
    b'\\x00\\x01x'

    Raises `BadEnvelope`.
    """
    if len(payload) < _FOOTER:
        raise BadEnvelope(f"{len(payload)} bytes are too few")
    version = int.from_bytes(payload[-10:-8], "little")
    if version > REDIS_NEWEST and version not in VALKEY_VERSIONS:
        raise BadEnvelope(f"version {version} is not known")
    if int.from_bytes(payload[-8:], "little") != crc64(payload[:-8]):
        raise BadEnvelope("the checksum is another")
    return payload[:-_FOOTER]


def wrap(value: bytes, *, version: int) -> bytes:
    """A payload of a type byte and its value."""
    sealed = value + version.to_bytes(2, "little")
    return sealed + crc64(sealed).to_bytes(8, "little")
