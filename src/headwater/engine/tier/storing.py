"""Applies the fact ``stored``: entries of a stream are in a blob.

    before    │ block        │ block       │ block        │         of any form
                    first ◀──── the record ────▶ last
    after     │ b │ stored block               │ b        │         b: closed, in memory

Rule 1. A record names the entries by id: the entries that were live in [first, last] when it was written are
        in the blob. A store that was recovered may have other blocks than the store that wrote it.
Rule 2. If the record fits a block exactly, that block becomes stored and keeps its tombstones. Otherwise
        the blocks are cut at the ends of the range, and the ids of the blob are read.
Rule 3. If the ids cannot be read, or a live entry is not among them, nothing is changed: the entries stay
        in memory. `StoredRecord` has a checksum of the ids, so that another blob is not mistaken for this one. The
        failure is reported if the entries still exist at the end of the recovery (`UnreadBlob`): later records may
        delete them, and then their segment may have been removed.
Rule 4. A record in a fact is: first id, last id, entries u32, codec u8, moved u8, raw bytes u64, segment u64,
        offset u64, head bytes u32, body bytes u32, checksum u32.
Rule 5. Ids can be used again after XSETID. Therefore ``last`` is the last id that was live, not the last
        one in the blob, and only a blob that was moved (compacted) is replaced for all blocks that share it.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from struct import Struct
from typing import Any, NamedTuple
from zlib import crc32

from headwater.common.limits import MAX_RECORD_GROUP_BYTES
from headwater.engine.bodies.blobs import Blob, BlobPlace
from headwater.engine.bodies.codecs import CODECS, check_installed
from headwater.engine.bodies.sealed_block import SealedBlock, unpacked_ids
from headwater.engine.entries.entry_block import EntryBlock
from headwater.engine.entries.entry_log import EntryLog
from headwater.errors import JournalDamaged

ID = tuple[int, int]

LEAST_ENTRY_BYTES = 16
"""Lower bound for the size of an entry, which begins like ``*2 CR LF $3 CR LF 0-1 CR LF *2 CR LF``."""


_RECORD = Struct("<QQQQIBBQQQIII")
RECORD_BYTES = _RECORD.size


class StoredRecord(NamedTuple):
    """Content of the fact ``stored``. ``first`` is the first id of the blob, ``last`` the last one that was
    live. ``entries`` counts the ids of the blob, ``raw_bytes`` the bytes of its body before compression."""

    first: ID
    last: ID
    entries: int
    codec: str
    moved: bool
    raw_bytes: int
    place: BlobPlace
    checksum: int
    """The CRC-32 of the packed ids."""


class UnreadBlob:
    """A blob whose ids could not be read or do not match: its entries stayed in memory. ``problem`` says why."""

    def __init__(self, record: StoredRecord, sid: int, problem: str) -> None:
        self.problem = problem
        self._first = record.first
        self._last = {sid: record.last}
        """The stream and its copies, each with the last id that may be one of these entries."""

    def copied(self, source: int | None, sid: int) -> None:
        """Note that stream number ``sid`` is a copy of stream number ``source``."""
        if source is not None and source in self._last:
            self._last[sid] = self._last[source]

    def ends_at(self, sid: int, last: ID) -> None:
        """Note that a stream has no entry after ``last`` (rule 5)."""
        if sid in self._last:
            self._last[sid] = min(self._last[sid], last)

    def is_moved(self, record: StoredRecord, sid: int) -> bool:
        """Return whether a record of a move concerns this blob. If so, it was intact and the old place is free."""
        return sid in self._last and record.first == self._first

    def matters(self, streams: Mapping[int, Any]) -> bool:
        """Return whether an entry of the blob still exists and is not on disk elsewhere. ``streams`` are the
        streams of the keyspace."""
        return any(
            sid in streams and _in_memory(streams[sid].log, self._first, last)
            for sid, last in self._last.items()
        )


def _in_memory(log: EntryLog, first: ID, last: ID) -> bool:
    """Return whether an entry of these ids is in a block that is not stored."""
    for at in range(log.find_block(*first), len(log.blocks)):
        block = log.blocks[at]
        if block.first() > last:
            break
        if block.packed is None or block.packed.blob is None:
            inside = range(block.lower_bound(*first), block.behind(*last))
            if any(block.lives(index) for index in inside):
                return True
    return False


def record_of(block: EntryBlock, *, moved: bool = False) -> StoredRecord:
    """Return the record of a stored block."""
    packed, ids = block.packed, block.known_ids()
    assert packed is not None
    assert packed.blob is not None
    first, last = (ids[0], ids[1]), (block.last_ms, block.last_seq)
    place, checksum = packed.blob.place(), crc32(packed.ids)
    return StoredRecord(
        first, last, packed.count, packed.codec, moved, packed.size, place, checksum
    )


def encode_record(record: StoredRecord) -> bytes:
    """Return the bytes of a record in a fact."""
    return _RECORD.pack(
        *record.first,
        *record.last,
        record.entries,
        CODECS.index(record.codec),
        record.moved,
        record.raw_bytes,
        *record.place,
        record.checksum,
    )


def decode_record(data: bytes) -> StoredRecord:
    """Return the record that `encode_record` encoded. Raises the errors of `checked_blob`."""
    ms, seq, last_ms, last_seq, entries, codec, moved, raw_bytes, *place, checksum = _RECORD.unpack(
        data
    )
    name = checked_blob(codec, entries, raw_bytes)
    first, last = (ms, seq), (last_ms, last_seq)
    return StoredRecord(
        first, last, entries, name, bool(moved), raw_bytes, BlobPlace(*place), checksum
    )


def place_in(data: bytes) -> BlobPlace:
    """Return the place in a record that `encode_record` encoded. Its codec need not be installed."""
    *_, segment, offset, head_bytes, body_bytes, _checksum = _RECORD.unpack(data)
    return BlobPlace(segment, offset, head_bytes, body_bytes)


def checked_blob(codec: int, entries: int, raw_bytes: int) -> str:
    """Return the name of a codec by its number in a fact. Raises `ValueError` if no blob can have these
    properties, and `CodecMissing` if the codec is not installed."""
    if codec >= len(CODECS):
        raise ValueError(f"unknown compression {codec}")
    if not 0 < entries <= raw_bytes // LEAST_ENTRY_BYTES or raw_bytes > MAX_RECORD_GROUP_BYTES:
        raise ValueError(f"a blob cannot have {entries} entries and {raw_bytes} bytes")
    check_installed(CODECS[codec])
    return CODECS[codec]


def apply_record(log: EntryLog, record: StoredRecord) -> str | None:
    """Replace the entries of a record with its blob. Return None, or the reason why they stay in memory."""
    at = log.find_block(*record.first)
    if at == len(log.blocks) or log.blocks[at].first() > record.last:
        return None  # All of them were deleted.
    if _fits(log.blocks[at], record):
        _store(log, at, record)
        return None
    return _cut(log, at, record)


def _fits(block: EntryBlock, record: StoredRecord) -> bool:
    if record.last != (block.last_ms, block.last_seq):
        return False
    ids = block.known_ids()
    if len(ids) != 2 * record.entries or record.first != (ids[0], ids[1]):
        return False
    return crc32(block.packed_ids()) == record.checksum


def _store(log: EntryLog, at: int, record: StoredRecord) -> None:
    """Store block number ``at``, which the record fits."""
    block = log.blocks[at]
    packed = block.packed
    if packed is not None and packed.blob is not None:
        if record.moved and packed.codec == record.codec:
            packed.blob.move(record.place)
            return
        if block.shared:
            block = block.copy()
            block.origin = log.sid
            log.replace(at, at + 1, [block])
    block.close()
    block.pack(_packed(log, record, block.packed_ids()))


def _packed(log: EntryLog, record: StoredRecord, ids: bytes) -> SealedBlock:
    made = SealedBlock(record.codec, None, ids, record.raw_bytes, record.entries)
    made.blob = Blob(log.sealing.use, record.place)
    return made


# --- cutting --------------------------------------------------------------------------------------


def _cut(log: EntryLog, at: int, record: StoredRecord) -> str | None:
    """Replace the range of the record in blocks number ``at`` and later with a stored one, like `apply_record`."""
    try:
        packed_ids = log.sealing.bodies.ids(record.place)
    except JournalDamaged as error:
        return str(error)
    if crc32(packed_ids) != record.checksum:
        return f"the ids of the blob at {record.place} are those of another one"
    first, last = record.first, record.last
    end, inside = at, array("Q")
    begin = log.blocks[at].lower_bound(*first)
    while end < len(log.blocks) and log.blocks[end].first() <= last:
        block = log.blocks[end]
        ids, stop = block.known_ids(), block.behind(*last)
        for index in range(begin if end == at else block.head, stop):
            if block.lives(index):
                inside.extend(ids[2 * index : 2 * index + 2])
        end += 1
    if not inside:
        return None
    stored = _stored_block(log, record, packed_ids, inside)
    if stored is None:
        return f"the blob at {record.place} lacks an entry from {first} to {last}"
    one, other = log.blocks[at], log.blocks[end - 1]
    before = _part(log, one, one.head, begin)
    after = _part(log, other, other.behind(*last), other.count)
    if before is not None:
        before.close()
    log.replace(at, end, [block for block in (before, stored, after) if block is not None])
    return None


def _stored_block(
    log: EntryLog, record: StoredRecord, packed_ids: bytes, live: array[int]
) -> EntryBlock | None:
    """Return a block of the blob in which only the ids ``live`` are live, or None if one is not in the blob."""
    packed = _packed(log, record, packed_ids)
    ids = unpacked_ids(packed)
    dead = bytearray(b"\x01" * record.entries)
    index = head = 0
    for at in range(0, len(live), 2):
        while index < record.entries and (ids[2 * index], ids[2 * index + 1]) != (
            live[at],
            live[at + 1],
        ):
            index += 1
        if index == record.entries:
            return None
        dead[index] = 0
        if not at:
            head = index
    block = EntryBlock(log.sealing, log.sid)
    block.head, block.count, block.live = head, index + 1, len(live) // 2
    block.last_ms, block.last_seq = live[-2], live[-1]
    del dead[block.count :]
    if 1 in dead[head:]:
        block.dead = dead
    block.closed = True
    block.pack(packed)
    return block


def _part(log: EntryLog, block: EntryBlock, first: int, end: int) -> EntryBlock | None:
    """Return a block of the entries ``first`` to ``end``-1; None if none of them is live. The block is open if
    ``block`` is open: then appending goes on as in the store that wrote the record."""
    alive = [index for index in range(first, end) if block.lives(index)]
    if not alive:
        return None
    made = block.copy()
    made.origin = log.sid
    ids = block.known_ids()
    made.head, made.count, made.live = alive[0], alive[-1] + 1, len(alive)
    if made.dead is not None:
        del made.dead[made.count :]
    made.last_ms, made.last_seq = ids[2 * alive[-1]], ids[2 * alive[-1] + 1]
    packed = made.packed
    if packed is None or packed.blob is None:
        made.compact()
        if not made.closed:
            made.room = len(made.data)
            made.account()
    else:
        packed.first_ms = packed.first_seq = 0
    return made
