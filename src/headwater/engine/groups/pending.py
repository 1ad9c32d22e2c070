"""The pending entries list of a group: entries that were delivered and not acknowledged, in id order.

    blocks ──▶ PendingBlock │ PendingBlock │ …   up to 256 records each (pending_block.py)

Rule 1. Ids are strictly ascending within a block and from block to block. A block without records does
        not exist.
Rule 2. The time of a released record is 0. The time of a delayed record is its due time.
Rule 3. A position is valid until a record is added or removed.
Rule 4. A block that may have a record whose entry was deleted is ``dangling``. It need not be if the entry was
        trimmed: the stream stores the id up to which it was trimmed (``max_trimmed_id``).

Only `ConsumerGroup` changes a list; commands read it.
"""

from __future__ import annotations

from array import array

from headwater.common.limits import PENDING_BLOCK_RECORDS
from headwater.engine.accounts.memory_account import BLOCK_BYTES, FULL_BLOCK_BYTES, MemoryAccount
from headwater.engine.groups.pending_block import BIG, PendingBlock, expected_at

try:
    import cython
except ImportError:
    from headwater import _cython as cython

if not cython.compiled:  # memory_c.pxd has them in C
    from headwater.native.memory import copy_words, remove_words, word_at

NOBODY = 0
"""Owner of a released or delayed entry."""

NOWHERE = -1
"""The position of an id that is not in the list."""

_WORDS = 4
_SHIFT = 20
"""A position is the number of a block shifted by this many bits, plus the number of a record in the block."""
_MASK = (1 << _SHIFT) - 1
_BIG = 2**32 - 1


