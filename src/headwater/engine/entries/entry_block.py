r"""A block of entries: consecutive entries, stored without gaps, in one of four forms.

    open     data     *2␍␊$15␍␊1526569498055-0␍␊*4␍␊$4␍␊item␍␊… │ *2␍␊$15␍␊… │ …     grows
             offsets  0                                         62           …
             ids      1526569498055 0                           1526569498055 1
    closed   the same, and its bytes do not change any more
    sealed   packed   the bytes compressed, the ids as runs (packing.py); offsets follow from the bytes
    stored   the same, but the bytes are on disk

    in all   dead     0                                         1            0
             head ──▶ first live entry                          count ──▶ after the last live entry

Rule 1. A block begins (at ``head``) and ends with a live entry: removing the first entry moves ``head``, deleting
        one in the middle marks it as ``dead`` (a tombstone), deleting the last lowers ``count``. An open
        block also frees the bytes at its end, because more entries will be appended.
Rule 2. ``last_ms`` and ``last_seq`` are the id of the last entry. The ids of a sealed block, their number,
        and which entries are live are known without its bytes. `entries` and `edges` open the block
        (sealing.py).
Rule 3. A block with more tombstones than live entries is compacted. In an unsealed block, bytes are compared,
        including those of removed entries before ``head``. In a sealed one, numbers of entries from ``head`` on
        are compared, because the entries before it need almost no memory. Compacting a sealed block makes it a
        closed one. A stored block is never compacted: no change of a store needs its bytes.
Rule 4. A closed block may have a copy that shares its bytes. The parts that can change are separate in the copy.
"""

from __future__ import annotations

from array import array
from weakref import ref

from headwater.engine.bodies.block_account import HOT, KEPT, SEALED, BlockAccount
from headwater.engine.bodies.sealed_block import SealedBlock, offsets_in, start_in, unpacked_ids
from headwater.native.memory import Text

try:
    import cython
except ImportError:
    from headwater import _cython as cython

if not cython.compiled:  # memory_c.pxd and packing_c.pxd have them in C
    from headwater.native.memory import cut, offset_at, reserve, word_at
    from headwater.native.packing import find_packed, pack_ids

_ARRAYS_BYTES = 20
"""Bytes per entry for its id and offset."""
_OBJECTS_BYTES = 700
_PACKED_BYTES = 502
"""Size of the objects of an unsealed and of a sealed block, as the allocator rounds them."""

_MAX = 2**64 - 1
_NO_DATA = bytearray()
_NO_IDS: array[int] = array("Q")
_NO_OFFSETS: array[int] = array("I")


