"""Owned pending entries in the order of their delivery times, for XREADGROUP CLAIM.

Ties keep the order in which entries got their time (Redis keeps a linked list sorted so). What is
stored are runs, ``(time, first id, last id)``: a read of a thousand neighbours is one run.

Rule 1. A pending record belongs to the order at (t, its place in a run of t) when it is owned and
        its delivery time is t. A run may cover ids whose record has gone or has another time: they
        are passed over. Settling therefore costs the order nothing.
Rule 2. No id is covered twice by runs of one time: an id that gets the time t again is cut out of
        the run that covers it first.
Rule 3. When runs outnumber twice the records, those without a record are dropped.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from headwater.engine.pending import NOBODY, NOWHERE, PendingList
from headwater.model import id_after, id_before

_WORDS = 4
_SLACK = 64


class DeliveryOrder:
    """Runs over the records of ``pel``."""

    def __init__(self, pel: PendingList) -> None:
        self.pel = pel
        self.times: array[int] = array("Q")
        self.ids: array[int] = array("Q")
        """Four words a run: ms and seq of the first id, ms and seq of the last."""
        self.top = (0, 0)
        """Greatest id covered by the runs of the latest time."""

    def __len__(self) -> int:
        return len(self.times)

    def add(self, time: int, ms: int, seq: int) -> None:
        """The record ``ms-seq`` is owned and has just got the delivery time ``time``."""
        times, ids = self.times, self.ids
        if not times or time > times[-1]:
            self.top = (0, 0)
        elif time < times[-1]:
            self._cut(time, ms, seq)
            self._insert(bisect_right(times, time), time, ms, seq, ms, seq)
            return
        elif (ms, seq) <= self.top:
            self._cut(time, ms, seq)
        elif (ids[-2], ids[-1]) == self.top:
            ids[-2], ids[-1] = ms, seq
            self.top = (ms, seq)
            return
        times.append(time)
        ids.extend((ms, seq, ms, seq))
        self.top = max(self.top, (ms, seq))
        self._tidy()

    def runs(self) -> Iterator[tuple[int, tuple[int, int], tuple[int, int]]]:
        """All runs, head first: time, first id, last id."""
        for at, time in enumerate(self.times):
            yield time, *self._run(at)

    def walk(self) -> Iterator[int]:
        """Positions in the pending list of the owned records, oldest delivery first.

        The order must not be changed while it is walked; collect first, then mutate.
        """
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
        self.top = (0, 0)

    def _run(self, at: int) -> tuple[tuple[int, int], tuple[int, int]]:
        ids, base = self.ids, at * _WORDS
        return (ids[base], ids[base + 1]), (ids[base + 2], ids[base + 3])

    def _insert(self, at: int, time: int, ms1: int, seq1: int, ms2: int, seq2: int) -> None:
        self.times.insert(at, time)
        self.ids[at * _WORDS : at * _WORDS] = array("Q", (ms1, seq1, ms2, seq2))
        self._tidy()

    def _remove(self, at: int) -> None:
        del self.times[at]
        del self.ids[at * _WORDS : (at + 1) * _WORDS]

    def _cut(self, time: int, ms: int, seq: int) -> None:
        """Take ``ms-seq`` out of the run of ``time`` that covers it, if any (rule 2)."""
        at = bisect_left(self.times, time)
        while at < len(self.times) and self.times[at] == time:
            first, last = self._run(at)
            if first <= (ms, seq) <= last:
                self._remove(at)
                if (ms, seq) < last:
                    self._insert_untidied(at, time, id_after(ms, seq), last)
                if first < (ms, seq):
                    self._insert_untidied(at, time, first, id_before(ms, seq))
                return
            at += 1

    def _insert_untidied(
        self, at: int, time: int, first: tuple[int, int], last: tuple[int, int]
    ) -> None:
        self.times.insert(at, time)
        self.ids[at * _WORDS : at * _WORDS] = array("Q", (*first, *last))

    def _tidy(self) -> None:
        if len(self.times) > 2 * len(self.pel) + _SLACK:
            kept = [run for run in self.runs() if self._alive(*run)]
            self.times = array("Q", (time for time, _, _ in kept))
            self.ids = array("Q", (word for _, a, b in kept for word in (*a, *b)))
            latest = self.times[-1] if kept else 0
            self.top = max((b for time, _, b in kept if time == latest), default=(0, 0))

    def _alive(self, time: int, first: tuple[int, int], last: tuple[int, int]) -> bool:
        pel = self.pel
        at = pel.seek(*first)
        while at != NOWHERE and pel.id(at) <= last:
            if pel.time(at) == time and pel.owner(at) != NOBODY:
                return True
            at = pel.after(at)
        return False
