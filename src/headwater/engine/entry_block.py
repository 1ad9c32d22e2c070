r"""A block of entries: neighbours, back to back, in one of three forms.

    open     data     *2␍␊$15␍␊1526569498055-0␍␊*4␍␊$4␍␊item␍␊… │ *2␍␊$15␍␊… │ …     grows
             offsets  0                                         62           …
             ids      1526569498055 0                           1526569498055 1
    closed   the same, and not a byte of it changes any more
    sealed   packed   the bytes compressed, the ids as runs (packing.py); offsets follow from the bytes

    in all   dead     0                                         1            0
             head ──▶ first entry that was not trimmed          count ──▶ behind the last that lives

Rule 1. A block begins (at ``head``) and ends with a live entry: a trim moves ``head``, a deletion in
        the middle marks ``dead``, one at the end lowers ``count``. An open block gives the bytes of
        its end back as well, for more will come.
Rule 2. ``last_ms`` and ``last_seq`` are the id of the last entry. Whether an entry lives, which ids
        there are and how many is known of a sealed block without its bytes; `entries` and `edges`
        open it (sealing.py).
Rule 3. A block whose dead outweigh the living is compacted: by bytes; a sealed one by the number of
        entries between its ends, because what is trimmed off it costs next to nothing. A sealed block
        is closed again then.
Rule 4. A closed block may have a copy that shares its bytes; what changes is each one's own.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from headwater.engine.sealing import HOT, KEPT, SEALED, SealedBlock, Sealing

if TYPE_CHECKING:
    from headwater import _cython as cython
else:
    try:
        import cython
    except ImportError:
        from headwater import _cython as cython

if not cython.compiled:  # memory_c.pxd and packing_c.pxd have them in C
    from headwater.memory import append_part, offset_at, push_offset, push_word, reserve, word_at
    from headwater.packing import pack_ids, unpack_ids

_ARRAYS_BYTES = 20
"""Of an entry: its id and its offset."""

_OBJECTS_BYTES = 700
_PACKED_BYTES = 500
"""The objects of a block, as the allocator rounds them."""

_MAX = 2**64 - 1

_NO_DATA = bytearray()
_NO_IDS: array[int] = array("Q")
_NO_OFFSETS: array[int] = array("I")


class EntryBlock:
    """See the drawing above. ``live`` counts the entries that are not dead, ``dead_bytes`` the bytes
    of all others, as long as the block is not sealed; ``room`` is how long ``data`` may become before
    `widen` is asked, 0 where nothing may be added. ``booked`` is what it is in the ``books`` with."""

    def __init__(self, sealing: Sealing) -> None:
        self.sealing = sealing
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
            self.sealing.sealed_size -= self.packed.size

    # --- reading --------------------------------------------------------------------------------

    def entries(self) -> bytearray:
        """The bytes of the entries, to be read at once: a sealed block is opened for that."""
        if self.packed is None:
            return self.data
        if self.packed.data is None:
            self.sealing.open(self.packed)
        assert self.packed.data is not None
        return self.packed.data

    def edges(self) -> array[int]:
        """Where in `entries` each one begins."""
        if self.packed is None:
            return self.offsets
        if self.packed.offsets is None:
            self.sealing.open(self.packed)
        assert self.packed.offsets is not None
        return self.packed.offsets

    def known_ids(self) -> array[int]:
        """Two words for each entry, dead or alive, and maybe for some behind the last."""
        if self.packed is None:
            return self.ids
        return packed_ids(self.packed)

    def start(self, index: int) -> int:
        """Where entry ``index`` begins; ``count`` gives the end of the last."""
        edges = self.edges()
        return offset_at(edges, index) if index < len(edges) else len(self.entries())

    def lives(self, index: int) -> bool:
        return index >= self.head and (self.dead is None or not self.dead[index])

    def first(self) -> tuple[int, int]:
        """Id of the first live entry."""
        packed = self.packed
        if packed is None:
            return word_at(self.ids, 2 * self.head), word_at(self.ids, 2 * self.head + 1)
        if not packed.first_ms and not packed.first_seq:
            ids = self.known_ids()
            packed.first_ms = word_at(ids, 2 * self.head)
            packed.first_seq = word_at(ids, 2 * self.head + 1)
        return packed.first_ms, packed.first_seq

    def lower_bound(self, ms: int, seq: int) -> int:
        """Index of the first entry, dead or alive, whose id is at least ``ms-seq``; maybe ``count``."""
        low, high = self.head, self.count
        if ms > self.last_ms or (ms == self.last_ms and seq > self.last_seq):
            return high
        ids = self.known_ids()
        while low < high:
            middle = (low + high) // 2
            found = word_at(ids, 2 * middle)
            if found < ms or (found == ms and word_at(ids, 2 * middle + 1) < seq):
                low = middle + 1
            else:
                high = middle
        return low

    def behind(self, ms: int, seq: int) -> int:
        """Index behind the last entry whose id is at most ``ms-seq``."""
        if ms > self.last_ms or (ms == self.last_ms and seq >= self.last_seq):
            return self.count
        return self.lower_bound(ms, seq + 1) if seq < _MAX else self.lower_bound(ms + 1, 0)

    def run(self, index: int, limit: int) -> int:
        """Behind the last of the live neighbours from ``index`` on, at most ``limit``."""
        if self.dead is None:
            return limit
        gap = self.dead.find(1, index, limit)
        return limit if gap < 0 else gap

    # --- growing --------------------------------------------------------------------------------

    def widen(self, need: int, least: int) -> bool:
        """Make ``room`` for ``need`` bytes more, and up to ``least`` in all; False, and closed, when
        that is too much."""
        size, most = len(self.data), self.sealing.block_bytes
        if self.closed or (self.count and size + need > most):
            self.close()
            return False
        room = max(size + need, min(most, max(2 * size, least)))
        reserve(self.data, room)
        self.room = room
        # What will be in it when it is full, if all entries are as large as those so far.
        entries = (len(self.offsets) + 1) * room // (size + need)
        taken = room + _ARRAYS_BYTES * entries + _OBJECTS_BYTES
        if room >= 2 * self.sealing.least and self.books == KEPT:
            self._move(HOT, taken)
            self.sealing.enqueue(self)
        else:
            self._move(self.books, taken)
        return True

    def close(self) -> None:
        """Nothing is added any more."""
        if self.closed:
            return
        self.closed, self.room = True, 0
        self.ids, self.offsets = self.ids[:], self.offsets[:]  # without what they had in reserve
        if self._book():
            self.sealing.enqueue(self)

    def _book(self) -> bool:
        """Into the right books; whether it is new to those of what can be sealed."""
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
        """This closed block is not worth sealing."""
        self._move(KEPT, self.booked)

    def seal(self, codec: str, wire: bytes) -> None:
        """Hold ``wire``, the bytes as the codec of this name compressed them, instead of them."""
        assert self.closed
        assert self.packed is None
        self.packed = SealedBlock(
            codec, wire, pack_ids(self.ids), len(self.data), len(self.offsets)
        )
        self.data, self.ids, self.offsets, self.dead_bytes = _NO_DATA, _NO_IDS, _NO_OFFSETS, 0
        self.sealing.sealed_size += self.packed.size
        self._move(SEALED, len(wire) + len(self.packed.ids) + _PACKED_BYTES)

    def copy(self) -> EntryBlock:
        """One of its own for whoever is to change this shared block; what cannot change stays
        shared."""
        made = EntryBlock(self.sealing)
        made.data, made.ids, made.offsets = self.data, self.ids, self.offsets
        if self.packed is not None:
            made.packed = self.packed.copy()
            self.sealing.sealed_size += made.packed.size
        elif not self.closed:
            made.data, made.ids, made.offsets = self.data[:], self.ids[:], self.offsets[:]
        made.dead = None if self.dead is None else self.dead[:]
        made.head, made.count, made.live = self.head, self.count, self.live
        made.dead_bytes = self.dead_bytes
        made.last_ms, made.last_seq = self.last_ms, self.last_seq
        made.closed = self.closed
        if made.packed is None:
            made.room = 0 if made.closed else len(made.data)
            if made._book():
                self.sealing.enqueue(made)
        else:
            made._move(SEALED, self.booked)
        return made  # and shared by nobody

    def adopt(self, sealing: Sealing) -> None:
        """Be in the books of another store from now on: it stands in one of its streams."""
        books, size = self.books, self.booked
        self._move(books, 0)
        if self.packed is not None:
            self.sealing.sealed_size -= self.packed.size
            sealing.sealed_size += self.packed.size
        self.sealing = sealing
        self._move(books, size)
        if books == HOT:
            sealing.enqueue(self)

    # --- removing -------------------------------------------------------------------------------

    def kill(self, index: int) -> None:
        """Remove the live entry ``index``; a block whose last one went is thrown away."""
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
        """Take off the last entry and the dead before it, so that ids rise however ``last_id``
        was set back."""
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
        """Whether it is to be compacted (rule 3)."""
        if self.packed is not None:
            return self.count - self.head > 2 * self.live
        return self.dead_bytes * 2 > len(self.data)

    def compact(self) -> None:
        """Drop the bytes of the dead."""
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
            self.sealing.sealed_size -= sealed.size
        if self.closed and self._book():
            self.sealing.enqueue_coldest(self)


class Span:
    """Neighbouring live entries of one block: indexes ``first`` to ``end``-1."""

    def __init__(self, block: EntryBlock, first: int, end: int) -> None:
        self.block = block
        self.first = first
        self.end = end

    def data(self) -> bytearray:
        """The bytes that they are a part of, to be read at once."""
        return self.block.entries()

    def start(self) -> int:
        """Where their bytes begin in `data`."""
        return offset_at(self.block.edges(), self.first)

    def stop(self) -> int:
        """Behind their last byte."""
        return self.block.start(self.end)

    def wire(self) -> bytearray:
        """Their bytes, as they stand in a reply."""
        return self.data()[self.start() : self.stop()]

    def ids(self) -> list[tuple[int, int]]:
        ids = self.block.known_ids()
        return [(ids[2 * at], ids[2 * at + 1]) for at in range(self.first, self.end)]


def packed_ids(packed: SealedBlock) -> array[int]:
    """The ids of a sealed block's entries, two words each."""
    ids: array[int] = array("Q")
    unpack_ids(packed.ids, packed.count, ids)
    return ids


def take_fields(
    data: bytearray,
    offsets: array[int],
    first: int,
    end: int,
    wire: bytearray,
    ends: array[int],
    pairs: array[int],
) -> None:
    """Add the entries ``first`` to ``end``-1, which begin in ``data`` where ``offsets`` say, without what
    stands before their fields: to ``wire`` the fields, in RESP, to ``ends`` where those of each end in
    it, to ``pairs`` how many each has."""
    for index in range(first, end):
        at = offset_at(offsets, index) + 5  # behind *2 CR LF $
        stop = offset_at(offsets, index + 1) if index + 1 < len(offsets) else len(data)
        length = data[at] - 48
        at += 1
        if data[at] != 13:
            length = 10 * length + data[at] - 48
            at += 1
        at += 2 + length + 3  # behind CR LF, the id, CR LF and *
        count = 0
        while data[at] != 13:
            count = 10 * count + data[at] - 48
            at += 1
        append_part(wire, data, at + 2, stop)
        push_word(ends, len(wire))
        push_offset(pairs, count // 2)
