"""Owned pending entries in the order of their delivery times, for XREADGROUP CLAIM.

Entries with equal times keep the order in which they got the time, as in the sorted linked list of Redis.
The order is stored as runs, ``(time, first id, last id)``: a read of a thousand neighbours is one run.

Rule 1. A pending record is in the order at (t, its place in a run of t) if it has an owner and its
        delivery time is t. A run may cover ids whose record was removed or has another time; a walk skips
        them. Settling an entry therefore does not change the order.
Rule 2. No two runs of the same time cover the same id: an id that gets the time t again is first cut out
        of the run that covers it.
Rule 3. A run grows only by the next record of the pending list, so it covers only records that were
        added to it. A walk drops removed records at the head. When the runs cover more than four times
        the number of pending entries, everything without a record is dropped. A walk therefore takes a
        few steps for each entry that it returns, regardless of the mixture of consumers and of the number
        of renewals.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

from headwater.common.model import MAX_U64, id_after, id_before
from headwater.engine.accounts.memory_account import INDEX_BYTES, RUN_BYTES
from headwater.engine.groups.pending import PendingList

try:
    import cython
except ImportError:
    from headwater import _cython as cython

if not cython.compiled:  # memory_c.pxd has them in C
    from headwater.native.memory import add_word, insert_words, remove_words, set_word, word_at

_WORDS = 4
_SLACK = 64
_MOST_COVERED = 4
_NO_TIME = -1

ID = tuple[int, int]

GREATEST: ID = (MAX_U64, MAX_U64)


class DeliveryOrder:
    """The delivery order of the records of ``pel``, as runs."""

    def __init__(self, pel: PendingList) -> None:
        self.pel = pel
        self.times: array[int] = array("Q")
        self.ids: array[int] = array("Q")
        """Four words for each run: ms and seq of the first id, ms and seq of the last."""
        self.counts: array[int] = array("Q")
        """The number of records that were added to each run."""
        self.covered = 0
        """The sum of ``counts``."""
        self.index_time = _NO_TIME
        self.index: list[tuple[ID, ID]] = []
        """First and last ids of the runs of ``index_time``, sorted. `add` searches it."""
        self.booked = 0

    def __del__(self) -> None:
        self.pel.account.pending -= self.booked

    def __len__(self) -> int:
        return len(self.times)

    def copy(self, pel: PendingList) -> DeliveryOrder:
        """Return the same order for ``pel``, a copy of the pending list."""
        made = DeliveryOrder(pel)
        made.times, made.ids, made.counts = self.times[:], self.ids[:], self.counts[:]
        made.covered = self.covered
        made.book()
        return made

    def leave_account(self) -> None:
        """Subtract the runs from the pending list's account. The list must get another account before `book`."""
        self.pel.account.pending -= self.booked
        self.booked = 0

    def book(self) -> None:
        """Account for the runs together with the pending list."""
        size = RUN_BYTES * len(self.times) + INDEX_BYTES * len(self.index)
        if size != self.booked:
            self.pel.account.pending += size - self.booked
            self.booked = size

    # --- adding ---------------------------------------------------------------------------------

    def add(self, at: int, count: int, time: int) -> None:
        """Add ``count`` consecutive records from the position ``at`` on. They must have an owner,
        and have just got this time."""
        first = self.pel.id(at)
        if time != self.index_time:
            self._index(time)
        if self.index and first <= self.index[-1][1]:
            for _ in range(count):
                self._add_among(at, time)
                at = self.pel.after(at)
            return
        last = first if count == 1 else self._last_of(at, count)
        place = self._place(time)
        if self.index and self._grow(place - 1, at, last, count):
            return
        self._insert(place, time, first, last, count)
        self.index.append((first, last))
        self.tidy()

    def _add_among(self, at: int, time: int) -> None:
        """Add a record whose id is not above all others with this time. If a run covers the id, it is cut out
        of that run first (rule 2)."""
        if time != self.index_time:  # `tidy` has cleared it after the previous record
            self._index(time)
        entry_id, place = self.pel.id(at), self._place(time)
        found = bisect_right(self.index, (entry_id, GREATEST)) - 1
        if found >= 0 and entry_id <= self.index[found][1]:
            place += self._cut(self.index.pop(found), entry_id)
        self._insert(place, time, entry_id, entry_id, 1)
        insort(self.index, (entry_id, entry_id))
        self.tidy()

    def _last_of(self, at: int, count: int) -> ID:
        """Return the id of the last of ``count`` consecutive records from the position ``at`` on."""
        pel = self.pel
        block = pel.block_at(at)
        number = pel.number_in_block(at)
        while count > block.end - number:
            count -= block.end - number
            at = pel.block_start(pel.number_of(at) + 1)
            block = pel.block_at(at)
            number = block.head
        return pel.id(at + count - 1)

    def _place(self, time: int) -> int:
        """Return the index at which to insert a run of this time: after all others of this time."""
        size = len(self.times)
        if not size or word_at(self.times, size - 1) <= time:
            return size
        return bisect_right(self.times, time)

    def _grow(self, run: int, at: int, end: ID, count: int) -> bool:
        """Extend a run to ``end`` by the ``count`` records from ``at`` on, if the run ends with the greatest id
        of its time and with the record before ``at``. Return whether it was extended."""
        first, last = self._run(run)
        before = self.pel.before(at)
        if last != self.index[-1][1] or before < 0 or self.pel.id(before) != last:
            return False
        set_word(self.ids, run * _WORDS + 2, end[0])
        set_word(self.ids, run * _WORDS + 3, end[1])
        add_word(self.counts, run, count)
        self.covered += count
        self.index[-1] = (first, end)
        return True

    # --- walking --------------------------------------------------------------------------------

    def runs(self) -> Iterator[tuple[int, ID, ID]]:
        """Yield all runs from the head on: time, first id, last id."""
        for at, time in enumerate(self.times):
            yield time, *self._run(at)

    def begin(self) -> DeliveryWalk:
        """Start a walk over the owned records, oldest delivery first.

        The order must not change during the walk: collect positions first, then mutate.
        """
        self.tidy()
        self._shed()
        return DeliveryWalk(self)

    def walk(self) -> Iterator[int]:
        """Yield the positions of a walk."""
        walk = self.begin()
        while (at := walk.next()) >= 0:
            yield at

    # --- tidying --------------------------------------------------------------------------------

    def clear(self) -> None:
        """Remove all runs."""
        remove_words(self.times, 0, len(self.times))
        remove_words(self.ids, 0, len(self.ids))
        remove_words(self.counts, 0, len(self.counts))
        self.covered = 0
        self.index_time = _NO_TIME
        self.index.clear()
        self.book()

    def tidy(self) -> None:
        """Drop runs without records once too many removed records are covered (rule 3). Records keep their places."""
        if self.covered > _MOST_COVERED * self.pel.length + _SLACK:
            self._drop_empty(_MOST_COVERED * self.pel.length + _SLACK)
        self.book()

    def _drop_empty(self, most: int) -> None:
        kept = [run for run in range(len(self.times)) if self.next_in(run, -1) >= 0]
        self.ids = array("Q", [word for run in kept for pair in self._run(run) for word in pair])
        self.times = array("Q", [self.times[run] for run in kept])
        self.counts = array("Q", [self.counts[run] for run in kept])
        self.covered = sum(self.counts)
        self.index_time = _NO_TIME
        self.book()
        if self.covered > most // 2:
            self._rebuild()

    def _shed(self) -> None:
        """Drop runs and ids without a record from the head, so that the next walk begins with a record."""
        run, first = 0, -1
        while run < len(self.times) and first < 0:
            first = self.next_in(run, -1)
            run += first < 0
        if run:
            self.index_time = _NO_TIME
            for gone in range(run):
                self.covered -= word_at(self.counts, gone)
            remove_words(self.times, 0, run)
            remove_words(self.ids, 0, run * _WORDS)
            remove_words(self.counts, 0, run)
            self.book()
        if first >= 0 and self.pel.id(first) != (self.ids[0], self.ids[1]):
            self.index_time = _NO_TIME
            self.ids[0], self.ids[1] = self.pel.id(first)

    def _rebuild(self) -> None:
        """Create runs of exactly the existing records, because most covered records were removed."""
        there: list[tuple[int, int]] = []
        walk = DeliveryWalk(self)
        while (at := walk.next()) >= 0:
            there.append((at, self.pel.time(at)))
        self.clear()
        for at, time in there:
            self.add(at, 1, time)

    # --- parts ----------------------------------------------------------------------------------

    def _index(self, time: int) -> None:
        """Build ``index`` for the runs of ``time``."""
        self.index_time = time
        self.index = []
        size = len(self.times)
        if size and time <= word_at(self.times, size - 1):
            low, high = bisect_left(self.times, time), bisect_right(self.times, time)
            self.index = sorted([self._run(run) for run in range(low, high)])
        self.book()

    def _run(self, run: int) -> tuple[ID, ID]:
        ids, base = self.ids, run * _WORDS
        first = (word_at(ids, base), word_at(ids, base + 1))
        return first, (word_at(ids, base + 2), word_at(ids, base + 3))

    def _insert(self, run: int, time: int, first: ID, last: ID, count: int) -> None:
        insert_words(self.times, run, 1)
        set_word(self.times, run, time)
        insert_words(self.counts, run, 1)
        set_word(self.counts, run, count)
        base = run * _WORDS
        insert_words(self.ids, base, _WORDS)
        set_word(self.ids, base, first[0])
        set_word(self.ids, base + 1, first[1])
        set_word(self.ids, base + 2, last[0])
        set_word(self.ids, base + 3, last[1])
        self.covered += count

    def _cut(self, ends: tuple[ID, ID], entry_id: ID) -> int:
        """Cut ``entry_id`` out of the run of ``index_time`` with these ends (rule 2). Return the increase in the
        number of runs."""
        run = self._find(ends)
        count = self.counts[run]
        self.covered -= count
        remove_words(self.times, run, 1)
        remove_words(self.counts, run, 1)
        remove_words(self.ids, run * _WORDS, _WORDS)
        first, last = ends
        left = []
        if first < entry_id:
            left.append((first, id_before(*entry_id)))
        if entry_id < last:
            left.append((id_after(*entry_id), last))
        for number, part in enumerate(left):
            # The number on each side is unknown; `tidy` needs only the sum.
            self._insert(run + number, self.index_time, part[0], part[1], count // len(left))
            insort(self.index, part)
        return len(left) - 1

    def _find(self, ends: tuple[ID, ID]) -> int:
        """Return the run of ``index_time`` with these ends, which must exist. Searches bytes, because a command
        that names thousands of ids twice would otherwise compare thousands of runs for each id."""
        low, high = (
            bisect_left(self.times, self.index_time),
            bisect_right(self.times, self.index_time),
        )
        if self._run(low) == ends:
            return low
        size = _WORDS * self.ids.itemsize
        runs = self.ids[low * _WORDS : high * _WORDS].tobytes()
        wanted = array("Q", (*ends[0], *ends[1])).tobytes()
        at = runs.find(wanted)
        while at % size:
            at = runs.find(wanted, at + 1)
        return low + at // size

    def next_in(self, run: int, at: int) -> int:
        """Return the position of the first record after ``at`` that still belongs to a run, or `NOWHERE`. Begin at
        the start of the run if ``at`` is `NOWHERE`."""
        pel, ids, base = self.pel, self.ids, run * _WORDS
        time = word_at(self.times, run)
        at = pel.seek(word_at(ids, base), word_at(ids, base + 1)) if at < 0 else pel.after(at)
        ms, seq = word_at(ids, base + 2), word_at(ids, base + 3)
        while at >= 0:
            found = pel.ms(at)
            if found > ms or (found == ms and pel.seq(at) > seq):
                return -1
            if pel.time(at) == time and pel.owner(at):
                break
            at = pel.after(at)
        return at


class DeliveryWalk:
    """The position of a walk over an order."""

    def __init__(self, order: DeliveryOrder) -> None:
        self._order = order
        self._run = 0
        self._at = -1

    def next(self) -> int:
        """Return the position of the next owned record, `NOWHERE` after the last."""
        while self._run < len(self._order.times):
            self._at = self._order.next_in(self._run, self._at)
            if self._at >= 0:
                return self._at
            self._run += 1
        return -1
