"""Owned pending entries in the order of their delivery times, for XREADGROUP CLAIM.

Ties keep the order in which entries got their time (Redis keeps a linked list sorted so). What is
stored are runs, ``(time, first id, last id)``: a read of a thousand neighbours is one run.

Rule 1. A pending record belongs to the order at (t, its place in a run of t) when it is owned and
        its delivery time is t. A run may cover ids whose record has gone or has another time: they
        are passed over. Settling therefore costs the order nothing.
Rule 2. No id is covered twice by runs of one time: an id that gets the time t again is cut out of
        the run that covers it first.
Rule 3. A run grows only by the record that stands next in the pending list, so it covers no more
        records than were put into it; what has gone from the head is dropped when a walk meets it,
        and when the runs cover four times what is pending, all that is without a record. A walk
        thus costs a few steps for each entry that it gives, however consumers' entries lie among
        each other and however often they are renewed.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

from headwater.engine.pending import NOBODY, NOWHERE, PendingList
from headwater.model import MAX_U64, id_after, id_before

_WORDS = 4
_SLACK = 64
_MOST_COVERED = 4

NO_TIME = -1

ID = tuple[int, int]

GREATEST: ID = (MAX_U64, MAX_U64)


class DeliveryOrder:
    """Runs over the records of ``pel``."""

    def __init__(self, pel: PendingList) -> None:
        self.pel = pel
        self.times: array[int] = array("Q")
        self.ids: array[int] = array("Q")
        """Four words a run: ms and seq of the first id, ms and seq of the last."""
        self.counts: array[int] = array("Q")
        """How many records were put into each run."""
        self.covered = 0
        """The sum of ``counts``."""
        self.index_time = NO_TIME
        self.index: list[tuple[ID, ID]] = []
        """First and last ids of the runs of ``index_time``, sorted: what `add` looks into."""

    def __len__(self) -> int:
        return len(self.times)

    def copy(self, pel: PendingList) -> DeliveryOrder:
        """The same order over ``pel``, a copy of the pending list."""
        made = DeliveryOrder(pel)
        made.times, made.ids, made.counts = self.times[:], self.ids[:], self.counts[:]
        made.covered = self.covered
        return made

    def add(self, at: int, time: int, ms: int, seq: int) -> None:
        """The record ``ms-seq``, at the position ``at``, is owned and has just got this time."""
        times, entry_id = self.times, (ms, seq)
        if time != self.index_time:
            self._index(time)
        index = self.index
        place = len(times)
        if times and time < times[-1]:
            place = bisect_right(times, time)
        if index and entry_id <= index[-1][1]:
            found = bisect_right(index, (entry_id, GREATEST)) - 1
            if found >= 0 and entry_id <= index[found][1]:
                place += self._cut(index.pop(found), entry_id)
        elif index and self._grow(place - 1, at, entry_id):
            return
        self._insert(place, time, (entry_id, entry_id), 1)
        insort(index, (entry_id, entry_id))
        self.tidy()

    def _grow(self, run: int, at: int, entry_id: ID) -> bool:
        """Make ``entry_id`` the last of a run, if the run ends with the greatest id of its time and
        with the record before it."""
        first, last = self._run(run)
        before = self.pel.before(at)
        if last != self.index[-1][1] or before == NOWHERE or self.pel.id(before) != last:
            return False
        self.ids[run * _WORDS + 2], self.ids[run * _WORDS + 3] = entry_id
        self.counts[run] += 1
        self.covered += 1
        self.index[-1] = (first, entry_id)
        return True

    def runs(self) -> Iterator[tuple[int, ID, ID]]:
        """All runs, head first: time, first id, last id."""
        for at, time in enumerate(self.times):
            yield time, *self._run(at)

    def walk(self) -> Iterator[int]:
        """Positions in the pending list of the owned records, oldest delivery first.

        The order must not be changed while it is walked; collect first, then mutate.
        """
        self.tidy()
        self._shed()
        yield from self._walk()

    def _walk(self) -> Iterator[int]:
        pel = self.pel
        for time, first, last in self.runs():
            at = pel.seek(*first)
            while at != NOWHERE and pel.id(at) <= last:
                if pel.time(at) == time and pel.owner(at) != NOBODY:
                    yield at
                at = pel.after(at)

    def oldest(self) -> int | None:
        """The earliest delivery time of an owned record, None when there is none."""
        at = next(self.walk(), NOWHERE)
        return None if at == NOWHERE else self.pel.time(at)

    def clear(self) -> None:
        """Forget all runs; the pending list is empty."""
        del self.times[:]
        del self.ids[:]
        del self.counts[:]
        self.covered = 0
        self.index_time = NO_TIME

    def tidy(self) -> None:
        """Drop what covers nothing, once that is most of it (rule 3); no record changes its place."""
        most = _MOST_COVERED * len(self.pel) + _SLACK
        if self.covered <= most:
            return
        kept = [at for at in range(len(self.times)) if self._first_of(at) != NOWHERE]
        self.ids = array("Q", (word for at in kept for pair in self._run(at) for word in pair))
        self.times = array("Q", (self.times[at] for at in kept))
        self.counts = array("Q", (self.counts[at] for at in kept))
        self.covered = sum(self.counts)
        self.index_time = NO_TIME
        if self.covered > most // 2:
            self._build_anew()

    def _shed(self) -> None:
        """Drop from the head what has no record, so that the next walk begins with one."""
        run, first = 0, NOWHERE
        while run < len(self.times) and first == NOWHERE:
            first = self._first_of(run)
            run += first == NOWHERE
        if run:
            self.index_time = NO_TIME
            self.covered -= sum(self.counts[:run])
            del self.times[:run]
            del self.ids[: run * _WORDS]
            del self.counts[:run]
        if first != NOWHERE and self.pel.id(first) != (self.ids[0], self.ids[1]):
            self.index_time = NO_TIME
            self.ids[0], self.ids[1] = self.pel.id(first)

    def _build_anew(self) -> None:
        """Runs of exactly the records that are there: most of what the runs covered has gone."""
        there = [(at, self.pel.time(at), self.pel.id(at)) for at in self._walk()]
        self.clear()
        for at, time, (ms, seq) in there:
            self.add(at, time, ms, seq)

    def _index(self, time: int) -> None:
        """Make ``index`` that of the runs of ``time``."""
        self.index_time = time
        self.index = []
        if self.times and time <= self.times[-1]:
            low, high = bisect_left(self.times, time), bisect_right(self.times, time)
            self.index = sorted(self._run(run) for run in range(low, high))

    def _run(self, at: int) -> tuple[ID, ID]:
        ids, base = self.ids, at * _WORDS
        return (ids[base], ids[base + 1]), (ids[base + 2], ids[base + 3])

    def _insert(self, run: int, time: int, ends: tuple[ID, ID], count: int) -> None:
        self.times.insert(run, time)
        self.ids[run * _WORDS : run * _WORDS] = array("Q", (*ends[0], *ends[1]))
        self.counts.insert(run, count)
        self.covered += count

    def _cut(self, ends: tuple[ID, ID], entry_id: ID) -> int:
        """Take ``entry_id`` out of the run of ``index_time`` that is known by its ends (rule 2); how
        many runs more there are now."""
        run = self._find(ends)
        count = self.counts.pop(run)
        self.covered -= count
        del self.times[run]
        del self.ids[run * _WORDS : (run + 1) * _WORDS]
        first, last = ends
        left = []
        if first < entry_id:
            left.append((first, id_before(*entry_id)))
        if entry_id < last:
            left.append((id_after(*entry_id), last))
        for number, part in enumerate(left):
            # How many stand on which side is not known; the sum is what tidying needs.
            self._insert(run + number, self.index_time, part, count // len(left))
            insort(self.index, part)
        return len(left) - 1

    def _find(self, ends: tuple[ID, ID]) -> int:
        """The run of ``index_time`` with these ends; there is one. Bytes are compared, because a
        command that names thousands of ids twice would have thousands of runs looked at for each."""
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

    def _first_of(self, run: int) -> int:
        """The position of the first record that a run still has, or `NOWHERE`."""
        pel, time = self.pel, self.times[run]
        first, last = self._run(run)
        at = pel.seek(*first)
        while at != NOWHERE and pel.id(at) <= last:
            if pel.time(at) == time and pel.owner(at) != NOBODY:
                return at
            at = pel.after(at)
        return NOWHERE
