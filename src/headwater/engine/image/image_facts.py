"""The facts of images, in bulk: `headwater.engine.image.image` writes them, `headwater.engine.replay.restoring` reads them.

An image begins with 0x50 and ends with 0x5E. The facts of the mutators (facts.py) write keys that are not streams,
and create streams, groups and consumers. Numbers, texts and ids have the same form as in facts.py.

    0x50 image_begun    next sid u64, next gid u64
    0x51 stream_state   sid, last id, added u64, deleted id, trimmed id, seconds, maxsize, iids added u64,
                        duplicates u64
    0x52 nodes          sid, n, rows text, m, (count u32, names)*        names: of count nodes, in RESP
    0x53 raw_block      sid, block, closed u8, dead bytes u64, text
    0x54 sealed_block   sid, block, codec text, size u64, compressed text
    0x55 shared_block   sid, number u32
    0x56 producer       sid, pid, n, (iid, id, since i64)*
    0x57 group_state    gid, next cid u32
    0x58 pending        gid, n, (dangling u8, records u32, records * 4 words)*
    0x59 big_counts     gid, n, (id, count u64)*
    0x5A order          gid, n, n * time, n * 4 words, n * count         runs of the delivery order
    0x5B unowned        gid, n, id*                                      in the order of their release
    0x5C delays         gid, n, (due u64, id)*                           sorted
    0x5D key_numbers    db, first u64, next u64, n, word*
    0x5E image_ended
    0x5F stored_block   sid, block, codec text, size u64, segment u64, offset u64, head bytes u32, body bytes u32,
                        shared u8

    block: number u32, head u32, live u32, count u32, marked u8, [count * dead u8], entries u32, packed ids text

Rule 1. A block that several streams share is written once, under a number above 0; the other streams have a
        shared_block. Of several blocks that share only a blob, each is written, marked as shared.
Rule 2. Long values other than strings are written as several facts, so that a record group of an image has about
        `GROUP_BYTES`, or more if a single string, block, member or name is larger.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from struct import Struct

from headwater.engine.accounts.weights import NODE_WORDS
from headwater.engine.entries.entry_block import EntryBlock
from headwater.engine.facts.facts import FactBuffer
from headwater.engine.groups.group import ConsumerGroup
from headwater.engine.groups.pending_block import PendingBlock
from headwater.engine.streams.stream import StoredStream

try:
    import cython
except ImportError:
    from headwater import _cython as cython

if not cython.compiled:  # memory_c.pxd and packing_c.pxd have them in C
    from headwater.native.memory import put_u8, put_u32, put_u64, put_words
    from headwater.native.packing import pack_ids, pack_rows

GROUP_BYTES = 256 * 1024
"""Size of a record group of an image, in bytes. A group ends with the fact that reaches it."""

IMAGE_KINDS = frozenset(range(0x50, 0x60))

ID = tuple[int, int]

_ID = Struct("<QQ")
_STATE = Struct("<BIQQQQQQQIIQQ")


class ImageFacts:
    """Collects the facts of one record group. ``facts`` writes the kinds that mutators write."""

    def __init__(self) -> None:
        self.facts = FactBuffer()

    @property
    def full(self) -> bool:
        """True if the group has reached its size."""
        return len(self.facts.data) >= GROUP_BYTES

    def take(self) -> bytearray:
        """Return the facts so far, and begin the next group."""
        data, self.facts.data = self.facts.data, bytearray()
        return data

    def image_begun(self, next_sid: int, next_gid: int) -> None:
        data = self.facts.data
        put_u8(data, 0x50)
        put_u64(data, next_sid)
        put_u64(data, next_gid)

    def image_ended(self) -> None:
        put_u8(self.facts.data, 0x5E)

    def key_numbers(self, db: int, first: int, next_number: int, numbers: array[int]) -> None:
        """Write the ``numbers`` of a database's keys (key_order.py), from key number ``first`` on."""
        data = self.facts.data
        put_u8(data, 0x5D)
        put_u8(data, db)
        put_u64(data, first)
        put_u64(data, next_number)
        self._counted(numbers, 1)

    # --- streams --------------------------------------------------------------------------------

    def stream_state(self, stream: StoredStream) -> None:
        known = stream.idempotency
        self.facts.data += _STATE.pack(
            0x51,
            stream.sid,
            *stream.last_id,
            stream.entries_added,
            *stream.max_deleted_id,
            *stream.max_trimmed_id,
            known.duration_s,
            known.maxsize,
            known.added,
            known.duplicates,
        )

    def nodes(self, sid: int, words: array[int], names: Sequence[tuple[int, bytes]]) -> None:
        self._begin(0x52, sid)
        data = self.facts.data
        put_u32(data, sum(count for count, _ in names))
        self._text(pack_rows(words, NODE_WORDS))
        put_u32(data, len(names))
        for count, text in names:
            put_u32(data, count)
            self._text(text)

    def raw_block(self, sid: int, number: int, block: EntryBlock) -> None:
        self._block(0x53, sid, number, block, len(block.offsets), pack_ids(block.ids))
        data = self.facts.data
        put_u8(data, block.closed)
        put_u64(data, block.dead_bytes)
        self._text(block.data)

    def sealed_block(
        self, sid: int, number: int, block: EntryBlock, codec: str, wire: bytes, size: int
    ) -> None:
        """Write a block that is sealed, or a closed one whose ``size`` bytes are ``wire`` after compression."""
        packed = block.packed
        if packed is None:
            self._block(0x54, sid, number, block, len(block.offsets), pack_ids(block.ids))
        else:
            self._block(0x54, sid, number, block, packed.count, packed.ids)
        self._text(codec.encode())
        put_u64(self.facts.data, size)
        self._text(wire)

    def stored_block(self, sid: int, number: int, block: EntryBlock) -> None:
        packed = block.packed
        assert packed is not None
        assert packed.blob is not None
        self._block(0x5F, sid, number, block, packed.count, packed.ids)
        self._text(packed.codec.encode())
        data = self.facts.data
        put_u64(data, packed.size)
        place = packed.blob.place()
        put_u64(data, place.segment)
        put_u64(data, place.offset)
        put_u32(data, place.head_bytes)
        put_u32(data, place.body_bytes)
        put_u8(data, packed.blob.shared)

    def shared_block(self, sid: int, number: int) -> None:
        self._begin(0x55, sid)
        put_u32(self.facts.data, number)

    def producer(self, sid: int, pid: bytes, iids: Sequence[tuple[bytes, ID, int]]) -> None:
        self._begin(0x56, sid)
        self._text(pid)
        data = self.facts.data
        put_u32(data, len(iids))
        for iid, entry_id, since_ms in iids:
            self._text(iid)
            data += _ID.pack(*entry_id)
            data += since_ms.to_bytes(8, "little", signed=True)

    # --- groups ---------------------------------------------------------------------------------

    def group_state(self, group: ConsumerGroup) -> None:
        self._begin(0x57, group.gid)
        put_u32(self.facts.data, group.next_cid)

    def pending(self, gid: int, blocks: Sequence[PendingBlock]) -> None:
        self._begin(0x58, gid)
        data = self.facts.data
        put_u32(data, len(blocks))
        for block in blocks:
            put_u8(data, block.dangling)
            self._counted(block.records(), 4)

    def big_counts(self, gid: int, words: array[int]) -> None:
        self._begin(0x59, gid)
        self._counted(words, 3)

    def order(self, gid: int, times: array[int], ids: array[int], counts: array[int]) -> None:
        self._begin(0x5A, gid)
        self._counted(times, 1)
        put_words(self.facts.data, ids)
        put_words(self.facts.data, counts)

    def unowned(self, gid: int, words: array[int]) -> None:
        self._begin(0x5B, gid)
        self._counted(words, 2)

    def delays(self, gid: int, words: array[int]) -> None:
        self._begin(0x5C, gid)
        self._counted(words, 3)

    # --- parts ----------------------------------------------------------------------------------

    def _begin(self, kind: int, number: int) -> None:
        put_u8(self.facts.data, kind)
        put_u32(self.facts.data, number)

    def _block(
        self, kind: int, sid: int, number: int, block: EntryBlock, entries: int, ids: bytes
    ) -> None:
        self._begin(kind, sid)
        data = self.facts.data
        for value in (number, block.head, block.live, block.count):
            put_u32(data, value)
        put_u8(data, block.dead is not None)
        if block.dead is not None:
            data += block.dead
        put_u32(data, entries)
        self._text(ids)

    def _text(self, text: bytes | bytearray) -> None:
        put_u32(self.facts.data, len(text))
        self.facts.data += text

    def _counted(self, words: array[int], each: int) -> None:
        """Write the number of items, which have ``each`` words, then the words."""
        put_u32(self.facts.data, len(words) // each)
        put_words(self.facts.data, words)
