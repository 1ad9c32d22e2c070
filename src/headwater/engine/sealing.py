"""Which blocks of entries stay as they were written, and which are compressed.

    EntryBlock: open ──▶ closed ──▶ sealed               the newest of the store stay as they are,
                        (full, or its turn has come)     within ``budget``; the others are sealed

    Sealing.order ── the blocks that can be sealed, coldest first ──▶ choose ──▶ Job ─ ─ ─ ┐
                                                                                compress, in any thread
                                 a block's bytes are those of the job still? ◀── settle ─ ─ ┘

Rule 1. A block's form is no fact: no reply and no record depends on it.
Rule 2. A closed block's bytes never change, so another thread may read them; its own, `choose`,
        `settle` and `help` are called under the node's lock like every mutator.
Rule 3. A block that is being written to is passed over once when its turn comes; then it is closed.
        Coldest is what was opened first: reading makes nothing warm, the cache of `open` does that.
Rule 4. What is smaller than ``least``, larger than ``most`` or does not shrink stays as it is,
        whatever the budget (``kept_bytes``).
Rule 5. Every block is in the books of one of the three sums, with what it takes with all its arrays,
        until it is gone.
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
"""Whose books a block is in."""

NO_BOUND = 2**62

_LOOKS = 64
"""Blocks that `choose` looks at in one go."""

_WORTH = 0.9
"""What does not become smaller than that is left alone."""


class CompressionJob(NamedTuple):
    """A block to be compressed: its bytes, and how much of the books it was."""

    block: EntryBlock
    data: bytearray
    booked: int


class SealedBlock:
    """What a sealed block holds instead of bytes, ids and offsets: ``count`` entries, ``size`` bytes
    of them, dead ones included. ``first_ms`` and ``first_seq`` are the first that lives, 0-0 when it
    has to be looked up. ``data`` and ``offsets`` are there while the block is open for reading."""

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
        """For another block over the same bytes."""
        return SealedBlock(self.codec, self.wire, self.ids, self.size, self.count)


def unpacked(packed: SealedBlock, codec: Codec) -> tuple[bytearray, array[int]]:
    """The bytes of a sealed block and where in them each entry begins. Any thread may ask for them, with
    a codec of its own."""
    data = bytearray(codec.decompress(packed.wire, packed.size))
    offsets: array[int] = array("I")
    index_entries(data, offsets)
    assert len(data) == packed.size, f"{len(data)} bytes were {packed.size}"
    assert len(offsets) == packed.count, f"{len(offsets)} entries were {packed.count}"
    return data, offsets


class Sealing:
    """The books of a store's blocks; `configure` says what is to be sealed, until then nothing is.

    >>> Sealing().due()
    False
    """

    def __init__(self) -> None:
        self.block_bytes = limits.BLOCK_MAX_BYTES
        self.least = limits.SEALED_LEAST_BYTES
        self.most = limits.SEALED_MOST_BYTES
        self.lag = limits.SEALING_LAG_BYTES
        self.budget = NO_BOUND
        """Bytes of blocks that may stay as they were written; `NO_BOUND` seals nothing."""
        self.hot_bytes = 0
        """What blocks take that are to be sealed when their turn comes, those in jobs included."""
        self.kept_bytes = 0
        """What blocks take that are never sealed (rule 4)."""
        self.sealed_bytes = 0
        """What sealed blocks take."""
        self.sealed_size = 0
        """What their entries had taken."""
        self.sealed_count = 0
        """How many blocks were ever sealed."""
        self.opened_count = 0
        """How often one was opened to be read."""
        self.codec = NONE
        self.order: deque[tuple[ref[EntryBlock], bool]] = deque()
        """Coldest first; True for what was passed over (rule 3)."""
        self._in_jobs = 0
        self._codecs: dict[str, Codec] = {}
        self._open: deque[SealedBlock] = deque()

    def configure(self, budget: int, codec: str) -> None:
        """Seal what is beyond ``budget`` bytes by the codec of this name; `NONE` seals nothing more,
        and leaves what is sealed. Raises `ValueError` where the codec is not installed."""
        if codec != NONE:
            codec = self._codec(codec).name
        self.codec = codec
        self.budget = NO_BOUND if codec == NONE else budget

    # --- the books ------------------------------------------------------------------------------

    def book(self, books: int, size: int) -> None:
        """Add ``size``, which may be negative, to one of the sums."""
        if books == HOT:
            self.hot_bytes += size
        elif books == KEPT:
            self.kept_bytes += size
        else:
            self.sealed_bytes += size

    def enqueue(self, block: EntryBlock) -> None:
        """From now on ``block`` can be sealed; it is the warmest."""
        self.order.append((ref(block), False))

    def enqueue_coldest(self, block: EntryBlock) -> None:
        """The same of one whose turn had come already."""
        self.order.appendleft((ref(block), True))

    # --- sealing --------------------------------------------------------------------------------

    def due(self) -> bool:
        """Whether there is more than may stay as it is."""
        return self.hot_bytes > self.budget

    def choose(self, most: int) -> list[CompressionJob]:
        """At most ``most`` of the coldest blocks, as many as are beyond the budget. They are closed."""
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
        """What has become of a job; None for bytes that could not be compressed."""
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
        """Compress up to ``most`` blocks here and now, where those whose work it is lag behind."""
        while most > 0 and self.hot_bytes - self._in_jobs > self.budget + self.lag:
            jobs = self.choose(1)
            if not jobs:
                return
            self.settle(jobs[0], self.codec, self._codec(self.codec).compress(jobs[0].data))
            most -= 1

    # --- reading --------------------------------------------------------------------------------

    def open(self, packed: SealedBlock) -> None:
        """Let ``packed`` have its data and offsets, until so many others were opened after it."""
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
