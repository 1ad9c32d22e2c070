"""Restores a store from the facts of an image (image_facts.py), in bulk.

Rule 1. An image is restored into an empty keyspace, and no other change is made between its first and its last
        fact. The result is as if the keyspace had been recovered from a journal.
Rule 2. The values in an image are not recounted, because the records that contain them have checksums. But
        every length is compared with the number of bytes left, so that damage raises an exception, and nothing
        outside the facts is read.
Rule 3. Blocks become available for sealing in the order of their last entries, the coldest first.
"""

from __future__ import annotations

from array import array
from collections import deque

from headwater.common.limits import PENDING_BLOCK_RECORDS
from headwater.engine.accounts.weights import NODE_WORDS
from headwater.engine.bodies.blobs import Blob, BlobPlace
from headwater.engine.bodies.codecs import CODECS, make_codec
from headwater.engine.bodies.sealed_block import SealedBlock
from headwater.engine.entries.entry_block import EntryBlock
from headwater.engine.facts.fact_reader import FactReader
from headwater.engine.groups.group import ConsumerGroup
from headwater.engine.groups.pending import PendingList
from headwater.engine.groups.pending_block import PendingBlock
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.engine.keyspace.memory_totals import book_all
from headwater.engine.streams.stream import StoredStream
from headwater.engine.tier.storing import checked_blob

try:
    import cython
except ImportError:
    from headwater import _cython as cython

if not cython.compiled:  # memory_c.pxd and packing_c.pxd have them in C
    from headwater.native.memory import word_at
    from headwater.native.packing import index_entries, unpack_ids, unpack_rows

_MOST_ENTRIES = 4 * 1024 * 1024
"""Maximum number of entries of a block that is accepted. Blocks have a limited size unless they have one entry."""