class PendingList:
    """Pending records by id. Positions are integers; iterate with ``at = pel.seek(…)``, ``pel.after(at)``.

    >>> pel = PendingList()
    >>> at = pel.insert(5, 1, owner=1, time=1000, count=1)
    >>> pel.id(at), pel.owner(at), pel.time(at), pel.delivery_count(at), len(pel)
    ((5, 1), 1, 1000, 1, 1)
    """

    def __init__(self, account: MemoryAccount | None = None) -> None:
        self.account = account if account is not None else MemoryAccount()
        self.booked = 0
        self.blocks: list[PendingBlock] = []
        self.length = 0
        self.big_counts: dict[tuple[int, int], int] = {}
        self._near = 0
        """Number of the block in which an id was last found. The next id is usually in the same block."""

    def __del__(self) -> None:
        self.account.pending -= self.booked

    def __len__(self) -> int:
        return self.length

    def book(self) -> None:
        """Account for the blocks. All but the last have space for `PENDING_BLOCK_RECORDS`."""
        size, count = 0, len(self.blocks)
        if count:
            last = self.blocks[count - 1]
            size = (count - 1) * FULL_BLOCK_BYTES + BLOCK_BYTES + 8 * len(last.words)
        if size != self.booked:
            self.account.pending += size - self.booked
            self.booked = size

    def copy(self) -> PendingList:
        """Return a copy of the list, copied block by block."""
        made = PendingList(self.account)
        made.blocks = [block.copy() for block in self.blocks]
        made.length, made.big_counts = self.length, dict(self.big_counts)
        made.book()
        return made

    # --- finding --------------------------------------------------------------------------------

    def find(self, ms: int, seq: int) -> int:
        """Return the position of ``ms-seq``, or `NOWHERE`."""
        number = self._near
        if number < len(self.blocks):
            block = self.blocks[number]
            found = block.find_next(ms, seq)
            if found >= 0:
                return (number << _SHIFT) | found
        number = self._block_of(ms, seq)
        if number == len(self.blocks):
            return -1
        block = self.blocks[number]
        found = block.find(ms, seq)
        return found if found < 0 else (number << _SHIFT) | found

    def seek(self, ms: int, seq: int) -> int:
        """Return the position of the first record whose id is at least ``ms-seq``, or `NOWHERE`."""
        number = self._block_of(ms, seq)
        if number == len(self.blocks):
            return -1
        block = self.blocks[number]
        return (number << _SHIFT) | block.lower_bound(ms, seq)

    def after(self, at: int) -> int:
        """Return the position after ``at``, or `NOWHERE`."""
        block = self.block_at(at)
        if (at & _MASK) + 1 < block.end:
            return at + 1
        return self.block_start((at >> _SHIFT) + 1)

    def before(self, at: int) -> int:
        """Return the position before ``at``, or `NOWHERE`."""
        block = self.block_at(at)
        if at & _MASK > block.head:
            return at - 1
        number = (at >> _SHIFT) - 1
        if number < 0:
            return -1
        block = self.blocks[number]
        return (number << _SHIFT) | (block.end - 1)

    def owned_from(self, at: int, owner: int) -> int:
        """Return the position of the first record from ``at`` on that ``owner`` owns, or `NOWHERE`. Skips
        blocks without such a record."""
        while at >= 0:
            block = self.block_at(at)
            found = block.first_of(owner, at & _MASK)
            if found >= 0:
                return at - (at & _MASK) + found
            at = self.block_start((at >> _SHIFT) + 1)
        return at

    def delivered_from(self, at: int, time: int) -> int:
        """Skip blocks in which every record has an owner and was delivered after ``time``, if ``at`` is the start
        of a block. Return the position that is reached, or `NOWHERE` if no block is left."""
        while at >= 0:
            block = self.block_at(at)
            if at & _MASK != block.head or not block.all_delivered_after(time):
                break
            at = self.block_start((at >> _SHIFT) + 1)
        return at

    def block_start(self, number: int) -> int:
        """Return the position of the first record of block number ``number``, or `NOWHERE`."""
        if number >= len(self.blocks):
            return -1
        block = self.blocks[number]
        return (number << _SHIFT) | block.head

    def block_at(self, at: int) -> PendingBlock:
        """Return the block of a position, for scans that skip whole blocks."""
        return self.blocks[at >> _SHIFT]

    def number_of(self, at: int) -> int:
        """Return the number of the block of a position."""
        return at >> _SHIFT

    def number_in_block(self, at: int) -> int:
        """Return the number of a position's record in its block."""
        return at & _MASK

    def first(self) -> tuple[int, int]:
        """Return the smallest id. The list must not be empty."""
        return self.id(self.block_start(0))

    def last(self) -> tuple[int, int]:
        """Return the greatest id. The list must not be empty."""
        number = len(self.blocks) - 1
        block = self.blocks[number]
        return self.id((number << _SHIFT) | (block.end - 1))

    def ends_before(self, ms: int, seq: int) -> bool:
        """Return whether all ids are less than ``ms-seq``."""
        number = len(self.blocks) - 1
        if number < 0:
            return True
        block = self.blocks[number]
        return block.ends_before(ms, seq)

    def same_ids(self, at: int, ids: array[int], start: int) -> int:
        """Return the number of consecutive records from ``at`` on, in the same block, that have the same ids as
        ``ids`` from number ``start`` on, two words each."""
        return self.block_at(at).same_ids(at & _MASK, ids, start)

    def same_owner(self, at: int, most: int) -> int:
        """Return the number of consecutive records from ``at`` on that have the owner of the first. Looks at
        ``most`` records, all of one block."""
        return self.block_at(at).same_owner(at & _MASK, most)

    def keep_pending(self, ids: array[int]) -> None:
        """Remove the ids that are not in the list from ``ids``, which has two words for each."""
        kept, number, total = 0, 0, len(ids) // 2
        while number < total:
            at = self.find(word_at(ids, 2 * number), word_at(ids, 2 * number + 1))
            same = 1
            if at >= 0:
                same = self.same_ids(at, ids, number)
                if kept < number:
                    copy_words(ids, 2 * kept, ids, 2 * number, 2 * same)
                kept += same
            number += same
        if kept < total:
            remove_words(ids, 2 * kept, 2 * (total - kept))

    # --- reading --------------------------------------------------------------------------------

    def id(self, at: int) -> tuple[int, int]:
        return self.ms(at), self.seq(at)

    def ms(self, at: int) -> int:
        """Return the first half of the id at a position."""
        return word_at(self.block_at(at).words, (at & _MASK) * _WORDS)

    def seq(self, at: int) -> int:
        """Return the second half of the id at a position."""
        return word_at(self.block_at(at).words, (at & _MASK) * _WORDS + 1)

    def time(self, at: int) -> int:
        """Return the delivery time in steady ms; 0 if released, the due time if delayed."""
        return word_at(self.block_at(at).words, (at & _MASK) * _WORDS + 2)

    def owner(self, at: int) -> int:
        """Return the number of the owner, or `NOBODY`."""
        return word_at(self.block_at(at).words, (at & _MASK) * _WORDS + 3) >> 32

    def delivery_count(self, at: int) -> int:
        count = word_at(self.block_at(at).words, (at & _MASK) * _WORDS + 3) & _BIG
        return count if count != _BIG else self.big_counts[self.id(at)]

    # --- changing -------------------------------------------------------------------------------

    def append(self, ids: array[int], first: int, end: int, time: int, owner: int) -> int:
        """Append records for the ids number ``first`` to ``end``-1, two words each, with delivery count 1.
        The ids must be ascending and above all in the list. Return the position of the first record."""
        start = -1
        self.length += end - first
        while first < end:
            number = len(self.blocks) - 1
            block = self.blocks[number] if number >= 0 else None
            room = 0 if block is None else _room_of(block)
            if block is None or not room:
                block, room, number = PendingBlock(), PENDING_BLOCK_RECORDS, number + 1
                self.blocks.append(block)
            count = min(room, end - first)
            found = block.append(ids, first, count, time, owner, PENDING_BLOCK_RECORDS)
            if start < 0:
                start = (number << _SHIFT) | found
            first += count
        self.book()
        return start

    def insert(self, ms: int, seq: int, owner: int, time: int, count: int) -> int:
        """Insert a record for an id that is not in the list. Return its position."""
        number = self._block_of(ms, seq)
        if number == len(self.blocks):
            if number and _room_of(self.blocks[number - 1]):
                number -= 1
            else:
                self.blocks.append(PendingBlock())
        block = self.blocks[number]
        if block.end - block.head >= PENDING_BLOCK_RECORDS:
            self.blocks.insert(number + 1, block.split(PENDING_BLOCK_RECORDS))
            if block.ends_before(ms, seq):
                number += 1
                block = self.blocks[number]
        place = block.open(block.lower_bound(ms, seq), ms, seq, PENDING_BLOCK_RECORDS)
        self.length += 1
        at = (number << _SHIFT) | place
        self.change(at, owner, time, count)
        self.book()
        return at

    def change(self, at: int, owner: int, time: int, count: int) -> None:
        """Set the owner, time and delivery count of the record at ``at``."""
        block = self.block_at(at)
        if self.big_counts or count >= BIG:
            self._keep_big(self.id(at), count)
        block.set(at & _MASK, time, owner, min(count, _BIG))

    def remove_owner(self, owner: int) -> int:
        """Remove all records of ``owner``, block by block. Return their number."""
        before = self.length
        kept: list[PendingBlock] = []
        for block in self.blocks:
            if block.first_of(owner, block.head) >= 0:
                self._remove_from(block, owner)
            if not block.count():
                continue
            last = kept[-1] if kept else None
            if last and last.count() + block.count() <= PENDING_BLOCK_RECORDS // 2:
                last.take_over(block, PENDING_BLOCK_RECORDS)
            else:
                kept.append(block)
        self.blocks, self.length = kept, sum([block.count() for block in kept])
        self.book()
        return before - self.length

    def _remove_from(self, block: PendingBlock, owner: int) -> None:
        number = block.first_of(owner, block.head)
        while number >= 0:
            if self.big_counts:
                at = _WORDS * number
                self.big_counts.pop((word_at(block.words, at), word_at(block.words, at + 1)), None)
            block.close(number, 1)
            number = block.first_of(owner, max(number, block.head))
        block.settle_owners()

    def remove(self, at: int, count: int = 1) -> None:
        """Remove ``count`` records from ``at`` on, all of one block."""
        number = at >> _SHIFT
        block = self.blocks[number]
        if self.big_counts:
            for one in range(at, at + count):
                self.big_counts.pop(self.id(one), None)
        block.close(at & _MASK, count)
        self.length -= count
        there = block.end - block.head
        if not there:
            del self.blocks[number]
            self.book()
        elif there < PENDING_BLOCK_RECORDS // 4:
            self._merge(number)

    def mark_gone(self, ms: int, seq: int) -> None:
        """Mark the block of ``ms-seq``, if it is pending, as dangling: the entry was deleted (rule 4)."""
        at = self.find(ms, seq)
        if at >= 0:
            self.block_at(at).dangling = True

    def _keep_big(self, id: tuple[int, int], count: int) -> None:
        if count >= BIG:
            self.big_counts[id] = count
        else:
            self.big_counts.pop(id, None)

    def _block_of(self, ms: int, seq: int) -> int:
        """Return the number of the first block whose last id is at least ``ms-seq``, or the number of blocks."""
        blocks = self.blocks
        low, high = 0, len(blocks)
        if self._near < high:
            block = blocks[self._near]
            if not block.ends_before(ms, seq):
                if not block.begins_after(ms, seq):
                    return self._near
                high = self._near + 1
        # Galloping search from the expected block, then binary search.
        middle = self._expected(ms, high) if high else -1
        step = 1 if middle >= 0 else high
        while low < high:
            if not low <= middle < high:
                middle = (low + high) // 2
            block = blocks[middle]
            if block.ends_before(ms, seq):
                low = middle + 1
                middle += step
            elif block.begins_after(ms, seq):
                high = middle
                middle -= step
            else:
                low = high = middle
            step *= 2
        self._near = low
        return low

    def _expected(self, ms: int, count: int) -> int:
        """Estimate the number of the block that has records of ``ms``, among the first ``count``, or return -1."""
        first, last = self.blocks[0], self.blocks[count - 1]
        return expected_at(ms, first.first_ms(), last.last_ms(), count)

    def _merge(self, number: int) -> None:
        """Join a sparse block with a neighbour if together they fill half a block or less: acknowledging in random
        order must not leave one block for each remaining record."""
        for left in (number - 1, number):
            if 0 <= left and left + 1 < len(self.blocks):
                lower, upper = self.blocks[left], self.blocks[left + 1]
                if lower.count() + upper.count() <= PENDING_BLOCK_RECORDS // 2:
                    lower.take_over(upper, PENDING_BLOCK_RECORDS)
                    del self.blocks[left + 1]
                    self.book()
                    return


def _room_of(block: PendingBlock) -> int:
    """Return the number of records that can be appended. The records of a block that is more than half full are
    not moved to its front to make room."""
    there = block.end - block.head
    return PENDING_BLOCK_RECORDS - (block.end if 2 * there > PENDING_BLOCK_RECORDS else there)
