r"""The entries of one stream, stored as the bytes of their replies.

    EntryLog ── blocks ──▶ EntryBlock (sealed)    EntryBlock (closed)    EntryBlock (open)

Rule 1. Bytes are written once, by `append`, into the last block; readers take slices. An entry has the
        same bytes in RESP2 and RESP3: an array of its id and the flat array of its fields.
Rule 2. A block counts its live entries. A block without live entries does not exist.
Rule 3. Queries by id, number or count do not read the bytes of entries: a sealed block is opened only
        for `get` and for spans that are read (entry_block.py).
Rule 4. A copied log refers to the same blocks, which are then ``shared``, so that copying a stream of any size is
        instant. Before a log changes a shared block, it puts a copy in the block's place. Sealing a block
        affects all logs that share it.

Ids are strictly ascending, so blocks and the entries in them are found by binary search.
"""

from __future__ import annotations

from headwater.engine.bodies.block_account import BlockAccount
from headwater.engine.bodies.sealed_block import SealedBlock
from headwater.engine.entries.entry_block import EntryBlock, Span
from headwater.native.memory import ENTRY_HEADER_BYTES

try:
    import cython
except ImportError:
    from headwater import _cython as cython

if not cython.compiled:  # memory_c.pxd has them in C
    from headwater.native.memory import (
        append_entry,
        prefetch_bytes_end,
        prefetch_end,
        push_id,
        push_offset,
        word_at,
    )

_FIRST_ROOM = 512