class Restoring:
    """Restores ``keyspace``. `apply` reads one fact."""

    def __init__(self, keyspace: Keyspace) -> None:
        self.keyspace = keyspace
        self.begun = False
        self.shared: dict[int, EntryBlock] = {}
        """The blocks that several streams share, by their number in the image."""
        self.blobs: dict[BlobPlace, Blob] = {}
        """The blobs to which several blocks refer, by their place."""
        self.codecs: dict[bytes, str] = {}
        """The names of installed codecs that have occurred, by their bytes."""
        self._packed_ids = b""
        """The ids of the current block."""

    def apply(self, kind: int, reader: FactReader) -> None:
        """Restore the content of a fact of this kind. Raises `ValueError` if that is not possible."""
        if kind == 0x50:
            self._begin(reader)
        elif not self.begun:
            raise ValueError(f"a fact of kind 0x{kind:02x} is outside an image")
        elif kind == 0x5E:
            self._end()
        elif kind == 0x5D:
            self._key_numbers(reader)
        elif kind <= 0x56 or kind == 0x5F:
            sid = reader.take_u32()
            stream = self.keyspace.streams.get(sid)
            if stream is None:
                raise ValueError(f"stream number {sid} does not exist")
            self._stream_fact(kind, stream, reader)
        else:
            gid = reader.take_u32()
            group = self.keyspace.groups.get(gid)
            if group is None:
                raise ValueError(f"group number {gid} does not exist")
            self._group_fact(kind, group, reader)

    def _stream_fact(self, kind: int, stream: StoredStream, reader: FactReader) -> None:
        if kind == 0x51:
            self._stream_state(stream, reader)
        elif kind == 0x52:
            self._nodes(stream, reader)
        elif kind == 0x53:
            self._raw_block(stream, reader)
        elif kind == 0x54:
            self._sealed_block(stream, reader)
        elif kind == 0x55:
            self._shared_block(stream, reader)
        elif kind == 0x5F:
            self._stored_block(stream, reader)
        else:
            self._producer(stream, reader)

    def _group_fact(self, kind: int, group: ConsumerGroup, reader: FactReader) -> None:
        if kind == 0x57:
            group.next_cid = max(group.next_cid, reader.take_u32())
        elif kind == 0x58:
            self._pending(group, reader)
        elif kind == 0x59:
            self._big_counts(group, reader)
        elif kind == 0x5A:
            self._order(group, reader)
        elif kind == 0x5B:
            for entry_id in reader.take_ids(reader.take_u32()):
                group.released[entry_id] = None
        else:
            self._delays(group, reader)

    # --- the keyspace ---------------------------------------------------------------------------

    def _begin(self, reader: FactReader) -> None:
        keyspace = self.keyspace
        if [database.index for database in keyspace.databases if database.values]:
            raise ValueError("an image begins in a store that is not empty")
        keyspace.next_sid = max(keyspace.next_sid, reader.take_i64())
        keyspace.next_gid = max(keyspace.next_gid, reader.take_i64())
        self.begun = True

    def _end(self) -> None:
        sealing = self.keyspace.sealing
        found = [(one[0](), one) for one in sealing.order]
        there = [(block.last_ms, at, one) for at, (block, one) in enumerate(found) if block]
        sealing.order = deque([one for _, _, one in sorted(there, key=_coldness)])
        book_all(self.keyspace)
        self.begun, self.shared, self.blobs = False, {}, {}

    def _key_numbers(self, reader: FactReader) -> None:
        db, first, next_number = reader.take_u8(), reader.take_u64(), reader.take_u64()
        numbers = reader.take_words(reader.take_u32())
        if db >= len(self.keyspace.databases):
            raise ValueError(f"database {db} does not exist")
        order = self.keyspace.databases[db].order
        if first + len(numbers) > len(order.numbers):
            raise ValueError(f"database {db} has {len(order.numbers)} keys, but numbers for more")
        order.renumber(first, numbers, next_number)

    # --- streams --------------------------------------------------------------------------------

    def _stream_state(self, stream: StoredStream, reader: FactReader) -> None:
        stream.last_id = reader.take_id()
        stream.entries_added = reader.take_i64()
        stream.max_deleted_id, stream.max_trimmed_id = reader.take_id(), reader.take_id()
        duration_s, maxsize = reader.take_u32(), reader.take_u32()
        added, duplicates = reader.take_u64(), reader.take_u64()
        stream.idempotency.resume(duration_s, maxsize, added, duplicates)

    def _nodes(self, stream: StoredStream, reader: FactReader) -> None:
        count = reader.take_u32()
        words: array[int] = array("Q")
        unpack_rows(reader.take_text(), NODE_WORDS, count, words)
        names = []
        for _ in range(reader.take_u32()):
            alike = reader.take_u32()
            count -= alike
            if count < 0:
                break
            names.append((alike, reader.take_text()))
        if count:
            raise ValueError("the nodes of a stream and their names differ in number")
        stream.nodes.extend(words, names)

    def _raw_block(self, stream: StoredStream, reader: FactReader) -> None:
        block = EntryBlock(self.keyspace.sealing, stream.sid)
        number = self._read_block(stream, block, reader)
        block.closed = reader.take_u8() != 0
        block.dead_bytes = reader.take_i64()
        reader.take_into(reader.take_u32(), block.data)
        offsets: array[int] = array("I")
        index_entries(block.data, offsets)
        if 2 * len(offsets) != len(block.ids):
            raise ValueError(f"{len(offsets)} entries have {len(block.ids) // 2} ids")
        block.offsets = offsets[:]  # without reserve capacity
        if not block.closed:
            block.room = len(block.data)
        block.account()
        self._place(stream, block, number)

    def _sealed_block(self, stream: StoredStream, reader: FactReader) -> None:
        block = EntryBlock(self.keyspace.sealing, stream.sid)
        number = self._read_block(stream, block, reader)
        codec = self._codec(reader.take_text())
        size, packed_ids = reader.take_u64(), self._packed_ids
        entries = len(block.ids) // 2
        checked_blob(CODECS.index(codec), entries, size)
        block.closed = True
        block.pack(SealedBlock(codec, reader.take_text(), packed_ids, size, entries))
        self._place(stream, block, number)

    def _stored_block(self, stream: StoredStream, reader: FactReader) -> None:
        sealing = self.keyspace.sealing
        block = EntryBlock(sealing, stream.sid)
        number = self._read_block(stream, block, reader)
        codec, size = self._codec(reader.take_text()), reader.take_u64()
        place = BlobPlace(
            reader.take_u64(), reader.take_u64(), reader.take_u32(), reader.take_u32()
        )
        entries = len(block.ids) // 2
        checked_blob(CODECS.index(codec), entries, size)
        packed = SealedBlock(codec, None, self._packed_ids, size, entries)
        packed.blob = self._blob(place) if reader.take_u8() else Blob(sealing.use, place)
        block.closed = True
        block.pack(packed)
        self._place(stream, block, number)

    def _blob(self, place: BlobPlace) -> Blob:
        """Return the blob at a place to which several blocks refer."""
        blob = self.blobs.get(place)
        if blob is None:
            blob = self.blobs[place] = Blob(self.keyspace.sealing.use, place)
            blob.shared = True
        return blob

    def _read_block(self, stream: StoredStream, block: EntryBlock, reader: FactReader) -> int:
        """Read the part that all kinds of blocks have in common. Return the number of a shared block, else 0."""
        number = reader.take_u32()
        block.head, block.live, block.count = (
            reader.take_u32(),
            reader.take_u32(),
            reader.take_u32(),
        )
        if reader.take_u8():
            block.dead = bytearray(reader.take_bytes(block.count))
        entries, count = reader.take_u32(), block.count
        self._packed_ids = reader.take_text()
        if not (block.head < count <= entries and 0 < block.live <= count - block.head):
            raise ValueError(f"{block.live} of {count} entries of a block are live")
        if entries > _MOST_ENTRIES:
            raise ValueError(f"a block cannot have {entries} entries")
        unpack_ids(self._packed_ids, entries, block.ids)
        block.last_ms = word_at(block.ids, 2 * count - 2)
        block.last_seq = word_at(block.ids, 2 * count - 1)
        first = (word_at(block.ids, 2 * block.head), word_at(block.ids, 2 * block.head + 1))
        self._check_order(stream, first)
        return number

    def _shared_block(self, stream: StoredStream, reader: FactReader) -> None:
        number = reader.take_u32()
        block = self.shared.get(number)
        if block is None:
            raise ValueError(f"shared block {number} does not exist")
        self._check_order(stream, block.first())
        block.shared, block.room = True, 0
        self._place(stream, block, 0)

    def _check_order(self, stream: StoredStream, first: tuple[int, int]) -> None:
        if stream.log.blocks and first <= stream.log.last():
            raise ValueError(f"a block of stream number {stream.sid} overlaps the one before it")

    def _place(self, stream: StoredStream, block: EntryBlock, number: int) -> None:
        """Append a block to a stream. A shared one has a ``number`` above 0."""
        log = stream.log
        log.blocks.append(block)
        log.length += block.live
        if number:
            self.shared[number] = block

    def _codec(self, name: bytes) -> str:
        codec = self.codecs.get(name)
        if codec is None:
            codec = name.decode("ascii", "replace")
            if codec not in CODECS:
                raise ValueError(f"unknown compression {codec!r}")
            codec = self.codecs[name] = make_codec(codec).name
        return codec

    def _producer(self, stream: StoredStream, reader: FactReader) -> None:
        pid = reader.take_text()
        iids = []
        for _ in range(reader.take_u32()):
            iid = reader.take_text()
            iids.append((iid, reader.take_id(), reader.take_i64()))
        stream.idempotency.resume_producer(pid, iids)

    # --- groups ---------------------------------------------------------------------------------

    def _pending(self, group: ConsumerGroup, reader: FactReader) -> None:
        pel = group.pel
        for _ in range(reader.take_u32()):
            block = PendingBlock()
            block.dangling = reader.take_u8() != 0
            count = reader.take_u32()
            if not 0 < count <= PENDING_BLOCK_RECORDS:
                raise ValueError(f"a block cannot have {count} pending entries")
            block.words = reader.take_words(4 * count)
            block.end = count
            block.settle_min_time()
            block.settle_owners()
            self._count_owners(group, block)
            if pel.blocks and not pel.ends_before(word_at(block.words, 0), word_at(block.words, 1)):
                raise ValueError(
                    f"a block of pending entries of group {group.gid} overlaps the one before it"
                )
            pel.blocks.append(block)
            pel.length += count

    def _count_owners(self, group: ConsumerGroup, block: PendingBlock) -> None:
        at = 0
        while at < block.end:
            owner, same = block.owner(at), block.same_owner(at, block.end - at)
            if owner:
                consumer = group.by_cid.get(owner)
                if consumer is None:
                    raise ValueError(f"consumer {owner} of group {group.gid} does not exist")
                consumer.pending += same
            at += same

    def _big_counts(self, group: ConsumerGroup, reader: FactReader) -> None:
        pel: PendingList = group.pel
        for _ in range(reader.take_u32()):
            entry_id = reader.take_id()
            pel.big_counts[entry_id] = reader.take_u64()

    def _order(self, group: ConsumerGroup, reader: FactReader) -> None:
        count, order = reader.take_u32(), group.order
        order.times.extend(reader.take_words(count))
        order.ids.extend(reader.take_words(4 * count))
        counts = reader.take_words(count)
        order.counts.extend(counts)
        order.covered += sum(counts)

    def _delays(self, group: ConsumerGroup, reader: FactReader) -> None:
        for _ in range(reader.take_u32()):
            due, entry_id = reader.take_u64(), reader.take_id()
            group.delayed[entry_id] = due
            group.due_order.append((due, *entry_id))
        if group.due_order:
            self.keyspace.delaying[group.gid] = group
            self.keyspace.note_due(group.due_order[0][0], group.gid)


def _coldness(one: tuple[int, int, object]) -> tuple[int, int]:
    return one[0], one[1]
