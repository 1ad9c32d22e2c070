"""Accounts for the memory of the blocks of entries of a store, and lists the blocks that can be sealed or stored.

`headwater.engine.tier.sealing.Sealing` extends it, and decides with these sums which blocks are sealed. A block reports
its own size here, and does not import `Sealing`.
"""

from __future__ import annotations

from collections import deque
from typing import Any
from weakref import ref

from headwater.common import limits
from headwater.engine.bodies.blobs import SegmentUse
from headwater.engine.bodies.bodies import Bodies
from headwater.engine.bodies.codecs import NONE

KEPT, HOT, SEALED = 0, 1, 2
"""Accounts of blocks: not to be sealed, to be sealed, sealed."""

NO_BOUND = 2**62


class BlockAccount:
    """Sums and queues of blocks (`EntryBlock`)."""

    def __init__(self) -> None:
        self.block_bytes = limits.BLOCK_MAX_BYTES
        self.least = limits.SEALED_LEAST_BYTES
        self.most = limits.SEALED_MOST_BYTES
        self.lag = limits.SEALING_LAG_BYTES
        self.budget = NO_BOUND
        """Number of bytes of blocks that may stay uncompressed. With `NO_BOUND`, nothing is sealed."""
        self.hot_bytes = 0
        """Size of blocks that are to be sealed when their turn comes, including those in compression jobs."""
        self.kept_bytes = 0
        """Size of blocks that are not to be sealed, at least not at their present size (sealing.py, rule 4)."""
        self.sealed_bytes = 0
        """Size of sealed blocks."""
        self.sealed_size = 0
        """Size of the entries of sealed blocks before compression."""
        self.sealed_count = 0
        """Number of blocks ever sealed, or stored without being sealed before."""
        self.stored_count = 0
        """Number of blocks ever stored. 0 means that no block is on disk."""
        self.stored_size = 0
        """Size of the entries of stored blocks before compression. Part of ``sealed_size``."""
        self.codec = NONE
        self.order: deque[tuple[ref[Any], bool]] = deque()
        """Blocks that can be sealed, coldest first, each with True if it was skipped once (sealing.py, rule 3)."""
        self.storing = False
        """True if blocks are to be stored, even while the disk does not accept any. `store_in` sets it."""
        self.unstored: deque[ref[Any]] = deque()
        self.bodies = Bodies()
        self.use = SegmentUse()

    def book(self, books: int, size: int) -> None:
        """Add ``size``, which may be negative, to one of the accounts."""
        if books == HOT:
            self.hot_bytes += size
        elif books == KEPT:
            self.kept_bytes += size
        else:
            self.sealed_bytes += size

    def enqueue(self, block: Any) -> None:
        """Make ``block`` available for sealing, as the warmest one."""
        self.order.append((ref(block), False))

    def enqueue_coldest(self, block: Any) -> None:
        """Make ``block``, whose turn had come before, available for sealing as the coldest one."""
        self.order.appendleft((ref(block), True))
