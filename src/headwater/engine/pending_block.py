"""A block of the pending entries list: up to 256 records, side by side in one array of words.

    words   ………………│ ms seq time owner·count │ ms seq time owner·count │ …  ………………
                    ▲ head                                                ▲ end
    min_time   no record has an earlier time
    owners     a bit for each owner, its number modulo 64, of any record
    dangling   a record's entry may have been deleted from the stream

A record is four 64-bit words, 32 bytes: the id, the delivery time in steady ms, and the owner (the
consumer's number in its group, 0 for nobody) in the high half of a word whose low half is the
delivery count, or `BIG` for one that stands elsewhere.

Rule 1. Records lie from number ``head`` to ``end``-1, their ids rise. Settling at the front moves
        ``head`` and nothing else, because that is where entries are settled; elsewhere it moves the
        records to the nearer end.
Rule 2. ``min_time`` is a lower bound: setting a later time leaves it, a scan may raise it. So is
        the set ``owners`` too large rather than too small, and a scan may reduce it.
Rule 3. The array is as long as the block has room, and takes no more memory than that.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from headwater.model import MAX_U64

if TYPE_CHECKING:
    from headwater import _cython as cython
else:
    try:
        import cython
    except ImportError:
        from headwater import _cython as cython

if not cython.compiled:  # memory_c.pxd has them in C
    from headwater.memory import copy_words, fit_words, new_words, put_records, set_word, word_at

_LIKE = array("Q")
_WORDS = 4
_LEAST_ROOM = 4
"""Records that the smallest block has room for; it grows fourfold."""

_BIG = 2**32 - 1
_OWNER_BITS = 63
"""Owners are told apart in ``owners`` by so much of their number."""

BIG = _BIG
"""A delivery count in a record that says: it is this or more, and kept elsewhere."""

_LONGEST_SPAN = 2**48
"""Milliseconds between ids that are taken for times at all."""


def expected_at(ms: int, first: int, last: int, count: int) -> int:
    """Where ``ms`` stands among ``count`` ids if they are spread evenly from the times ``first`` to
    ``last``; -1 if it is not between these. Searching from there touches two lines of memory instead
    of eight, and with a million pending each of them is far away.

    >>> expected_at(1050, 1000, 1100, 256), expected_at(1000, 1000, 1000, 256)
    (128, -1)
    """
    if not first < ms < last or last - first >= _LONGEST_SPAN:
        return -1
    return (ms - first) * count // (last - first)


class PendingBlock:
    """Records of one block; see the drawing above. A record's number is good until the next change."""

    def __init__(self) -> None:
        self.words: array[int] = new_words(_LIKE, 0)
        self.head = 0
        self.end = 0
        self.min_time = MAX_U64
        self.owners = 0
        self.dangling = False
        self._near = 0
        """Where the next id is looked for first: behind the last that was found."""

    def copy(self) -> PendingBlock:
        made = PendingBlock()
        made.words, made.head, made.end = self.words[:], self.head, self.end
        made.min_time, made.owners, made.dangling = self.min_time, self.owners, self.dangling
        return made

    def count(self) -> int:
        return self.end - self.head

    def records(self) -> array[int]:
        """The words of all records, four each."""
        return self.words[_WORDS * self.head : _WORDS * self.end]

    # --- finding --------------------------------------------------------------------------------

    def first_ms(self) -> int:
        return word_at(self.words, _WORDS * self.head)

    def last_ms(self) -> int:
        return word_at(self.words, _WORDS * (self.end - 1))

    def begins_after(self, ms: int, seq: int) -> bool:
        """The first id is greater than ``ms-seq``."""
        first = word_at(self.words, _WORDS * self.head)
        return first > ms or (first == ms and word_at(self.words, _WORDS * self.head + 1) > seq)

    def ends_before(self, ms: int, seq: int) -> bool:
        """The last id is less than ``ms-seq``."""
        return self._is_before(self.end - 1, ms, seq)

    def is_at(self, number: int, ms: int, seq: int) -> bool:
        """Record ``number`` exists and is that of ``ms-seq``."""
        if not self.head <= number < self.end:
            return False
        at = _WORDS * number
        return word_at(self.words, at) == ms and word_at(self.words, at + 1) == seq

    def find_next(self, ms: int, seq: int) -> int:
        """Number of the record of ``ms-seq`` if that stands behind the last one that was found, or
        -1."""
        number = self._near
        if not self.is_at(number, ms, seq):
            return -1
        self._near = number + 1
        return number

    def find(self, ms: int, seq: int) -> int:
        """Number of the record of ``ms-seq``, or -1."""
        number = self.lower_bound(ms, seq)
        if not self.is_at(number, ms, seq):
            return -1
        self._near = number + 1
        return number

    def lower_bound(self, ms: int, seq: int) -> int:
        """Number of the first record whose id is at least ``ms-seq``; maybe ``end``."""
        low, high = self.head, self.end
        near = expected_at(ms, self.first_ms(), self.last_ms(), high - low) if low < high else -1
        # In ever longer steps from where it may be, and once it was passed by halves.
        middle, step = low + near, 1 if near >= 0 else high
        while low < high:
            if not low <= middle < high:
                middle = (low + high) // 2
            if self._is_before(middle, ms, seq):
                low = middle + 1
                middle += step
            else:
                high = middle
                middle -= step
            step *= 2
        return low

    def _is_before(self, number: int, ms: int, seq: int) -> bool:
        found = word_at(self.words, _WORDS * number)
        return found < ms or (found == ms and word_at(self.words, _WORDS * number + 1) < seq)

    def same_ids(self, number: int, ids: array[int], start: int) -> int:
        """How many records from ``number`` on have just the ids from number ``start`` on, of two words
        each."""
        same, most = 0, min(self.end - number, len(ids) // 2 - start)
        while same < most:
            at, given = _WORDS * (number + same), 2 * (start + same)
            if word_at(self.words, at) != word_at(ids, given) or (
                word_at(self.words, at + 1) != word_at(ids, given + 1)
            ):
                break
            same += 1
        self._near = number + same
        return same

    def owner(self, number: int) -> int:
        return word_at(self.words, _WORDS * number + 3) >> 32

    def same_owner(self, number: int, most: int) -> int:
        """How many of ``most`` records from ``number`` on have the owner of the first."""
        same, owner = 1, self.owner(number)
        while same < most and word_at(self.words, _WORDS * (number + same) + 3) >> 32 == owner:
            same += 1
        return same

    def first_of(self, owner: int, number: int) -> int:
        """Number of the first record from ``number`` on that ``owner`` owns, or -1."""
        if not self.owners >> (owner & _OWNER_BITS) & 1:
            return -1
        for at in range(number, self.end):
            if self.owner(at) == owner:
                return at
        if number == self.head:
            self.settle_owners()
        return -1

    # --- bounds ---------------------------------------------------------------------------------

    def all_delivered_after(self, time: int) -> bool:
        """Every record is owned and was delivered after ``time``."""
        if self.owners & 1:  # nobody's number is 0
            return False
        if time < 0:
            return True
        if self.min_time <= time:
            self.settle_min_time()
        return self.min_time > time

    def settle_min_time(self) -> None:
        """Make ``min_time`` exact again; a scan does so before it looks into the block."""
        earliest = MAX_U64
        for number in range(self.head, self.end):
            earliest = min(earliest, word_at(self.words, _WORDS * number + 2))
        self.min_time = earliest

    def settle_owners(self) -> None:
        """Make ``owners`` exact again."""
        owners = 0
        for number in range(self.head, self.end):
            owners |= self._bit(self.owner(number))
        self.owners = owners

    def _bit(self, owner: int) -> int:
        bit = 1
        return bit << (owner & _OWNER_BITS)

    # --- changing -------------------------------------------------------------------------------

    def set(self, number: int, time: int, owner: int, count: int) -> None:
        """Give record ``number`` another time, owner and count, at most `BIG`."""
        at = _WORDS * number
        set_word(self.words, at + 2, time)
        set_word(self.words, at + 3, (owner << 32) | count)
        self.min_time = min(self.min_time, time)
        self.owners |= self._bit(owner)

    def append(
        self, ids: array[int], first: int, count: int, time: int, owner: int, most: int
    ) -> int:
        """Add records of ``count`` ids from number ``first`` on, all greater than those that are here,
        each delivered once; the block may grow to ``most`` records. Number of the first of them."""
        self._make_room(count, most)
        number = self.end
        put_records(self.words, number, ids, first, count, time, (owner << 32) | 1)
        self.end += count
        self.min_time = min(self.min_time, time)
        self.owners |= self._bit(owner)
        return number

    def open(self, number: int, ms: int, seq: int, most: int) -> int:
        """Make place for a record of ``ms-seq`` before ``number``; what it is given is set next. The
        number that it has now."""
        place = number - self.head
        self._make_room(1, most)
        number = self.head + place
        words = self.words
        above = self.end - number
        copy_words(words, _WORDS * (number + 1), words, _WORDS * number, _WORDS * above)
        set_word(words, _WORDS * number, ms)
        set_word(words, _WORDS * number + 1, seq)
        self.end += 1
        return number

    def close(self, number: int, count: int) -> None:
        """Take out ``count`` records from ``number`` on; the fewer of the others move."""
        words, below, behind = self.words, number - self.head, number + count
        if below <= self.end - behind:
            first = _WORDS * self.head
            copy_words(words, first + _WORDS * count, words, first, _WORDS * below)
            self.head += count
            self._near = behind
        else:
            copy_words(words, _WORDS * number, words, _WORDS * behind, _WORDS * (self.end - behind))
            self.end -= count
            self._near = number

    def take_over(self, above: PendingBlock, most: int) -> None:
        """Append the records of the block above."""
        count = above.count()
        self._make_room(count, most)
        copy_words(self.words, _WORDS * self.end, above.words, _WORDS * above.head, _WORDS * count)
        self.end += count
        self.min_time = min(self.min_time, above.min_time)
        self.owners |= above.owners
        self.dangling = self.dangling or above.dangling

    def split(self, most: int) -> PendingBlock:
        """Give the upper half of the records to a new block, and return that."""
        upper = PendingBlock()
        half = self.head + self.count() // 2
        upper.end = self.end - half
        fit_words(upper.words, _WORDS * most)
        copy_words(upper.words, 0, self.words, _WORDS * half, _WORDS * upper.end)
        upper.min_time, upper.owners, upper.dangling = self.min_time, self.owners, self.dangling
        self.end = half
        return upper

    def _make_room(self, count: int, most: int) -> None:
        """Let ``count`` more records fit behind the last: ``most`` in all, at most."""
        room = len(self.words) // _WORDS
        if self.end + count <= room:
            return
        there = self.end - self.head
        assert there + count <= most, f"{there} and {count} records are more than {most}"
        if self.head:
            copy_words(self.words, 0, self.words, _WORDS * self.head, _WORDS * there)
            self.head, self.end = 0, there
        if there + count > room:
            room = _LEAST_ROOM
            while room < there + count:
                room *= 4
            fit_words(self.words, _WORDS * min(room, most))
