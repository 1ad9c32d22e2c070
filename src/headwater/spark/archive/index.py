"""Where an id stands among the archived entries: how many come before it, and which is the n-th.

The manifest knows the first id and the count of every row group; only within the one row group that
a question falls into are the ids themselves read.
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
    """The row groups of one archived stream, as of ``manifest`` when it was made.

    Ranks count from 1: the entry of rank n has n - 1 archived ones before it.
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
        """How many archived entries have ids up to ``id_``, itself included."""
        at = bisect_right(self._firsts, id_) - 1
        if at < 0:
            return 0
        if id_ >= self._lasts[at]:
            return self._before[at + 1]
        return self._before[at] + rank_in(self._ids(at), id_)

    def count(self, start: StreamID, to: StreamID) -> int:
        """How many archived entries there are after ``start``, up to ``to``."""
        return max(0, self.rank(to) - self.rank(start))

    def id_at(self, rank: int) -> StreamID:
        """The id of the entry of ``rank``, which is one of 1 to `entries`."""
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
        """The rank nearest to ``rank`` at which a row group ends."""
        at = bisect_left(self._before, rank)
        near = self._before[max(0, at - 1) : at + 1]
        return min(near, key=lambda edge: abs(edge - rank))

    def within(self, ids: IDRange) -> Iterator[Place]:
        """The row groups that hold entries of ``ids``, in order."""
        for at in range(bisect_left(self._lasts, ids.start), len(self.places)):
            if self._firsts[at] > ids.end:
                return
            yield self.places[at]

    def _read_ids(self, at: int) -> pa.Array:
        return ids_of(self._manifest, self.places[at])


def rank_in(ids: pa.Array, id_: StreamID) -> int:
    """How many of ``ids`` (text, rising) are up to ``id_``."""
    return bisect_right(range(len(ids)), id_, key=lambda at: StreamID.parse(ids[at].as_py()))
