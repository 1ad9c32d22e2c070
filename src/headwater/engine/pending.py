"""The pending entries list of a group: what was delivered and is not settled, in id order.

    blocks ──▶ PendingBlock  ms seq time owner·count │ ms seq time owner·count │ …   ≤ 256 records
               min_time: no record of the block has an earlier time
               owners: a bit for each owner, its number modulo 64, of any record of the block

A record is four 64-bit words, 32 bytes: the id, the delivery time in Unix ms, and the owner (the
consumer's number in its group, 0 for nobody) in the high half of a word whose low half is the
delivery count. Counts of 2**32-1 and more stand in a side table.

Rule 1. Ids rise from record to record and from block to block; an id occurs once.
Rule 2. ``min_time`` is a lower bound: setting a later time leaves it, a scan may raise it. So is
        the set ``owners`` too large rather than too small, and a scan may reduce it.
Rule 3. The time of a released record is 0; that of a delayed one is its due time, so that a scan
        for idle entries passes over both kinds of block alike.
Rule 4. A position is good until the next insert or remove.

Only `ConsumerGroup` changes a list; commands read it.
"""

from __future__ import annotations

from array import array

from headwater.limits import PENDING_BLOCK_RECORDS

NOBODY = 0
"""Owner of a released or delayed entry."""

NOWHERE = -1
"""The position of what is not in the list."""

_WORDS = 4
_SHIFT = 20
"""A position is the block's index shifted by so many bits, plus the record's index."""
_MASK = (1 << _SHIFT) - 1
_BIG = 2**32 - 1
_OWNER_BITS = 63
"""Owners are told apart in ``PendingBlock.owners`` by so much of their number."""


class PendingBlock:
    """Up to 256 records; see the drawing above."""

    def __init__(self) -> None:
        self.words: array[int] = array("Q")
        self.min_time = 2**64 - 1
        self.owners = 0

    def copy(self) -> PendingBlock:
        made = PendingBlock()
        made.words, made.min_time, made.owners = self.words[:], self.min_time, self.owners
        return made

    def count(self) -> int:
        return len(self.words) // _WORDS

    def take_over(self, above: PendingBlock) -> None:
        """Append the records of the block above."""
        self.words.extend(above.words)
        self.min_time = min(self.min_time, above.min_time)
        self.owners |= above.owners

    def settle_min_time(self) -> None:
        """Make ``min_time`` exact again; a scan does so before it looks into the block."""
        self.min_time = min(self.words[2::_WORDS])

    def first_of(self, owner: int, index: int) -> int:
        """Index of the first record from ``index`` on that ``owner`` owns, or `NOWHERE`."""
        if not self.owners >> (owner & _OWNER_BITS) & 1:
            return NOWHERE
        words = self.words
        for at in range(index * _WORDS + 3, len(words), _WORDS):
            if words[at] >> 32 == owner:
                return at // _WORDS
        if index == 0:
            self.settle_owners()
        return NOWHERE

    def all_delivered_after(self, time: int) -> bool:
        """Every record is owned and was delivered after ``time``."""
        if self.owners & 1 << NOBODY:
            return False
        if self.min_time <= time:
            self.settle_min_time()
        return self.min_time > time

    def settle_owners(self) -> None:
        """Make ``owners`` exact again."""
        owners = 0
        for word in self.words[3::_WORDS]:
            owners |= 1 << (word >> 32 & _OWNER_BITS)
        self.owners = owners

    def lower_bound(self, ms: int, seq: int) -> int:
        """Index of the first record whose id is at least ``ms-seq``."""
        words = self.words
        low, high = 0, len(words) // _WORDS
        while low < high:
            middle = (low + high) // 2
            found = words[_WORDS * middle]
            if found < ms or (found == ms and words[_WORDS * middle + 1] < seq):
                low = middle + 1
            else:
                high = middle
        return low


