"""A block of the pending entries list: up to 256 consecutive records in one array of words.

    words   ………………│ ms seq time owner·count │ ms seq time owner·count │ …  ………………
                    ▲ head                                                ▲ end
    min_time   no record has an earlier time
    owners     one bit for each owner of a record: its number modulo 64
    dangling   a record's entry may have been deleted from the stream

A record is four 64-bit words, 32 bytes: the two halves of the id, the delivery time in steady ms, and a word
with the owner (the consumer's number in its group, 0 for none) in its high half and the delivery count in its
low half. The count `BIG` means that the real one is stored elsewhere.

Rule 1. Records are at ``head`` to ``end``-1, in ascending order of ids. Removing records at the front only
        moves ``head``, because entries are usually settled there. Removing others moves the records on
        the shorter side.
Rule 2. ``min_time`` is a lower bound: setting a later time does not change it, and a scan may raise it.
        Likewise ``owners`` may have too many bits, and a scan may remove them.
Rule 3. The array is as long as the capacity of the block and uses no more memory than that.
"""

from __future__ import annotations

from array import array

from headwater.common.model import MAX_U64

try:
    import cython
except ImportError:
    from headwater import _cython as cython

if not cython.compiled:  # memory_c.pxd has them in C
    from headwater.native.memory import (
        copy_words,
        fit_words,
        new_words,
        put_records,
        set_word,
        word_at,
    )

_LIKE = array("Q")
_WORDS = 4
_LEAST_ROOM = 4
"""Capacity of the smallest block, in records. The capacity grows fourfold."""

_BIG = 2**32 - 1
_OWNER_BITS = 63
"""Mask of the part of an owner's number that determines its bit in ``owners``."""

BIG = _BIG
"""A delivery count in a record that means: the count is at least this and stored elsewhere."""

_LONGEST_SPAN = 2**48
"""Maximum difference in milliseconds between ids that are treated as times."""


def expected_at(ms: int, first: int, last: int, count: int) -> int:
    """Estimate the position of ``ms`` among ``count`` ids that are spread evenly over the times ``first`` to
    ``last``. Return -1 if it is not between these, or if they cannot be times. A search from the estimate touches
    two cache lines instead of eight; with a million pending entries, none of these lines is cached.

    >>> expected_at(1050, 1000, 1100, 256), expected_at(1000, 1000, 1000, 256)
    (128, -1)
    """
    if not first < ms < last or last - first >= _LONGEST_SPAN:
        return -1
    return (ms - first) * count // (last - first)


