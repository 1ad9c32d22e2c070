"""Finds the rank of an id among the archived entries, and the n-th entry's id.

The manifest has the first id and the count of every row group. Ids are read only from the one row group that
contains the answer.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate

import pyarrow as pa

from headwater.model import IDRange, StreamID
from headwater.spark.archive.manifest import Manifest
from headwater.spark.archive.row_groups import Place, ids_of

_GROUPS_KEPT = 8


class Index:
    """The row groups of one archived stream, as the manifest listed them when this was made.

    Ranks count from 1: the entry of rank n has n - 1 archived entries before it.
    """

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self.segments = manifest.segments()
        self.places = [
            Place(segment, file, number, group)
            for segment in self.segments
            for file in segment.files
            for number, group in enumerate(file.groups)
        ]
        self._firsts = [place.group.first for place in self.places]
        self._lasts = [place.group.last for place in self.places]
        self._before = [0, *accumulate(place.group.entries for place in self.places)]
        self._ids = lru_cache(_GROUPS_KEPT)(self._read_ids)

    @property
    def entries(self) -> int:
        return self._before[-1]

    def rank(self, id_: StreamID) -> int:
        """Return how many archived entries have ids up to and including ``id_``."""
        at = bisect_right(self._firsts, id_) - 1
        if at < 0:
            return 0
        if id_ >= self._lasts[at]:
            return self._before[at + 1]
        return self._before[at] + rank_in(self._ids(at), id_)

    def count(self, start: StreamID, to: StreamID) -> int:
        """Return how many archived entries are after ``start``, up to ``to``."""
        return max(0, self.rank(to) - self.rank(start))

    def id_at(self, rank: int) -> StreamID:
        """Return the id of the entry with ``rank``, which is from 1 to `entries`."""
        assert 1 <= rank <= self.entries, (rank, self.entries)
        at = bisect_left(self._before, rank) - 1
        offset = rank - self._before[at] - 1
        group = self.places[at].group
        if offset == 0:
            return group.first
        if offset == group.entries - 1:
            return group.last
        return StreamID.parse(self._ids(at)[offset].as_py())

    def edge_near(self, rank: int) -> int:
        """Return the rank nearest to ``rank`` at which a row group ends."""
        at = bisect_left(self._before, rank)
        near = self._before[max(0, at - 1) : at + 1]
        return min(near, key=lambda edge: abs(edge - rank))

    def within(self, ids: IDRange) -> Iterator[Place]:
        """Yield the row groups that contain entries of ``ids``, in order."""
        for at in range(bisect_left(self._lasts, ids.start), len(self.places)):
            if self._firsts[at] > ids.end:
                return
            yield self.places[at]

    def _read_ids(self, at: int) -> pa.Array:
        return ids_of(self._manifest, self.places[at])


def rank_in(ids: pa.Array, id_: StreamID) -> int:
    """Return how many of ``ids`` (texts, increasing) are up to ``id_``."""
    return bisect_right(range(len(ids)), id_, key=lambda at: StreamID.parse(ids[at].as_py()))