class PendingList:
    """Records by id. Positions are plain integers; walk with ``at = pel.seek(…)``, ``pel.after(at)``.

    >>> pel = PendingList()
    >>> at = pel.insert(5, 1, owner=1, time=1000, count=1)
    >>> pel.id(at), pel.owner(at), pel.time(at), pel.delivery_count(at), len(pel)
    ((5, 1), 1, 1000, 1, 1)
    """

    def __init__(self) -> None:
        self.blocks: list[PendingBlock] = []
        self.length = 0
        self.big_counts: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return self.length

    def copy(self) -> PendingList:
        """The same records, block by block."""
        made = PendingList()
        made.blocks = [block.copy() for block in self.blocks]
        made.length, made.big_counts = self.length, dict(self.big_counts)
        return made

    # --- finding --------------------------------------------------------------------------------

    def find(self, ms: int, seq: int) -> int:
        """The position of ``ms-seq``, or `NOWHERE`."""
        at = self.seek(ms, seq)
        if at != NOWHERE and self.id(at) == (ms, seq):
            return at
        return NOWHERE

    def seek(self, ms: int, seq: int) -> int:
        """The position of the first record whose id is at least ``ms-seq``, or `NOWHERE`."""
        index = self._block_of(ms, seq)
        if index == len(self.blocks):
            return NOWHERE
        return (index << _SHIFT) | self.blocks[index].lower_bound(ms, seq)

    def after(self, at: int) -> int:
        """The position behind ``at``, or `NOWHERE`."""
        block = at >> _SHIFT
        if (at & _MASK) + 1 < self.blocks[block].count():
            return at + 1
        return self.block_start(block + 1)

    def before(self, at: int) -> int:
        """The position before ``at``, or `NOWHERE`."""
        if at & _MASK:
            return at - 1
        block = (at >> _SHIFT) - 1
        return (block << _SHIFT) | (self.blocks[block].count() - 1) if block >= 0 else NOWHERE

    def owned_from(self, at: int, owner: int) -> int:
        """The position of the first record from ``at`` on that ``owner`` owns, or `NOWHERE`; blocks
        without one are passed over."""
        number, index = at >> _SHIFT, at & _MASK
        while at != NOWHERE and number < len(self.blocks):
            found = self.blocks[number].first_of(owner, index)
            if found != NOWHERE:
                return (number << _SHIFT) | found
            number += 1
            index = 0
        return NOWHERE

    def delivered_from(self, at: int, time: int) -> int:
        """``at``, or where it begins a block, the beginning of the first block that has a record which
        is unowned or was delivered by ``time``; `NOWHERE` when none has."""
        while (
            at != NOWHERE and not at & _MASK and self.blocks[at >> _SHIFT].all_delivered_after(time)
        ):
            at = self.block_start((at >> _SHIFT) + 1)
        return at

    def block_start(self, block: int) -> int:
        """The position of the first record of block number ``block``, or `NOWHERE`."""
        return block << _SHIFT if block < len(self.blocks) else NOWHERE

    def block_at(self, at: int) -> tuple[int, PendingBlock]:
        """Number and block of a position, for scans that pass over whole blocks."""
        return at >> _SHIFT, self.blocks[at >> _SHIFT]

    @staticmethod
    def index_in_block(at: int) -> int:
        """Which record of its block a position means."""
        return at & _MASK

    def first(self) -> tuple[int, int]:
        """Smallest id; the list is not empty."""
        words = self.blocks[0].words
        return words[0], words[1]

    def last(self) -> tuple[int, int]:
        """Greatest id; the list is not empty."""
        words = self.blocks[-1].words
        return words[-_WORDS], words[1 - _WORDS]

    # --- reading --------------------------------------------------------------------------------

    def id(self, at: int) -> tuple[int, int]:
        words = self.blocks[at >> _SHIFT].words
        index = (at & _MASK) * _WORDS
        return words[index], words[index + 1]

    def time(self, at: int) -> int:
        """Delivery time in Unix ms; 0 if released, the due time if delayed."""
        return self.blocks[at >> _SHIFT].words[(at & _MASK) * _WORDS + 2]

    def owner(self, at: int) -> int:
        """The consumer's number, or `NOBODY`."""
        return self.blocks[at >> _SHIFT].words[(at & _MASK) * _WORDS + 3] >> 32

    def delivery_count(self, at: int) -> int:
        count = self.blocks[at >> _SHIFT].words[(at & _MASK) * _WORDS + 3] & _BIG
        return count if count != _BIG else self.big_counts[self.id(at)]

    # --- changing -------------------------------------------------------------------------------

    def insert(self, ms: int, seq: int, *, owner: int, time: int, count: int) -> int:
        """Add a record for an id that is not in the list; its position."""
        number = self._block_of(ms, seq)
        if number == len(self.blocks):
            if not self.blocks or self.blocks[-1].count() == PENDING_BLOCK_RECORDS:
                self.blocks.append(PendingBlock())
            number = len(self.blocks) - 1
        block = self.blocks[number]
        index = block.lower_bound(ms, seq)
        if block.count() == PENDING_BLOCK_RECORDS:
            number, index = self._split(number, index)
            block = self.blocks[number]
        block.words[_WORDS * index : _WORDS * index] = array("Q", (ms, seq, 0, 0))
        self.length += 1
        at = (number << _SHIFT) | index
        self.change(at, owner=owner, time=time, count=count)
        return at

    def change(self, at: int, *, owner: int, time: int, count: int) -> None:
        """Give the record at ``at`` another owner, time and delivery count."""
        block = self.blocks[at >> _SHIFT]
        index = (at & _MASK) * _WORDS
        if self.big_counts or count >= _BIG:
            self._keep_big(self.id(at), count)
        block.words[index + 2] = time
        block.words[index + 3] = (owner << 32) | min(count, _BIG)
        block.min_time = min(block.min_time, time)
        block.owners |= 1 << (owner & _OWNER_BITS)

    def remove_owner(self, owner: int) -> int:
        """Forget all records of ``owner``, block by block; how many they were."""
        before = self.length
        kept: list[PendingBlock] = []
        for block in self.blocks:
            if block.first_of(owner, 0) != NOWHERE:
                self._remove_from(block, owner)
            if not block.words:
                continue
            if kept and kept[-1].count() + block.count() <= PENDING_BLOCK_RECORDS // 2:
                kept[-1].take_over(block)
            else:
                kept.append(block)
        self.blocks = kept
        self.length = sum(block.count() for block in kept)
        return before - self.length

    def _remove_from(self, block: PendingBlock, owner: int) -> None:
        left: array[int] = array("Q")
        words = block.words
        for at in range(0, len(words), _WORDS):
            if words[at + 3] >> 32 != owner:
                left.extend(words[at : at + _WORDS])
            elif self.big_counts:
                self.big_counts.pop((words[at], words[at + 1]), None)
        block.words = left
        block.settle_owners()

    def remove(self, at: int) -> None:
        """Forget the record at ``at``."""
        number = at >> _SHIFT
        block = self.blocks[number]
        index = (at & _MASK) * _WORDS
        if self.big_counts:
            self.big_counts.pop(self.id(at), None)
        del block.words[index : index + _WORDS]
        self.length -= 1
        if not block.words:
            del self.blocks[number]
        elif block.count() < PENDING_BLOCK_RECORDS // 4:
            self._merge(number)

    def _keep_big(self, id: tuple[int, int], count: int) -> None:
        if count >= _BIG:
            self.big_counts[id] = count
        else:
            self.big_counts.pop(id, None)

    def _block_of(self, ms: int, seq: int) -> int:
        """Number of the first block whose last id is at least ``ms-seq``; maybe past the last."""
        blocks = self.blocks
        low, high = 0, len(blocks)
        while low < high:
            middle = (low + high) // 2
            words = blocks[middle].words
            found = words[-_WORDS]
            if found < ms or (found == ms and words[1 - _WORDS] < seq):
                low = middle + 1
            else:
                high = middle
        return low

    def _split(self, number: int, index: int) -> tuple[int, int]:
        """Halve a full block; where the record meant for ``index`` of it goes now."""
        block, half = self.blocks[number], PENDING_BLOCK_RECORDS // 2
        upper = PendingBlock()
        upper.words = block.words[_WORDS * half :]
        upper.min_time, upper.owners = block.min_time, block.owners
        del block.words[_WORDS * half :]
        self.blocks.insert(number + 1, upper)
        return (number, index) if index <= half else (number + 1, index - half)

    def _merge(self, number: int) -> None:
        """Join a sparse block to a neighbour when both fit into half a block: acknowledging at
        random must not leave a block for each survivor."""
        for left in (number - 1, number):
            if 0 <= left and left + 1 < len(self.blocks):
                lower, upper = self.blocks[left], self.blocks[left + 1]
                if lower.count() + upper.count() <= PENDING_BLOCK_RECORDS // 2:
                    lower.take_over(upper)
                    del self.blocks[left + 1]
                    return
