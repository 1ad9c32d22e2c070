"""Decides which blocks of entries stay uncompressed and which are compressed.

    EntryBlock: open ──▶ closed ──▶ sealed               the newest of the store stay uncompressed,
                        (full, or its turn has come)     within ``budget``; the others are sealed

    Sealing.order ── the blocks that can be sealed, coldest first ──▶ choose ──▶ Job ─ ─ ─ ┐
                                                                                compress, in any thread
                               are the block's bytes still those of the job? ◀── settle ─ ─ ┘

Rule 1. Whether a block is sealed is not a fact: no reply and no record depends on it.
Rule 2. The bytes of a closed block never change, so another thread may read them. `choose`, `settle` and
        `help` are called under the node's lock, like every mutator.
Rule 3. An open block is skipped the first time its turn comes, and closed the second time. The coldest
        block is the one that was opened first: reading does not make a block warmer, but `open` has a
        cache.
Rule 4. A block that is smaller than ``least``, larger than ``most`` or does not shrink stays
        uncompressed, whatever the budget (``kept_bytes``).
Rule 5. Every block is accounted in one of the three sums, with the size of all its arrays, until it is
        freed.
"""

from __future__ import annotations

from array import array
from collections import deque
from typing import TYPE_CHECKING, NamedTuple
from weakref import ref

from headwater import limits
from headwater.engine.codecs import NONE, Codec, make_codec

if TYPE_CHECKING:
    from headwater import _cython as cython
    from headwater.engine.entry_block import EntryBlock
else:
    try:
        import cython
    except ImportError:
        from headwater import _cython as cython

if not cython.compiled:  # packing_c.pxd has it in C
    from headwater.packing import index_entries

KEPT, HOT, SEALED = 0, 1, 2
"""The account of a block: never sealed, to be sealed, sealed."""

NO_BOUND = 2**62

_LOOKS = 64
"""Maximum number of blocks that one call of `choose` examines."""

_WORTH = 0.9
"""A block is sealed only if compression reduces it to at most this share of its size."""


class CompressionJob(NamedTuple):
    """A block to be compressed: its bytes, and the size for which it is accounted."""

    block: EntryBlock
    data: bytearray
    booked: int


class SealedBlock:
    """The content of a sealed block, which replaces bytes, ids and offsets. It has ``count`` entries of
    ``size`` bytes, including tombstones. ``first_ms`` and ``first_seq`` are the id of the first live entry,
    0-0 if it must be looked up. ``data`` and ``offsets`` are set while the block is open for reading."""

    def __init__(self, codec: str, wire: bytes, ids: bytes, size: int, count: int) -> None:
        self.codec = codec
        self.wire = wire
        self.ids = ids
        self.size = size
        self.count = count
        self.first_ms = self.first_seq = 0
        self.data: bytearray | None = None
        self.offsets: array[int] | None = None

    def copy(self) -> SealedBlock:
        """Return a copy for another block with the same bytes."""
        return SealedBlock(self.codec, self.wire, self.ids, self.size, self.count)


def unpacked(packed: SealedBlock, codec: Codec) -> tuple[bytearray, array[int]]:
    """Return the uncompressed bytes of a sealed block and the offset of each entry. Any thread may call this,
    with its own codec."""
    data = bytearray(codec.decompress(packed.wire, packed.size))
    offsets: array[int] = array("I")
    index_entries(data, offsets)
    assert len(data) == packed.size, f"{len(data)} bytes instead of {packed.size}"
    assert len(offsets) == packed.count, f"{len(offsets)} entries instead of {packed.count}"
    return data, offsets


