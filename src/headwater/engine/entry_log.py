r"""The entries of one stream, stored as the bytes of their replies.

    EntryLog ── blocks ──▶ EntryBlock            EntryBlock            EntryBlock (open)
                           data     *2␍␊$15␍␊1526569498055-0␍␊*4␍␊$4␍␊item␍␊… │ *2␍␊$15␍␊… │ …
                           offsets  0                                         62           …
                           ids      1526569498055 0                           1526569498055 1
                           dead     0                                         1            0
                           head ──▶ first entry that was not trimmed

Rule 1. Bytes are written once, by `append`; every reader takes slices. An entry is the same in RESP2
        and RESP3: an array of its id and the flat array of its fields.
Rule 2. A block knows how many of its entries live; a block without a live entry does not exist.
Rule 3. A trim moves ``head``; a deletion in the middle marks ``dead``; one at the end takes the
        entry off. So a block begins (at ``head``) and ends with a live entry. A block whose dead
        bytes outweigh the live ones is compacted.
Rule 4. A copied log has the same blocks, which are ``shared`` from then on: whoever is to change one
        first takes a copy of it for itself, so a copy of any stream is made at once.

Ids rise strictly, so blocks and the entries in them are searched by halving.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from headwater.limits import BLOCK_MAX_BYTES
from headwater.memory import ENTRY_HEADER_BYTES

if TYPE_CHECKING:
    from headwater import _cython as cython
else:
    try:
        import cython
    except ImportError:
        from headwater import _cython as cython

if not cython.compiled:  # memory_c.pxd has them in C
    from headwater.memory import append_entry, offset_at, push_offset, push_word, word_at


class EntryBlock:
    """Entries back to back; see the drawing above. ``live`` counts those that are not dead."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.ids: array[int] = array("Q")
        self.offsets: array[int] = array("I")
        self.dead: bytearray | None = None
        self.head = 0
        self.count = 0
        self.live = 0
        self.dead_bytes = 0
        self.shared = False

    def copy(self) -> EntryBlock:
        made = EntryBlock()
        made.data, made.ids, made.offsets = self.data[:], self.ids[:], self.offsets[:]
        made.dead = None if self.dead is None else self.dead[:]
        made.head, made.count, made.live = self.head, self.count, self.live
        made.dead_bytes = self.dead_bytes
        return made  # and shared by nobody

    def start(self, index: int) -> int:
        """Offset of entry ``index``; ``count`` gives the end of the data."""
        return offset_at(self.offsets, index) if index < self.count else len(self.data)

    def lives(self, index: int) -> bool:
        return index >= self.head and (self.dead is None or not self.dead[index])

    def lower_bound(self, ms: int, seq: int) -> int:
        """Index of the first entry, dead or alive, whose id is at least ``ms-seq``; maybe ``count``."""
        low, high = self.head, self.count
        ids = self.ids
        while low < high:
            middle = (low + high) // 2
            found = word_at(ids, 2 * middle)
            if found < ms or (found == ms and word_at(ids, 2 * middle + 1) < seq):
                low = middle + 1
            else:
                high = middle
        return low

    def kill(self, index: int) -> None:
        """Remove the live entry ``index``; a block whose last one went is thrown away."""
        self.live -= 1
        self.dead_bytes += self.start(index + 1) - self.offsets[index]
        if self.live == 0:
            return
        if index == self.head:
            self.head += 1
            while not self.lives(self.head):
                self.head += 1
        elif index == self.count - 1:
            self._cut_tail()
        else:
            if self.dead is None:
                self.dead = bytearray(self.count)
            self.dead[index] = 1

    def _cut_tail(self) -> None:
        """Take off the last entry and the dead before it, so that ids rise however ``last_id``
        was set back."""
        count = self.count - 1
        while not self.lives(count - 1):
            count -= 1
        end = self.offsets[count]
        self.dead_bytes -= len(self.data) - end
        del self.data[end:]
        del self.offsets[count:]
        del self.ids[2 * count :]
        if self.dead is not None:
            del self.dead[count:]
        self.count = count

    def compact(self) -> None:
        """Drop the bytes of the dead."""
        data, ids, offsets = bytearray(), array("Q"), array("I")
        for index in range(self.head, self.count):
            if self.lives(index):
                offsets.append(len(data))
                ids.extend(self.ids[2 * index : 2 * index + 2])
                data += self.data[self.offsets[index] : self.start(index + 1)]
        self.data, self.ids, self.offsets = data, ids, offsets
        self.dead, self.head, self.dead_bytes = None, 0, 0
        self.count = len(offsets)


