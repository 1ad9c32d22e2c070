"""Decides which blocks of entries stay uncompressed and which are compressed.

    EntryBlock: open ──▶ closed ──▶ sealed ──▶ stored    the newest of the store stay uncompressed,
                        (full, or its turn has come)     within ``budget``; the others are sealed

    Sealing.order ── the blocks that can be sealed, coldest first ──▶ choose ──▶ Job ─ ─ ─ ┐
    Sealing.unstored ── sealed ones ──────────────────────────────────▶     compress and store, in any thread
                               are the block's bytes still those of the job? ◀── settle ─ ─ ┘

Rule 1. Whether a block is sealed is not a fact: no reply and no record depends on it. That a block is stored
        is a fact, because a recovered store must know its place on disk.
Rule 2. The bytes of a closed block never change, so another thread may read them. `choose`, `settle` and
        `help` are called under the node's lock, like every mutator.
Rule 3. An open block is skipped the first time its turn comes, and closed the second time. The coldest
        block is the first in ``order``: reading does not make a block warmer, but `Bodies` caches
        what was read.
Rule 4. A block that is smaller than ``least``, larger than ``most`` or does not shrink stays
        uncompressed with any budget (``kept_bytes``). In a store with segments (``storing``), ``most``
        has no limit, and a block that does not shrink is stored as it is.
Rule 5. Every block is accounted in one of the three sums, with the size of all its arrays, until it is
        freed. A stored block is accounted as sealed, with its ids only.
Rule 6. A block that is sealed and not stored is in ``unstored`` or in a job if the store has segments.
"""

from __future__ import annotations

from typing import NamedTuple
from weakref import ref

from headwater.engine.bodies.blobs import Blob, BlobSource
from headwater.engine.bodies.block_account import HOT, NO_BOUND, BlockAccount
from headwater.engine.bodies.codecs import NONE, Codec
from headwater.engine.bodies.sealed_block import SealedBlock, body_of, marks_of
from headwater.engine.entries.entry_block import EntryBlock

try:
    import cython
except ImportError:
    from headwater import _cython as cython

if not cython.compiled:  # memory_c.pxd has it in C
    from headwater.native.memory import word_at

_LOOKS = 64
"""Maximum number of blocks that one call of `choose` examines."""

_WORTH = 0.9
"""Maximum compressed size of a block, as a share of its size. A block that shrinks less is kept uncompressed."""


class CompressionJob(NamedTuple):
    """A block to be compressed, stored, or both. Any thread may use it, except for ``block``."""

    sealing: Sealing
    block: EntryBlock
    data: bytearray
    """The bytes to compress; empty if ``packed`` is set."""
    packed: SealedBlock | None
    """The compressed bytes, if the block is sealed already and only has to be stored; otherwise None."""
    booked: int
    """The size for which a hot block is accounted while it is in the job; 0 for a sealed one."""
    origin: int
    """The number of the stream to which the block was added."""
    first: tuple[int, int]
    last: tuple[int, int]
    """The first and the last id, of entries that are live or not."""
    entries: int
    """The number of ids."""
    ids: bytes
    """The ids, packed."""
    marks: bytes
    """Offsets of some entries (sealed_block.py)."""

    @property
    def size(self) -> int:
        """The number of bytes before compression."""
        return len(self.data) if self.packed is None else self.packed.size


def compressed(job: CompressionJob, codec: Codec) -> tuple[str, bytes]:
    """Return the body of a job's block for `Sealing.settle`: the name of its codec, and its bytes. Bytes that do
    not shrink are returned unchanged, with `NONE`. Any thread may call this, with its own codec."""
    if job.packed is not None and job.packed.wire is not None:
        return job.packed.codec, job.packed.wire
    wire = body_of(job.data, job.marks, codec)
    if codec.name == NONE or len(wire) > _WORTH * len(job.data):
        return NONE, bytes(job.data)
    return codec.name, wire