class EntryLog:
    """The live entries of a stream in id order.

    >>> log = EntryLog()
    >>> log.append(5, 0, bytearray(b"$1\\r\\na\\r\\n$1\\r\\nb\\r\\n"), 0, 14, 1)
    >>> log.get(5, 0)
    b'*2\\r\\n$3\\r\\n5-0\\r\\n*2\\r\\n$1\\r\\na\\r\\n$1\\r\\nb\\r\\n'
    """

    def __init__(self, sealing: BlockAccount | None = None, sid: int = 0) -> None:
        self.sid = sid
        """The number of the stream."""
        self.blocks: list[EntryBlock] = []
        self._tail: EntryBlock | None = None
        """The last block, or None if it has to be looked up."""
        self.length = 0
        self.sealing = sealing if sealing is not None else BlockAccount()

    def copy(self, sid: int = 0) -> EntryLog:
        """Return a log of stream number ``sid`` with the same entries, in the same blocks (rule 4)."""
        made = EntryLog(self.sealing, sid)
        for block in self.blocks:
            block.shared, block.room = True, 0
        made.blocks, made.length = list(self.blocks), self.length
        return made

    def size(self) -> int:
        """Return the approximate number of bytes of the entries."""
        return len(self.blocks) * self.sealing.block_bytes

    def adopt(self, sealing: BlockAccount) -> None:
        """Move the log, with every block, to another store."""
        self.sealing = sealing
        for block in self.blocks:
            block.adopt(sealing)

    def _own(self, at: int) -> EntryBlock:
        """Return block number ``at``, for a change. A shared block is first replaced with a copy."""
        block = self.blocks[at]
        if block.shared:
            self._tail = None
            block = self.blocks[at] = block.copy()
            block.origin = self.sid
        return block

    def _check_tail(self) -> None:
        """Forget ``_tail`` if it was removed. Called after blocks were removed."""
        if not self.blocks or self.blocks[len(self.blocks) - 1] is not self._tail:
            self._tail = None

    def prefetch(self) -> None:
        """Prefetch the memory that `append` will write. Call this shortly before `append`."""
        block = self._tail
        if block is not None:
            prefetch_bytes_end(block.data)
            prefetch_end(block.ids)
            prefetch_end(block.offsets)

    def append(self, ms: int, seq: int, wire: bytearray, start: int, end: int, pairs: int) -> None:
        """Append an entry. Its ``pairs`` fields and values are the bytes of ``wire`` from ``start`` to
        ``end``-1, in RESP."""
        need = ENTRY_HEADER_BYTES + end - start
        block = self._tail
        if block is None or len(block.data) + need > block.room:
            block = self._tail = self._open(need)
        push_offset(block.offsets, len(block.data))
        push_id(block.ids, ms, seq)
        append_entry(block.data, ms, seq, pairs * 2, wire, start, end)
        if block.dead is not None:
            block.dead.append(0)
        block.last_ms, block.last_seq = ms, seq
        block.count += 1
        block.live += 1
        self.length += 1

    def _open(self, need: int) -> EntryBlock:
        """Return the last block, with space for ``need`` bytes. Creates a block if the last one is full or
        closed, or if the log is empty."""
        least = _FIRST_ROOM
        last = len(self.blocks) - 1
        if last >= 0:
            block = self._own(last) if not self.blocks[last].closed else self.blocks[last]
            if block.widen(need, 0):
                return block
            least = self.sealing.block_bytes  # The stream is large: allocate the full size now.
        block = EntryBlock(self.sealing, self.sid)
        block.widen(need, least)
        self.blocks.append(block)
        return block

    def first(self) -> tuple[int, int]:
        """Return the id of the first live entry, or (0, 0) if the log is empty."""
        if not self.blocks:
            return 0, 0
        block = self.blocks[0]
        return block.first()

    def last(self) -> tuple[int, int]:
        """Return the id of the last live entry, or (0, 0) if the log is empty."""
        if not self.blocks:
            return 0, 0
        block = self.blocks[len(self.blocks) - 1]
        return block.last_ms, block.last_seq

    def get(self, ms: int, seq: int) -> bytes | None:
        """Return the bytes of the live entry ``ms-seq``, or None if it does not exist."""
        at = self.find_block(ms, seq)
        if at >= len(self.blocks):
            return None
        block = self.blocks[at]
        index = self._exact(block, ms, seq)
        if index < 0:
            return None
        return block.take(index)

    def gather(self, ms: int, seq: int, missed: list[SealedBlock]) -> bytes | None:
        """Return an entry or None like `get`, for a command that reads many. If that would wait for the disk,
        append the block to ``missed``, for `Bodies.hold`, and return zero bytes of its entries' average size."""
        at = self.find_block(ms, seq)
        if at >= len(self.blocks):
            return None
        block = self.blocks[at]
        index = self._exact(block, ms, seq)
        if index < 0:
            return None
        packed = block.packed
        if packed is not None and not self.sealing.bodies.try_open(packed, index, index + 1):
            if not missed or missed[len(missed) - 1] is not packed:
                missed.append(packed)
            return bytes(packed.size // packed.count)
        return block.take(index)

    def contains(self, ms: int, seq: int) -> bool:
        at = self.find_block(ms, seq)
        return at < len(self.blocks) and self._exact(self.blocks[at], ms, seq) >= 0

    def delete(self, ms: int, seq: int) -> bool:
        """Remove the entry ``ms-seq``. Return False if it is not a live entry."""
        at = self.find_block(ms, seq)
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
            self._check_tail()
        elif block.outweighed():
            block.compact()
        return True

    def trim_through(self, ms: int, seq: int) -> int:
        """Remove all entries whose id is at most ``ms-seq``. Return the number of removed live entries."""
        gone = 0
        at = self.find_block(ms, seq)
        for block in self.blocks[:at]:
            gone += block.live
        del self.blocks[:at]
        if self.blocks:
            block = self.blocks[0]
            end = block.behind(ms, seq)
            if end > block.head:
                block = self._own(0)
            for index in range(block.head, end):
                if block.lives(index):
                    block.kill(index)
                    gone += 1
            if block.live == 0:
                del self.blocks[0]
            elif block.outweighed():
                block.compact()
        self._check_tail()
        self.length -= gone
        return gone

    def spans(
        self, start: tuple[int, int], end: tuple[int, int], count: int = -1
    ) -> tuple[list[Span], int]:
        """Return the live entries from ``start`` to ``end``, both included, at most ``count`` (-1: all), as
        spans in id order, and their number."""
        spans: list[Span] = []
        total = 0
        at = self.find_block(start[0], start[1])
        first = True
        while at < len(self.blocks) and total != count:
            block = self.blocks[at]
            index = block.lower_bound(start[0], start[1]) if first else block.head
            first = False
            stop = block.behind(end[0], end[1])
            while index < stop and total != count:
                if not block.lives(index):
                    index += 1
                    continue
                limit = stop
                if 0 <= count - total < stop - index:
                    limit = index + count - total
                run = block.run(index, limit)
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
        """Return the same as `spans`, from ``end`` down to ``start``. The entries within a span still ascend."""
        spans: list[Span] = []
        total = 0
        at = min(self.find_block(end[0], end[1]), len(self.blocks) - 1)
        while at >= 0 and total != count:
            block = self.blocks[at]
            index = block.behind(end[0], end[1]) - 1
            stop = block.lower_bound(start[0], start[1])
            while index >= stop and total != count:
                if not block.lives(index):
                    index -= 1
                    continue
                limit = stop if count < 0 else max(stop, index + 1 - count + total)
                run = block.run_before(index, limit)
                spans.append(Span(block, run, index + 1))
                total += index + 1 - run
                index = run - 1
            if stop > block.head:
                break
            at -= 1
        return spans, total

    def count_range(self, start: tuple[int, int], end: tuple[int, int]) -> int:
        """Return the number of live entries from ``start`` to ``end``. Reads the ids of at most two
        blocks."""
        total = 0
        begin = self.find_block(start[0], start[1])
        for at in range(begin, len(self.blocks)):
            block = self.blocks[at]
            low = block.lower_bound(start[0], start[1]) if at == begin else block.head
            high = max(low, block.behind(end[0], end[1]))
            if low == block.head and high == block.count:
                total += block.live
            else:
                for index in range(low, high):
                    total += block.lives(index)
            if high < block.count:
                break
        return total

    def nth(self, start: tuple[int, int], steps: list[int]) -> list[tuple[int, int]]:
        """Return the ids of the live entries at the distances ``steps`` (ascending, from 0 on) from the first
        one at or after ``start``. Skips whole blocks by their counts."""
        found: list[tuple[int, int]] = []
        passed = 0
        wanted = iter(steps)
        step = next(wanted, -1)
        begin = self.find_block(start[0], start[1])
        for at in range(begin, len(self.blocks)):
            if step < 0:
                break
            block = self.blocks[at]
            low = block.lower_bound(start[0], start[1]) if at == begin else block.head
            if low == block.head and passed + block.live <= step:
                passed += block.live
                continue
            ids = block.known_ids()
            for index in range(low, block.count):
                if block.lives(index):
                    if passed == step:
                        found.append((word_at(ids, 2 * index), word_at(ids, 2 * index + 1)))
                        step = next(wanted, -1)
                    passed += 1
        return found

    def holds(self, block: EntryBlock) -> bool:
        """Return whether ``block`` belongs to this log."""
        at = self.find_block(block.last_ms, block.last_seq)
        return at < len(self.blocks) and self.blocks[at] is block

    def replace(self, first: int, end: int, blocks: list[EntryBlock]) -> None:
        """Replace the blocks number ``first`` to ``end``-1 with others that have the same live entries."""
        self.blocks[first:end] = blocks
        self._tail = None

    def find_block(self, ms: int, seq: int) -> int:
        """Return the index of the first block whose last id is at least ``ms-seq``, or the number of blocks."""
        low, high = 0, len(self.blocks)
        while low < high:
            middle = (low + high) // 2
            block = self.blocks[middle]
            if block.last_ms < ms or (block.last_ms == ms and block.last_seq < seq):
                low = middle + 1
            else:
                high = middle
        return low

    def _exact(self, block: EntryBlock, ms: int, seq: int) -> int:
        """Return the index of the live entry ``ms-seq`` in ``block``, or -1 if it does not exist."""
        index = block.lower_bound(ms, seq)
        if index < block.count and block.lives(index):
            ids = block.known_ids()
            if word_at(ids, 2 * index) == ms and word_at(ids, 2 * index + 1) == seq:
                return index
        return -1


def any_stored(spans: list[Span]) -> bool:
    """Return whether any of the spans is in a block on disk."""
    for span in spans:
        packed = span.block.packed
        if packed is not None and packed.blob is not None:
            return True
    return False