class Sealing:
    """Accounts for the blocks of a store. Seals nothing until `configure` is called.

    >>> Sealing().due()
    False
    """

    def __init__(self) -> None:
        self.block_bytes = limits.BLOCK_MAX_BYTES
        self.least = limits.SEALED_LEAST_BYTES
        self.most = limits.SEALED_MOST_BYTES
        self.lag = limits.SEALING_LAG_BYTES
        self.budget = NO_BOUND
        """Number of bytes of blocks that may stay uncompressed. `NO_BOUND` seals nothing."""
        self.hot_bytes = 0
        """Size of blocks that are to be sealed when their turn comes, including those in jobs."""
        self.kept_bytes = 0
        """Size of blocks that are never sealed (rule 4)."""
        self.sealed_bytes = 0
        """Size of sealed blocks."""
        self.sealed_size = 0
        """Size of their entries before compression."""
        self.sealed_count = 0
        """How many blocks were ever sealed."""
        self.opened_count = 0
        """How often a sealed block was opened for reading."""
        self.codec = NONE
        self.order: deque[tuple[ref[EntryBlock], bool]] = deque()
        """Coldest first; True if the block was skipped once (rule 3)."""
        self._in_jobs = 0
        self._codecs: dict[str, Codec] = {}
        self._open: deque[SealedBlock] = deque()

    def configure(self, budget: int, codec: str) -> None:
        """Seal what exceeds ``budget`` bytes, with the codec of this name. `NONE` seals no further blocks;
        sealed ones stay sealed. Raises `ValueError` if the codec is not installed."""
        if codec != NONE:
            codec = self._codec(codec).name
        self.codec = codec
        self.budget = NO_BOUND if codec == NONE else budget

    # --- accounts -------------------------------------------------------------------------------

    def book(self, books: int, size: int) -> None:
        """Add ``size``, which may be negative, to one of the accounts."""
        if books == HOT:
            self.hot_bytes += size
        elif books == KEPT:
            self.kept_bytes += size
        else:
            self.sealed_bytes += size

    def enqueue(self, block: EntryBlock) -> None:
        """Make ``block`` available for sealing, as the warmest one."""
        self.order.append((ref(block), False))

    def enqueue_coldest(self, block: EntryBlock) -> None:
        """Make ``block``, whose turn had come before, available for sealing as the coldest one."""
        self.order.appendleft((ref(block), True))

    # --- sealing --------------------------------------------------------------------------------

    def due(self) -> bool:
        """Whether the blocks to be sealed exceed the budget."""
        return self.hot_bytes > self.budget

    def choose(self, most: int) -> list[CompressionJob]:
        """Return jobs for the coldest blocks: as many as exceed the budget, at most ``most``. Closes them."""
        jobs: list[CompressionJob] = []
        excess = self.hot_bytes - self._in_jobs - self.budget
        for _ in range(min(_LOOKS, len(self.order))):
            if excess <= 0 or len(jobs) == most:
                break
            found, passed_over = self.order.popleft()
            block = found()
            if block is None or block.books != HOT:
                continue
            if not block.closed:
                if not passed_over or len(block.data) < self.least:
                    self.order.append((found, True))
                    continue
                block.close()
            if block.books == HOT:
                jobs.append(CompressionJob(block, block.data, block.booked))
                excess -= block.booked
                self._in_jobs += block.booked
        return jobs

    def settle(self, job: CompressionJob, codec: str, wire: bytes | None) -> None:
        """Complete a job. ``wire`` is None if the bytes could not be compressed."""
        self._in_jobs -= job.booked
        block = job.block
        if block.data is not job.data or block.books != HOT:
            if block.books == HOT:
                self.enqueue_coldest(block)  # It was compacted meanwhile.
            return
        if wire is None or len(wire) > _WORTH * len(job.data):
            block.keep()
            return
        block.seal(codec, wire)
        self.sealed_count += 1

    def help(self, most: int) -> None:
        """Compress up to ``most`` blocks now if the threads that do so lag behind."""
        while most > 0 and self.hot_bytes - self._in_jobs > self.budget + self.lag:
            jobs = self.choose(1)
            if not jobs:
                return
            self.settle(jobs[0], self.codec, self._codec(self.codec).compress(jobs[0].data))
            most -= 1

    # --- reading --------------------------------------------------------------------------------

    def open(self, packed: SealedBlock) -> None:
        """Set data and offsets of ``packed``. They are dropped after `OPENED_BLOCKS` others were opened."""
        data, offsets = unpacked(packed, self._codec(packed.codec))
        packed.data, packed.offsets = data, offsets
        self.opened_count += 1
        self._open.append(packed)
        if len(self._open) > limits.OPENED_BLOCKS:
            oldest = self._open.popleft()
            oldest.data = oldest.offsets = None

    def _codec(self, name: str) -> Codec:
        codec = self._codecs.get(name)
        if codec is None:
            codec = make_codec(name)
            self._codecs[name] = self._codecs[codec.name] = codec
        return codec