class PendingBlock:
    """Records of one block; see the diagram above. A record's number is valid until the next change."""

    def __init__(self) -> None:
        self.words: array[int] = new_words(_LIKE, 0)
        self.head = 0
        self.end = 0
        self.min_time = MAX_U64
        self.owners = 0
        self.dangling = False
        self._near = 0
        """Number of the record that `find_next` checks: the one after the last that was found."""

    def copy(self) -> PendingBlock:
        made = PendingBlock()
        made.words, made.head, made.end = self.words[:], self.head, self.end
        made.min_time, made.owners, made.dangling = self.min_time, self.owners, self.dangling
        return made

    def count(self) -> int:
        return self.end - self.head

    def records(self) -> array[int]:
        """Return the words of all records, four each."""
        return self.words[_WORDS * self.head : _WORDS * self.end]

    # --- finding --------------------------------------------------------------------------------

    def first_ms(self) -> int:
        return word_at(self.words, _WORDS * self.head)

    def last_ms(self) -> int:
        return word_at(self.words, _WORDS * (self.end - 1))

    def begins_after(self, ms: int, seq: int) -> bool:
        """Return whether the first id is greater than ``ms-seq``."""
        first = word_at(self.words, _WORDS * self.head)
        return first > ms or (first == ms and word_at(self.words, _WORDS * self.head + 1) > seq)

    def ends_before(self, ms: int, seq: int) -> bool:
        """Return whether the last id is less than ``ms-seq``."""
        return self._is_before(self.end - 1, ms, seq)

    def is_at(self, number: int, ms: int, seq: int) -> bool:
        """Return whether record ``number`` exists and has the id ``ms-seq``."""
        if not self.head <= number < self.end:
            return False
        at = _WORDS * number
        return word_at(self.words, at) == ms and word_at(self.words, at + 1) == seq

    def find_next(self, ms: int, seq: int) -> int:
        """Return the number of the record of ``ms-seq`` if it directly follows the one that was found last,
        otherwise -1."""
        number = self._near
        if not self.is_at(number, ms, seq):
            return -1
        self._near = number + 1
        return number

    def find(self, ms: int, seq: int) -> int:
        """Return the number of the record of ``ms-seq``, or -1."""
        number = self.lower_bound(ms, seq)
        if not self.is_at(number, ms, seq):
            return -1
        self._near = number + 1
        return number

    def lower_bound(self, ms: int, seq: int) -> int:
        """Return the number of the first record whose id is at least ``ms-seq``, or ``end``."""
        low, high = self.head, self.end
        near = expected_at(ms, self.first_ms(), self.last_ms(), high - low) if low < high else -1
        # Galloping search from the expected record, then binary search.
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
        """Return the number of consecutive records from ``number`` on that have the same ids as ``ids`` from
        number ``start`` on, two words each."""
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
        """Return the number of consecutive records from ``number`` on, at most ``most``, that have one owner."""
        same, owner = 1, self.owner(number)
        while same < most and word_at(self.words, _WORDS * (number + same) + 3) >> 32 == owner:
            same += 1
        return same

    def first_of(self, owner: int, number: int) -> int:
        """Return the number of the first record from ``number`` on that ``owner`` owns, or -1."""
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
        """Return whether every record has an owner and was delivered after ``time``."""
        if self.owners & 1:  # 0 means no owner
            return False
        if time < 0:
            return True
        if self.min_time <= time:
            self.settle_min_time()
        return self.min_time > time

    def settle_min_time(self) -> None:
        """Recompute ``min_time``. A scan calls this before it reads the records of the block."""
        earliest = MAX_U64
        for number in range(self.head, self.end):
            earliest = min(earliest, word_at(self.words, _WORDS * number + 2))
        self.min_time = earliest

    def settle_owners(self) -> None:
        """Recompute ``owners``."""
        owners = 0
        for number in range(self.head, self.end):
            owners |= self._bit(self.owner(number))
        self.owners = owners

    def _bit(self, owner: int) -> int:
        bit = 1
        return bit << (owner & _OWNER_BITS)

    # --- changing -------------------------------------------------------------------------------

    def set(self, number: int, time: int, owner: int, count: int) -> None:
        """Set the time, owner and count, at most `BIG`, of record ``number``."""
        at = _WORDS * number
        set_word(self.words, at + 2, time)
        set_word(self.words, at + 3, (owner << 32) | count)
        self.min_time = min(self.min_time, time)
        self.owners |= self._bit(owner)

    def append(
        self, ids: array[int], first: int, count: int, time: int, owner: int, most: int
    ) -> int:
        """Append records with delivery count 1 for ``count`` ids from number ``first`` on, all above the ids
        in the block. The block may grow to ``most`` records. Return the number of the first new record."""
        self._make_room(count, most)
        number = self.end
        put_records(self.words, number, ids, first, count, time, (owner << 32) | 1)
        self.end += count
        self.min_time = min(self.min_time, time)
        self.owners |= self._bit(owner)
        return number

    def open(self, number: int, ms: int, seq: int, most: int) -> int:
        """Insert a record for ``ms-seq`` before ``number``; the caller must set its other values. Return its
        number, which may differ from ``number``."""
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
        """Remove ``count`` records from ``number`` on. Moves the records on the shorter side."""
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
        """Append the records of the next block."""
        count = above.count()
        self._make_room(count, most)
        copy_words(self.words, _WORDS * self.end, above.words, _WORDS * above.head, _WORDS * count)
        self.end += count
        self.min_time = min(self.min_time, above.min_time)
        self.owners |= above.owners
        self.dangling = self.dangling or above.dangling

    def split(self, most: int) -> PendingBlock:
        """Move the upper half of the records to a new block and return it."""
        upper = PendingBlock()
        half = self.head + self.count() // 2
        upper.end = self.end - half
        fit_words(upper.words, _WORDS * most)
        copy_words(upper.words, 0, self.words, _WORDS * half, _WORDS * upper.end)
        upper.min_time, upper.owners, upper.dangling = self.min_time, self.owners, self.dangling
        self.end = half
        return upper

    def _make_room(self, count: int, most: int) -> None:
        """Make space for ``count`` records after the last. The block may have at most ``most`` records."""
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