class EntryBlock:
    """A block; see the diagram above. ``live`` is the number of live entries, ``dead_bytes`` the number of bytes
    of all others while the block is not sealed. ``room`` is the length up to which ``data`` may grow before
    `widen` must be called; 0 if nothing may be appended. ``books`` is the account of the block in `BlockAccount`,
    ``booked`` the number of bytes for which it is accounted there. ``origin`` is the number of the stream to
    which it was added."""

    def __init__(self, sealing: BlockAccount, origin: int = 0) -> None:
        self.sealing = sealing
        self.origin = origin
        self.data = bytearray()
        self.ids: array[int] = array("Q")
        self.offsets: array[int] = array("I")
        self.dead: bytearray | None = None
        self.packed: SealedBlock | None = None
        self.head = self.count = self.live = self.dead_bytes = 0
        self.last_ms = self.last_seq = 0
        self.room = 0
        self.books = KEPT
        self.booked = 0
        self.closed = self.shared = False

    def __del__(self) -> None:
        self.sealing.book(self.books, -self.booked)
        if self.packed is not None:
            self._count(self.packed, -1)

    # --- reading --------------------------------------------------------------------------------

    def entries(self) -> Text:
        """Return the bytes of all entries, to be read immediately. Opens a sealed block."""
        return self.data if self.packed is None else self.piece(0, self.packed.count)

    def piece(self, first: int, end: int) -> Text:
        """Return bytes that contain the entries ``first`` to ``end``-1, at least one, to be read immediately. They
        begin at byte `base` of the block. Opens the needed parts of a sealed block."""
        packed = self.packed
        if packed is None:
            return self.data
        if not packed.has_open(first, end):
            self.sealing.bodies.open(packed, first, end)
        assert packed.data is not None
        return packed.data

    def base(self) -> int:
        """Return the offset in the block of the first byte that `piece` returned."""
        return 0 if self.packed is None else self.packed.opened_at

    def take(self, index: int) -> bytes:
        """Return the bytes of an entry."""
        data, base = self.piece(index, index + 1), self.base()
        return cut(data, self.start(index) - base, self.start(index + 1) - base)

    def edges(self) -> array[int]:
        """Return the offset in `entries` at which each entry begins. Opens a sealed block."""
        if self.packed is None:
            return self.offsets
        if self.packed.offsets is None:
            self.packed.offsets = offsets_in(self.packed, self.entries())
        return self.packed.offsets

    def known_ids(self) -> array[int]:
        """Return the ids, two words each, of all entries, live or not, and perhaps of deleted ones at the end."""
        return self.ids if self.packed is None else unpacked_ids(self.packed)

    def packed_ids(self) -> bytes:
        """Return the ids of `known_ids`, packed."""
        return pack_ids(self.ids) if self.packed is None else self.packed.ids

    def start(self, index: int) -> int:
        """Return the offset in the block at which entry ``index`` begins; ``start(count)`` is the end."""
        if self.packed is not None:
            if not 0 < index < self.packed.count:
                return self.packed.size if index else 0
            if self.packed.offsets is None:
                if not self.packed.has_open(index, index):
                    self.piece(index - 1, index)
                return start_in(self.packed, index)
        edges = self.edges()
        return offset_at(edges, index) if index < len(edges) else len(self.entries())

    def lives(self, index: int) -> bool:
        return index >= self.head and (self.dead is None or not self.dead[index])

    def first(self) -> tuple[int, int]:
        """Return the id of the first live entry."""
        packed = self.packed
        if packed is None:
            return word_at(self.ids, 2 * self.head), word_at(self.ids, 2 * self.head + 1)
        if not packed.first_ms and not packed.first_seq:
            ids = self.known_ids()
            at = 2 * self.head
            packed.first_ms, packed.first_seq = word_at(ids, at), word_at(ids, at + 1)
        return packed.first_ms, packed.first_seq

    def lower_bound(self, ms: int, seq: int) -> int:
        """Return the index of the first entry, live or not, whose id is at least ``ms-seq``, or ``count``."""
        low, high, ids = self.head, self.count, self.ids
        if ms > self.last_ms or (ms == self.last_ms and seq > self.last_seq):
            return high
        if self.packed is not None:
            return max(low, min(high, find_packed(self.packed.ids, ms, seq)))
        while low < high:
            middle = (low + high) // 2
            found = word_at(ids, 2 * middle)
            if found < ms or (found == ms and word_at(ids, 2 * middle + 1) < seq):
                low = middle + 1
            else:
                high = middle
        return low

    def behind(self, ms: int, seq: int) -> int:
        """Return the index after the last entry whose id is at most ``ms-seq``."""
        if ms > self.last_ms or (ms == self.last_ms and seq >= self.last_seq):
            return self.count
        return self.lower_bound(ms, seq + 1) if seq < _MAX else self.lower_bound(ms + 1, 0)

    def run(self, index: int, limit: int) -> int:
        """Return the index after the consecutive live entries from ``index`` on, at most ``limit``."""
        if self.dead is None:
            return limit
        gap = self.dead.find(1, index, limit)
        return limit if gap < 0 else gap

    def run_before(self, index: int, limit: int) -> int:
        """Return the index of the first of the consecutive live entries up to ``index``, at least ``limit``."""
        if self.dead is None:
            return limit
        gap = self.dead.rfind(1, limit, index + 1)
        return limit if gap < 0 else gap + 1

    # --- growing --------------------------------------------------------------------------------

    def widen(self, need: int, least: int) -> bool:
        """Make space for ``need`` more bytes, and for at least ``least`` bytes in all. If the block would
        exceed its maximum size, close it and return False."""
        size, most = len(self.data), self.sealing.block_bytes
        if self.closed or (self.count and size + need > most):
            self.close()
            return False
        room = max(size + need, min(most, max(2 * size, least)))
        reserve(self.data, room)
        self.room = room
        # The number of entries of a full block is estimated from the average size of its entries.
        entries = (len(self.offsets) + 1) * room // (size + need)
        taken = room + _ARRAYS_BYTES * entries + _OBJECTS_BYTES
        if room >= 2 * self.sealing.least and self.books == KEPT:
            self._move(HOT, taken)
            self.sealing.enqueue(self)
        else:
            self._move(self.books, taken)
        return True

    def close(self) -> None:
        """Close the block: nothing can be appended any more."""
        if self.closed:
            return
        self.closed, self.room = True, 0
        self.ids, self.offsets = self.ids[:], self.offsets[:]  # without their spare capacity
        self.account()

    def account(self) -> None:
        """Account for the block by its size, and make it available for sealing if it has become large enough."""
        if self._book():
            self.sealing.enqueue(self)

    def _book(self) -> bool:
        """Account for the block as hot or kept. Return whether it has become one that can be sealed."""
        size, before = len(self.data), self.books
        books = HOT if self.sealing.least <= size <= self.sealing.most else KEPT
        self._move(books, size + _ARRAYS_BYTES * len(self.offsets) + _OBJECTS_BYTES)
        return books == HOT and before != HOT

    def _move(self, books: int, size: int) -> None:
        self.sealing.book(self.books, -self.booked)
        self.books, self.booked = books, size
        self.sealing.book(books, size)

    # --- sealing --------------------------------------------------------------------------------

    def keep(self) -> None:
        """Account for this closed block as not worth sealing."""
        self._move(KEPT, self.booked)

    def pack(self, packed: SealedBlock) -> None:
        """Replace the bytes of this closed or sealed block with ``packed``."""
        assert self.closed
        if self.packed is not None:
            self._count(self.packed, -1)
        self.packed = packed
        self.data, self.ids, self.offsets, self.dead_bytes = _NO_DATA, _NO_IDS, _NO_OFFSETS, 0
        self._count(packed, 1)
        wire = 0 if packed.wire is None else len(packed.wire)
        self._move(SEALED, wire + len(packed.ids) + len(packed.marks) + _PACKED_BYTES)
        self._note_unstored()

    def _count(self, packed: SealedBlock, times: int) -> None:
        """Add a sealed block to the accounts, or remove it from them if ``times`` is -1."""
        self.sealing.sealed_size += times * packed.size
        if packed.blob is not None:
            self.sealing.stored_size += times * packed.size
            if times > 0:
                self.sealing.stored_count += 1

    def _note_unstored(self) -> None:
        """Make the block available for storing if it is sealed and not stored (sealing.py, rule 6)."""
        packed = self.packed
        if packed is not None and packed.blob is None and self.sealing.storing:
            self.sealing.unstored.append(ref(self))

    def copy(self) -> EntryBlock:
        """Return a copy of this shared block that can be changed. The parts that cannot change stay shared."""
        made = EntryBlock(self.sealing, self.origin)
        made.data, made.ids, made.offsets = self.data, self.ids, self.offsets
        if self.packed is not None:
            made.packed = self.packed.copy()
            self._count(made.packed, 1)
        elif not self.closed:
            made.data, made.ids, made.offsets = self.data[:], self.ids[:], self.offsets[:]
        made.dead = None if self.dead is None else self.dead[:]
        made.head, made.count, made.live = self.head, self.count, self.live
        made.dead_bytes = self.dead_bytes
        made.last_ms, made.last_seq = self.last_ms, self.last_seq
        made.closed = self.closed
        if made.packed is None:
            made.room = 0 if made.closed else len(made.data)
            made.account()
        else:
            made._move(SEALED, self.booked)
            made._note_unstored()
        return made  # ``shared`` is False

    def adopt(self, sealing: BlockAccount) -> None:
        """Move the block to the accounts of another store, as part of one of its streams."""
        books, size = self.books, self.booked
        self._move(books, 0)
        if self.packed is not None:
            assert self.packed.blob is None, "a block of another store is stored"
            self._count(self.packed, -1)
        self.sealing = sealing
        if self.packed is not None:
            self._count(self.packed, 1)
            self._note_unstored()
        self._move(books, size)
        if books == HOT:
            sealing.enqueue(self)

    # --- removing -------------------------------------------------------------------------------

    def kill(self, index: int) -> None:
        """Remove the live entry ``index``. If no live entry is left, the caller must discard the block."""
        self.live -= 1
        if self.packed is None:
            self.dead_bytes += self.start(index + 1) - self.offsets[index]
        if self.live == 0:
            return
        if index == self.head:
            self.head += 1
            while not self.lives(self.head):
                self.head += 1
            if self.packed is not None:
                self.packed.first_ms = self.packed.first_seq = 0
        elif index == self.count - 1:
            self._cut_tail()
        else:
            if self.dead is None:
                self.dead = bytearray(self.count)
            self.dead[index] = 1

    def _cut_tail(self) -> None:
        """Remove the last entry and the tombstones before it, so that ids are ascending even after XSETID has
        lowered ``last_id``."""
        count = self.count - 1
        while not self.lives(count - 1):
            count -= 1
        if not self.closed:
            end = self.offsets[count]
            self.dead_bytes -= len(self.data) - end
            del self.data[end:]
            del self.offsets[count:]
            del self.ids[2 * count :]
        if self.dead is not None:
            del self.dead[count:]
        self.count = count
        ids = self.known_ids()
        self.last_ms, self.last_seq = word_at(ids, 2 * count - 2), word_at(ids, 2 * count - 1)

    def outweighed(self) -> bool:
        """Return whether the block should be compacted (rule 3)."""
        if self.packed is not None:
            return self.packed.blob is None and self.count - self.head > 2 * self.live
        return self.dead_bytes * 2 > len(self.data)

    def compact(self) -> None:
        """Drop the bytes of tombstones."""
        data, ids, offsets = bytearray(), array("Q"), array("I")
        entries, known = self.entries(), self.known_ids()
        for index in range(self.head, self.count):
            if self.lives(index):
                offsets.append(len(data))
                ids.extend(known[2 * index : 2 * index + 2])
                data += entries[self.start(index) : self.start(index + 1)]
        sealed, self.packed = self.packed, None
        self.data, self.ids, self.offsets = data, ids, offsets
        self.dead, self.head, self.dead_bytes = None, 0, 0
        self.count = len(offsets)
        if sealed is not None:
            self._count(sealed, -1)
        if self.closed and self._book():
            self.sealing.enqueue_coldest(self)


class Span:
    """Consecutive live entries of one block: indexes ``first`` to ``end``-1."""

    def __init__(self, block: EntryBlock, first: int, end: int) -> None:
        self.block = block
        self.first = first
        self.end = end

    def data(self) -> Text:
        """Return the bytes that contain the entries, to be read immediately."""
        return self.block.piece(self.first, self.end)

    def start(self) -> int:
        """Return the offset at which the entries begin in `data`, which must be called before."""
        return self.block.start(self.first) - self.block.base()

    def stop(self) -> int:
        """Return the offset at which the entries end in `data`, which must be called before."""
        return self.block.start(self.end) - self.block.base()

    def ids(self) -> list[tuple[int, int]]:
        ids = self.block.known_ids()
        return [(ids[2 * at], ids[2 * at + 1]) for at in range(self.first, self.end)]
