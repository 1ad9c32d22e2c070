"""The format of blobs: sealed blocks of entries in a segment.

    blob   ┌──────┬─────┬────────────┬──────┬────────────┬──────┬─────┬────────────┐
           │ head │ ids │ crc32c u32 │ body │ crc32c u32 │ head │ ids │ crc32c u32 │
           └──────┴─────┴────────────┴──────┴────────────┴──────┴─────┴────────────┘
            0      64    │ of head    ↑      │ of the     the second copy, after the body
                         │ and ids    │      │ body
                                      └ BlobPlace.body_offset

    head   mark 4 bytes, copy u8 (1 or 2), codec u8, version u16, origin u32, entries u32, raw bytes u32,
           body bytes u32, ids bytes u32, first id u64 u64, last id u64 u64, crc32c u32; little-endian

Rule 1. Ids and body are opaque here. The body is ``raw bytes`` bytes of entries, compressed by ``codec`` in one
        or more parts (engine/bodies/sealed_block.py). The ids are the data about the entries that the
        engine needs without their bodies.
Rule 2. Each part has a separate checksum, and head and ids are stored twice: damage of one part affects no other.
Rule 3. A checksum starts with seed XOR length, so it covers the length, and no client can send bytes that
        are valid as a part. It is XORed with the mask of the part's position (`checksum.place_mask`): a
        part that is copied elsewhere, in this segment or to another, is not valid there.
Rule 4. A length is checked against the limits before anything is allocated for it.
Rule 5. Zeros are never a blob.
Rule 6. The origin is the stream for which the blob was written. Other streams may refer to it later.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import NamedTuple

import google_crc32c

from headwater.common.limits import MAX_BLOB_IDS_BYTES, MAX_RECORD_GROUP_BYTES
from headwater.engine.bodies.blobs import CHECKSUM_BYTES, BlobPlace
from headwater.engine.bodies.codecs import CODECS
from headwater.errors import JournalDamaged

try:
    import cython
except ImportError:
    from headwater import _cython as cython

if not cython.compiled:  # checksum_c.pxd has it in C
    from headwater.journal.format.checksum import place_mask

BLOB_VERSION = 1

HEAD_BYTES = 64
MARK = b"\x9ehwb"
"""The first bytes of a head. They are not UTF-8, so text never contains them."""
FIRST, SECOND = 1, 2
"""The two copies of head and ids."""

_HEAD = Struct("<4sBBHIIIIIQQQQ")
_CHECKSUM = Struct("<I")
_DOMAIN = 0x5E6
"""Number that makes the keys of segments different from the keys of journal files with the same number."""

assert HEAD_BYTES == _HEAD.size + CHECKSUM_BYTES


class BlobDamaged(JournalDamaged):
    """A part of a blob on disk is damaged: the entries of one id range cannot be read. All other entries can.

    The text names the file, the offset, and stream and ids if they are known.
    """


class BlobHead(NamedTuple):
    """Description of the entries of a blob. ``entries`` counts tombstones too; ``codec`` is an index in
    `headwater.engine.bodies.codecs.CODECS`; ``raw_bytes`` is the size of the body before compression."""

    origin: int
    first_ms: int
    first_seq: int
    last_ms: int
    last_seq: int
    entries: int
    codec: int
    raw_bytes: int

    def __str__(self) -> str:
        first, last = f"{self.first_ms}-{self.first_seq}", f"{self.last_ms}-{self.last_seq}"
        return f"{self.entries} entries from {first} to {last} of stream number {self.origin}"


class FoundHead(NamedTuple):
    """A valid head, the number of its copy, and the place of its blob."""

    head: BlobHead
    copy: int
    place: BlobPlace


@lru_cache(maxsize=256)
def blob_key(segment: int) -> int:
    """Return the key that binds blobs to a segment."""
    return place_mask(_DOMAIN, segment)


def head_bytes(ids: bytes) -> int:
    """Return the size of head and ids with their checksum."""
    return HEAD_BYTES + len(ids) + CHECKSUM_BYTES


# --- writing ------------------------------------------------------------------------------------


def encode_blob(
    head: BlobHead, ids: bytes, body: bytes, *, segment: int, offset: int, seed: int
) -> tuple[bytes, bytes, bytes]:
    """Return the bytes of a blob at ``offset`` of a segment, as three buffers to be written one after the
    other: the first copy of head and ids, the body, and its checksum with the second copy.

    >>> head = BlobHead(7, 1, 0, 9, 0, entries=9, codec=0, raw_bytes=4)
    >>> parts = encode_blob(head, b"ids", b"body", segment=1, offset=64, seed=5)
    >>> place = BlobPlace(1, 64, head_bytes(b"ids"), 4)
    >>> sum(map(len, parts)) == place.size
    True
    >>> decode_ids(parts[0], place, seed=5) == (head, b"ids")
    True
    >>> check_body(parts[1] + parts[2][:4], place, seed=5)
    b'body'
    """
    assert len(ids) <= MAX_BLOB_IDS_BYTES
    assert max(len(body), head.raw_bytes) <= MAX_RECORD_GROUP_BYTES
    key = blob_key(segment)
    place = BlobPlace(segment, offset, head_bytes(ids), len(body))
    first = _encode_head(head, ids, place, FIRST, key, seed)
    second = _encode_head(head, ids, place, SECOND, key, seed)
    checksum = _checksum(body, place.body_offset, key, seed)
    return first, body, _CHECKSUM.pack(checksum) + second


def _encode_head(
    head: BlobHead, ids: bytes, place: BlobPlace, copy: int, key: int, seed: int
) -> bytes:
    offset = place.offset if copy == FIRST else place.second_offset
    fields = _HEAD.pack(
        MARK,
        copy,
        head.codec,
        BLOB_VERSION,
        head.origin,
        head.entries,
        head.raw_bytes,
        place.body_bytes,
        len(ids),
        head.first_ms,
        head.first_seq,
        head.last_ms,
        head.last_seq,
    )
    part = fields + _CHECKSUM.pack(_checksum(fields, offset, key, seed)) + ids
    # The offset of the ids gives this checksum another mask than the head's.
    return part + _CHECKSUM.pack(_checksum(part, offset + HEAD_BYTES, key, seed))


def _checksum(data: bytes, offset: int, key: int, seed: int) -> int:
    """Return the checksum of a part, bound to its position."""
    crc: int = google_crc32c.extend(seed ^ len(data), data)
    return crc ^ place_mask(key, offset)


# --- reading ------------------------------------------------------------------------------------


def find_head(data: bytes, offset: int, *, segment: int, seed: int) -> FoundHead | None:
    """Return the head in the first 64 bytes of ``data``, which begins at ``offset`` of a segment; None if they
    are not a valid head."""
    if len(data) < HEAD_BYTES or not data.startswith(MARK):
        return None
    fields = data[: _HEAD.size]
    (checksum,) = _CHECKSUM.unpack_from(data, _HEAD.size)
    if checksum != _checksum(fields, offset, blob_key(segment), seed):
        return None
    _mark, copy, codec, version, origin, entries, raw, body, ids, *first_and_last = _HEAD.unpack(
        fields
    )
    if version != BLOB_VERSION or codec >= len(CODECS) or ids > MAX_BLOB_IDS_BYTES:
        return None
    if max(raw, body) > MAX_RECORD_GROUP_BYTES:
        return None
    size = HEAD_BYTES + ids + CHECKSUM_BYTES
    start = offset if copy == FIRST else offset - CHECKSUM_BYTES - body - size
    if start < 0:
        return None
    first_ms, first_seq, last_ms, last_seq = first_and_last
    head = BlobHead(origin, first_ms, first_seq, last_ms, last_seq, entries, codec, raw)
    return FoundHead(head, copy, BlobPlace(segment, start, size, body))


def decode_ids(
    data: bytes, place: BlobPlace, *, seed: int, copy: int = FIRST
) -> tuple[BlobHead, bytes]:
    """Return head and ids of a copy, whose bytes are ``data``. Raises `ValueError`, which describes the damage."""
    offset = place.offset if copy == FIRST else place.second_offset
    if len(data) != place.head_bytes:
        raise ValueError(f"{len(data)} bytes, where head and ids have {place.head_bytes}")
    found = find_head(data, offset, segment=place.segment, seed=seed)
    if found is None:
        raise ValueError("no valid head of a blob")
    if found.place != place or found.copy != copy:
        raise ValueError("the head of another blob")
    _verify(data, offset + HEAD_BYTES, blob_key(place.segment), seed)
    return found.head, data[HEAD_BYTES:-CHECKSUM_BYTES]


def check_body(data: bytes, place: BlobPlace, *, seed: int) -> bytes:
    """Return the body; ``data`` is the body and its checksum. Raises `ValueError`, which describes the damage."""
    segment, offset, head_size, body_size = place
    if len(data) != body_size + CHECKSUM_BYTES:
        raise ValueError(f"{len(data)} bytes, where the body has {body_size} and its checksum 4")
    return _verify(data, offset + head_size, blob_key(segment), seed)


def _verify(data: bytes, offset: int, key: int, seed: int) -> bytes:
    """Return ``data`` without the checksum at its end. Raises `ValueError` if the checksum does not fit."""
    size = len(data) - CHECKSUM_BYTES
    part = data[:size]
    checksum = 0
    for at in range(len(data) - 1, size - 1, -1):
        checksum = checksum << 8 | data[at]
    found = _checksum(part, offset, key, seed)
    if found != checksum:
        raise ValueError(f"checksum {checksum:08x}, and the bytes have {found:08x} at this offset")
    return part