class Span:
    """Neighbouring live entries of one block: indexes ``first`` to ``end``-1."""

    def __init__(self, block: EntryBlock, first: int, end: int) -> None:
        self.block = block
        self.first = first
        self.end = end

    def start(self) -> int:
        """Where their bytes begin in the block."""
        return offset_at(self.block.offsets, self.first)

    def stop(self) -> int:
        """Behind their last byte."""
        return self.block.start(self.end)

    def wire(self) -> bytearray:
        """Their bytes, as they stand in a reply."""
        return self.block.data[self.start() : self.stop()]

    def ids(self) -> list[tuple[int, int]]:
        ids = self.block.ids
        return [(ids[2 * at], ids[2 * at + 1]) for at in range(self.first, self.end)]


class EntryLog:
    """The live entries of a stream in id order.

    >>> log = EntryLog()
    >>> log.append(5, 0, bytearray(b"$1\\r\\na\\r\\n$1\\r\\nb\\r\\n"), 0, 14, 1)
    >>> log.get(5, 0)
    b'*2\\r\\n$3\\r\\n5-0\\r\\n*2\\r\\n$1\\r\\na\\r\\n$1\\r\\nb\\r\\n'
    """

    def __init__(self) -> None:
        self.blocks: list[EntryBlock] = []
        self.length = 0

    def copy(self) -> EntryLog:
        """The same entries, in the same blocks (rule 4)."""
        made = EntryLog()
        for block in self.blocks:
            block.shared = True
        made.blocks, made.length = list(self.blocks), self.length
        return made

    def _own(self, at: int) -> EntryBlock:
        """Block number ``at``, to be changed."""
        block = self.blocks[at]
        if block.shared:
            block = self.blocks[at] = block.copy()
        return block

    def append(self, ms: int, seq: int, wire: bytearray, start: int, end: int, pairs: int) -> None:
        """Add an entry behind all others; its ``pairs`` fields and values are the bytes of ``wire``
        from ``start`` to ``end``-1, in RESP."""
        blocks = self.blocks
        last = len(blocks) - 1
        if last >= 0:
            block = blocks[last]
            size = len(block.data)
            if size + ENTRY_HEADER_BYTES + end - start > BLOCK_MAX_BYTES:
                block = self._open()
            elif block.shared:
                block = self._own(last)
        else:
            block = self._open()
        push_offset(block.offsets, len(block.data))
        push_word(block.ids, ms)
        push_word(block.ids, seq)
        append_entry(block.data, ms, seq, pairs * 2, wire, start, end)
        if block.dead is not None:
            block.dead.append(0)
        block.count += 1
        block.live += 1
        self.length += 1

    def _open(self) -> EntryBlock:
        block = EntryBlock()
        self.blocks.append(block)
        return block

    def first(self) -> tuple[int, int]:
        """Id of the first live entry, (0, 0) when there is none."""
        if not self.blocks:
            return 0, 0
        block = self.blocks[0]
        return word_at(block.ids, 2 * block.head), word_at(block.ids, 2 * block.head + 1)

    def last(self) -> tuple[int, int]:
        """Id of the last live entry, (0, 0) when there is none."""
        if not self.blocks:
            return 0, 0
        ids = self.blocks[-1].ids
        return ids[-2], ids[-1]

    def get(self, ms: int, seq: int) -> bytes | None:
        """The bytes of the live entry ``ms-seq``, None when there is none."""
        at = self._block_of(ms, seq)
        if at >= len(self.blocks):
            return None
        block = self.blocks[at]
        index = self._exact(block, ms, seq)
        return (
            bytes(block.data[block.offsets[index] : block.start(index + 1)]) if index >= 0 else None
        )

    def contains(self, ms: int, seq: int) -> bool:
        at = self._block_of(ms, seq)
        return at < len(self.blocks) and self._exact(self.blocks[at], ms, seq) >= 0

    def delete(self, ms: int, seq: int) -> bool:
        """Remove the entry ``ms-seq``; False when there is none alive."""
        at = self._block_of(ms, seq)
        if at >= len(self.blocks):
            return False
        index = self._exact(self.blocks[at], ms, seq)
        if index < 0:
            return False
        block = self._own(at)
        block.kill(index)
        self.length -= 1
        if block.live == 0:
            del self.blocks[at]
        elif block.dead_bytes * 2 > len(block.data):
            block.compact()
        return True

    def trim_through(self, ms: int, seq: int) -> int:
        """Remove all entries whose id is at most ``ms-seq``; how many lived."""
        gone = 0
        at = self._block_of(ms, seq)
        for block in self.blocks[:at]:
            gone += block.live
        del self.blocks[:at]
        if self.blocks:
            block = self._own(0)
            for index in range(block.head, self._behind(block, ms, seq)):
                if block.lives(index):
                    block.kill(index)
                    gone += 1
            if block.live == 0:
                del self.blocks[0]
            elif block.dead_bytes * 2 > len(block.data):
                block.compact()
        self.length -= gone
        return gone

    def spans(
        self, start: tuple[int, int], end: tuple[int, int], count: int = -1
    ) -> tuple[list[Span], int]:
        """Live entries from ``start`` to ``end``, both included, at most ``count`` (-1: all), as
        spans in id order, and how many they are."""
        spans: list[Span] = []
        total = 0
        at = self._block_of(start[0], start[1])
        first = True
        while at < len(self.blocks) and total != count:
            block = self.blocks[at]
            index = block.lower_bound(start[0], start[1]) if first else block.head
            first = False
            stop = self._behind(block, end[0], end[1])
            while index < stop and total != count:
                if not block.lives(index):
                    index += 1
                    continue
                limit = stop if count < 0 else min(stop, index + count - total)
                run = self._run(block, index, limit)
                spans.append(Span(block, index, run))
                total += run - index
                index = run
            if stop < block.count:
                break
            at += 1
        return spans, total

    def backward(
        self, start: tuple[int, int], end: tuple[int, int], count: int = -1
    ) -> tuple[list[Span], int]:
        """As `spans`, from ``end`` down to ``start``; each span is one entry."""
        spans: list[Span] = []
        at = min(self._block_of(end[0], end[1]), len(self.blocks) - 1)
        while at >= 0 and len(spans) != count:
            block = self.blocks[at]
            index = self._behind(block, end[0], end[1]) - 1
            stop = block.lower_bound(start[0], start[1])
            while index >= stop and len(spans) != count:
                if block.lives(index):
                    spans.append(Span(block, index, index + 1))
                index -= 1
            if stop > block.head:
                break
            at -= 1
        return spans, len(spans)

    def count_range(self, start: tuple[int, int], end: tuple[int, int]) -> int:
        """How many live entries lie from ``start`` to ``end``; only two blocks are looked into."""
        total = 0
        for at in range(self._block_of(start[0], start[1]), len(self.blocks)):
            block = self.blocks[at]
            low, high = block.lower_bound(start[0], start[1]), self._behind(block, end[0], end[1])
            if low == block.head and high == block.count:
                total += block.live
            else:
                total += sum(block.lives(index) for index in range(low, high))
            if high < block.count:
                break
        return total

    def nth(self, start: tuple[int, int], steps: list[int]) -> list[tuple[int, int]]:
        """Ids of the live entries that stand ``steps`` (rising, from 0) behind the first at or past
        ``start``. Whole blocks are passed over by their counts."""
        found: list[tuple[int, int]] = []
        passed = 0
        wanted = iter(steps)
        step = next(wanted, -1)
        for at in range(self._block_of(start[0], start[1]), len(self.blocks)):
            if step < 0:
                break
            block = self.blocks[at]
            low = block.lower_bound(start[0], start[1])
            if low == block.head and passed + block.live <= step:
                passed += block.live
                continue
            for index in range(low, block.count):
                if block.lives(index):
                    if passed == step:
                        found.append((block.ids[2 * index], block.ids[2 * index + 1]))
                        step = next(wanted, -1)
                    passed += 1
        return found

    def _block_of(self, ms: int, seq: int) -> int:
        """Index of the first block whose last id is at least ``ms-seq``; maybe past the last."""
        low, high = 0, len(self.blocks)
        while low < high:
            middle = (low + high) // 2
            block = self.blocks[middle]
            last = 2 * (block.count - 1)
            found = word_at(block.ids, last)
            if found < ms or (found == ms and word_at(block.ids, last + 1) < seq):
                low = middle + 1
            else:
                high = middle
        return low

    def _exact(self, block: EntryBlock, ms: int, seq: int) -> int:
        """Index of the live entry ``ms-seq`` in ``block``, or -1."""
        index = block.lower_bound(ms, seq)
        if index < block.count and block.lives(index):
            ids = block.ids
            if word_at(ids, 2 * index) == ms and word_at(ids, 2 * index + 1) == seq:
                return index
        return -1

    def _behind(self, block: EntryBlock, ms: int, seq: int) -> int:
        """Index behind the last entry of ``block`` whose id is at most ``ms-seq``."""
        index = block.lower_bound(ms, seq)
        if index < block.count:
            ids = block.ids
            if word_at(ids, 2 * index) == ms and word_at(ids, 2 * index + 1) == seq:
                return index + 1
        return index

    def _run(self, block: EntryBlock, index: int, limit: int) -> int:
        """Behind the last of the live neighbours from ``index`` on, at most ``limit``."""
        if block.dead is None:
            return limit
        gap = block.dead.find(1, index, limit)
        return limit if gap < 0 else gap
