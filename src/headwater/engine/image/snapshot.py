"""An immutable view of a stream, for a thread that reads it while the stream changes.

Rule 1. Creating a snapshot reads no entry: it keeps references to the bytes of the blocks. The
        bytes of a closed block never change (entry_block.py). The bytes of an open block are copied, as
        are the tombstone marks.
Rule 2. Sealing a block replaces its bytes and does not change them, so that a snapshot can still read
        them. Blocks that are sealed already are opened here with a codec that no other thread uses. The
        bodies of stored blocks are read from disk, one at a time.
Rule 3. Pending lists are copied block by block, 32 bytes for each entry.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from headwater.engine.bodies.blobs import BlobSource
from headwater.engine.bodies.bodies import loaded
from headwater.engine.bodies.codecs import Codec, codec_in
from headwater.engine.bodies.sealed_block import offsets_in, unpacked_ids
from headwater.engine.entries.entry_block import EntryBlock
from headwater.engine.groups.group import ConsumerGroup
from headwater.engine.groups.pending import PendingList
from headwater.engine.redis_nodes.nodes import NodeIndex
from headwater.engine.streams.stream import StoredStream

ID = tuple[int, int]


class BlockSnapshot:
    """Entries number ``head`` to ``count``-1 of a block, without the entries marked in ``dead``."""

    def __init__(self, block: EntryBlock) -> None:
        self.packed = block.packed
        self.data, self.ids, self.offsets = block.data, block.ids, block.offsets
        if self.packed is None and not block.closed:
            self.data, self.ids, self.offsets = self.data[:], self.ids[:], self.offsets[:]
        self.dead = None if block.dead is None else block.dead[:]
        self.head, self.count = block.head, block.count

    def open(self, codecs: dict[str, Codec], source: BlobSource | None) -> None:
        """Load the bytes, ids and offsets of a sealed block. May raise `JournalDamaged`."""
        packed, self.packed = self.packed, None
        if packed is not None:
            self.ids = unpacked_ids(packed)
            data, offsets = packed.data, packed.offsets
            if data is None or len(data) < packed.size:  # not open, or only in part
                data = loaded(packed, codec_in(codecs, packed.codec), source)
            self.data = bytearray(data)
            self.offsets = offsets_in(packed, data) if offsets is None else offsets

    def behind(self, last: ID) -> int:
        """Return the index after the last entry whose id is at most ``last``."""
        low, high, ids = self.head, self.count, self.ids
        while low < high:
            middle = (low + high) // 2
            if (ids[2 * middle], ids[2 * middle + 1]) <= last:
                low = middle + 1
            else:
                high = middle
        return low

    def runs(self, first: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield runs of consecutive live entries among the entries ``first`` to ``end``-1."""
        while first < end:
            gap = -1 if self.dead is None else self.dead.find(1, first, end)
            stop = end if gap < 0 else gap
            if stop > first:
                yield first, stop
            first = stop + 1


class GroupSnapshot:
    """A group. Consumers are (number, name, seen time, active time), in byte order of names. ``released``
    and ``delayed`` are in the order in which their entries will be delivered."""

    def __init__(self, group: ConsumerGroup) -> None:
        self.name, self.last_id = group.name, group.last_id
        self.entries_read = group.entries_read
        self.consumers = [
            (one.cid, one.name, one.seen_time, one.active_time) for one in group.sorted_consumers()
        ]
        self.pel: PendingList = group.pel.copy()
        self.released = list(group.released)
        self.delayed = list(group.due_order)


class StreamSnapshot:
    """A snapshot of a stream; see the rules above."""

    def __init__(self, stream: StoredStream) -> None:
        self.source = stream.keyspace.sealing.bodies.source
        self.length = stream.length
        self.first_id = stream.log.first()
        self.last_id, self.max_deleted_id = stream.last_id, stream.max_deleted_id
        self.entries_added = stream.entries_added
        self.nodes: NodeIndex = stream.nodes.copy()
        self.blocks = [BlockSnapshot(block) for block in stream.log.blocks]
        self.groups = [GroupSnapshot(group) for group in stream.sorted_groups()]
        known = stream.idempotency
        self.idempotency = (known.duration_s, known.maxsize, known.added, known.duplicates)
        self.producers = known.contents()

    def live_runs(self) -> Iterator[tuple[int, BlockSnapshot, int, int]]:
        """Yield every live entry once, as runs of consecutive entries of one node and block: the node, the
        block, the first index and the index after the last. Releases each block after its last run."""
        codecs: dict[str, Codec] = {}
        blocks, self.blocks = self.blocks[::-1], []
        block: BlockSnapshot | None = None
        at = 0
        for node in range(len(self.nodes)):
            last = self.nodes.last(node)
            while block is not None or blocks:
                if block is None:
                    block = blocks.pop()
                    block.open(codecs, self.source)
                    at = block.head
                end = block.behind(last)
                for first, stop in block.runs(at, end):
                    yield node, block, first, stop
                at = end
                if end < block.count:
                    break
                block = None


def ids_of(block: BlockSnapshot, first: int, end: int) -> array[int]:
    """Return the ids of the entries ``first`` to ``end``-1, two words each."""
    return block.ids[2 * first : 2 * end]
