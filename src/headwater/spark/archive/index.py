"""Finds the rank of an id among the archived entries, and the n-th entry's id.

The manifest has the bounds and counts of every list of files, and each list has those of its row groups. A look-up
therefore reads one list, and the ids of one row group only if the answer lies within it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate

import pyarrow as pa

from headwater.common.model import IDRange, StreamID
from headwater.spark.archive.manifest import Manifest
from headwater.spark.archive.row_groups import Place, ids_of
from headwater.spark.core.positions import BEGINNING, Position

_GROUPS_KEPT = 8
_LISTS_KEPT = 16


class Index:
    """The row groups of one archived stream, as the manifest listed them when the index was made.

    Ranks count from 1: the entry of rank n has n - 1 archived entries before it.
    """

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self.segments = manifest.segments()
        self._lists = [(segment, one) for segment in self.segments for one in segment.lists]
        self._firsts = [one.first for _segment, one in self._lists]
        self._lasts = [one.last for _segment, one in self._lists]
        self._before = [0, *accumulate(one.entries for _segment, one in self._lists)]
        self._groups = lru_cache(_LISTS_KEPT)(self._read_groups)
        self._ids = lru_cache(_GROUPS_KEPT)(self._read_ids)

    @property
    def end(self) -> Position:
        """The archive's end."""
        return self.segments[-1].end if self.segments else BEGINNING

    @property
    def entries(self) -> int:
        return self._before[-1]

    def rank(self, id_: StreamID) -> int:
        """Return the number of archived entries with ids up to and including ``id_``."""
        at = bisect_right(self._firsts, id_) - 1
        if at < 0:
            return 0
        if id_ >= self._lasts[at]:
            return self._before[at + 1]
        groups = self._groups(at)
        number = bisect_right(groups.firsts, id_) - 1
        if id_ >= groups.lasts[number]:
            return groups.before[number + 1]
        return groups.before[number] + rank_in(self._ids(at, number), id_)

    def count(self, start: StreamID, to: StreamID) -> int:
        """Return the number of archived entries after ``start``, up to ``to``."""
        return max(0, self.rank(to) - self.rank(start))

    def id_at(self, rank: int) -> StreamID:
        """Return the id of the entry with ``rank``, which must be from 1 to `entries`."""
        assert 1 <= rank <= self.entries, (rank, self.entries)
        at = bisect_left(self._before, rank) - 1
        groups = self._groups(at)
        number = bisect_left(groups.before, rank) - 1
        offset = rank - groups.before[number] - 1
        group = groups.places[number].group
        if offset == 0:
            return group.first
        if offset == group.entries - 1:
            return group.last
        return StreamID.parse(self._ids(at, number)[offset].as_py())

    def edge_near(self, rank: int) -> int:
        """Return the rank nearest to ``rank`` at which a row group ends."""
        before = self._before
        if rank > 0:
            before = self._groups(bisect_left(self._before, rank) - 1).before
        at = bisect_left(before, rank)
        near = before[max(0, at - 1) : at + 1]
        return min(near, key=lambda edge: abs(edge - rank))

    def within(self, ids: IDRange) -> Iterator[Place]:
        """Yield the row groups that contain entries of ``ids``, in order."""
        for at in range(bisect_left(self._lasts, ids.start), len(self._lists)):
            if self._firsts[at] > ids.end:
                return
            groups = self._groups(at)
            for number in range(bisect_left(groups.lasts, ids.start), len(groups.places)):
                if groups.firsts[number] > ids.end:
                    return
                yield groups.places[number]

    def _read_groups(self, at: int) -> _Groups:
        segment, among = self._lists[at]
        return _Groups(
            [
                Place(segment, file, number, group)
                for file in self._manifest.files(among)
                for number, group in enumerate(file.groups)
            ],
            self._before[at],
        )

    def _read_ids(self, at: int, number: int) -> pa.Array:
        return ids_of(self._manifest.directory, self._groups(at).places[number])


class _Groups:
    """The row groups of one list. ``before`` has the rank before each group, then the rank of the last entry."""

    def __init__(self, places: list[Place], before: int) -> None:
        self.places = places
        self.firsts = [place.group.first for place in places]
        self.lasts = [place.group.last for place in places]
        self.before = [*accumulate((place.group.entries for place in places), initial=before)]


def rank_in(ids: pa.Array, id_: StreamID) -> int:
    """Return the number of ``ids`` up to and including ``id_``. The ids must be strings that increase."""
    return bisect_right(range(len(ids)), id_, key=lambda at: StreamID.parse(ids[at].as_py()))