class Sealing(BlockAccount):
    """Chooses blocks of a store. Seals nothing until `configure` is called.

    >>> Sealing().due()
    False
    """

    def __init__(self) -> None:
        BlockAccount.__init__(self)
        self._asked = NO_BOUND
        self._in_jobs = 0

    def configure(self, budget: int, codec: str) -> None:
        """Seal the blocks that exceed ``budget`` bytes, with the codec of this name. `NONE` seals no further
        blocks, or stores them as they are; sealed ones stay sealed. Raises `ValueError` if the codec is not
        installed."""
        if codec != NONE:
            codec = self.bodies.codec(codec).name
        self.codec = codec
        self._asked = budget
        self.press(on=False)

    def press(self, *, on: bool) -> None:
        """Set the budget: 0 while memory is short (``on``), else as configured; no bound if nothing can be sealed."""
        seals = self.codec != NONE or self.storing
        self.budget = NO_BOUND if not seals else 0 if on else self._asked

    def store_in(self, source: BlobSource, *, storing: bool) -> None:
        """Read blobs from ``source``. With ``storing``, `choose` also returns jobs for blocks to be stored,
        whose blobs the caller writes. Call it while the store is empty."""
        self.bodies.source, self.storing = source, storing
        if storing:
            self.most = NO_BOUND
        self.configure(self._asked, self.codec)

    def segments(self) -> dict[int, int]:
        """Return segment → bytes of blobs to which blocks refer, for the segments that have any."""
        return self.use.segments()

    # --- accounts -------------------------------------------------------------------------------

    def memory_bytes(self) -> int:
        """Return the memory of all entries, with the blocks that are open for reading."""
        opened: int = self.bodies.open_bytes()
        return self.hot_bytes + self.kept_bytes + self.sealed_bytes + opened

    # --- sealing --------------------------------------------------------------------------------

    def due(self) -> bool:
        """Return whether `choose` may find something to do."""
        return self.hot_bytes > self.budget or (self.storing and len(self.unstored) > 0)

    def choose(self, most: int) -> list[CompressionJob]:
        """Return at most ``most`` jobs: sealed blocks that are not stored, and the coldest blocks that exceed
        the budget, which are closed."""
        jobs: list[CompressionJob] = []
        while self.storing and self.unstored and len(jobs) < most:
            block = self.unstored.popleft()()
            if block is not None and block.packed is not None and block.packed.blob is None:
                jobs.append(_job(self, block, 0))
        return jobs + self._choose_hot(most - len(jobs), self.budget)

    def _choose_hot(self, most: int, budget: int) -> list[CompressionJob]:
        jobs: list[CompressionJob] = []
        excess = self.hot_bytes - self._in_jobs - budget
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
                jobs.append(_job(self, block, block.booked))
                excess -= block.booked
                self._in_jobs += block.booked
        return jobs

    def settle(
        self,
        job: CompressionJob,
        codec: str,
        wire: bytes | None,
        place: tuple[int, int, int, int] | None = None,
    ) -> bool:
        """Complete a job with the result of `compressed`; ``wire`` is None if the compression failed. ``place``
        is the position of the stored body; None if it was not stored. Return whether the block is stored now."""
        self._in_jobs -= job.booked
        block, packed = job.block, job.packed
        current = block.data is job.data and block.books == HOT
        if packed is not None:
            current = block.packed is packed
        if not current:
            if block.books == HOT:
                self.enqueue_coldest(block)  # It was compacted meanwhile.
            return False
        kept = wire if place is None else None
        made = SealedBlock(codec, kept, job.ids, job.size, job.entries, job.marks)
        if place is not None:
            made.blob = Blob(self.use, place)
            block.pack(made)
            self.sealed_count += packed is None
            return True
        if packed is not None:
            self.unstored.append(ref(block))
        elif wire is None or (len(wire) > _WORTH * len(job.data) and not self.storing):
            block.keep()
        else:
            block.pack(made)
            self.sealed_count += 1
        return False

    def help(self, most: int) -> None:
        """Compress up to ``most`` blocks now if the compressing threads lag behind."""
        self._compress(most, self.budget, self.budget + self.lag)

    def squeeze(self, most: int) -> None:
        """Compress up to ``most`` blocks now, even blocks within the budget, because memory is short."""
        self._compress(most, 0, 0)

    def _compress(self, most: int, budget: int, bound: int) -> None:
        """Compress up to ``most`` of the blocks that exceed ``budget``, while ``bound`` is exceeded."""
        while most > 0 and self.hot_bytes - self._in_jobs > bound and self.codec != NONE:
            jobs = self._choose_hot(1, budget)
            if not jobs:
                return
            self.settle(jobs[0], *compressed(jobs[0], self.bodies.codec(self.codec)))
            most -= 1


def _job(sealing: Sealing, block: EntryBlock, booked: int) -> CompressionJob:
    """Return the job for a closed or sealed block."""
    ids = block.known_ids()
    count = len(ids) // 2
    first = (word_at(ids, 0), word_at(ids, 1))
    last = (word_at(ids, 2 * count - 2), word_at(ids, 2 * count - 1))
    packed, text = block.packed, block.packed_ids()
    marks = marks_of(block.offsets, len(block.data)) if packed is None else packed.marks
    return CompressionJob(
        sealing, block, block.data, packed, booked, block.origin, first, last, count, text, marks
    )
