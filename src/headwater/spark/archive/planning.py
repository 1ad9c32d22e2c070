"""`ArchivePlanner`: plans batches of an archive and its stream together.

The archive provides everything up to its end, and the stream what comes after. The stream is read between
two reads of the manifest. The archiver trims entries only after the manifest names them, so if the archive's end
is the same in both reads, nothing after it was trimmed before the stream was read. Otherwise planning is
repeated.

Entries up to the archive's end that the stream still holds (because a group has not settled them, or because
they are not trimmed yet) count as the archive's, so each entry is counted once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from headwater.errors import HeadwaterError
from headwater.model import IDRange, StreamID
from headwater.spark.archive.index import Index
from headwater.spark.archive.store import ArchiveStore, archived_state, set_back_behind
from headwater.spark.core.ids import after
from headwater.spark.core.planners import planner
from headwater.spark.core.planning import CutRange, Limits, Look, Planner, Wanted, part_sizes
from headwater.spark.core.positions import Position, ReadSpan
from headwater.spark.core.state import StreamState

T = TypeVar("T")

_ATTEMPTS: Final = 100
"""How often planning is repeated. An archive rarely grows between two reads that are milliseconds apart."""


class ArchivePlanner:
    """A `Planner` for archive and stream. Each method reads both as of one moment (`_while_unchanged`)."""

    def __init__(self, store: ArchiveStore) -> None:
        self._store = store
        self._stream: Planner = planner(store)
        self._indexes: dict[str, Index] = {}

    def look(self, stream: str, position: Position, upto: Position | None) -> Look | None:
        def ask(index: Index, end: Position) -> Look | None:
            begin = max(position, end, key=lambda one: one.id)
            look = self._stream.look(stream, begin, upto)
            if look is None:
                state = archived_state(self._store.manifest(stream))
                if state is None:
                    return None
                look = Look(state, state.last_id, 0, 0)
            elif look.state.last_id < end.id:
                raise set_back_behind(self._store.manifest(stream), look.state)
            archived = index.count(position.id, end.id)
            if upto is None or upto.id >= end.id:
                return look._replace(total=look.total + archived, taken=look.taken + archived)
            to = max(position.id, upto.id)
            taken = index.count(position.id, to)
            return look._replace(to=upto.id, total=look.total + archived, taken=taken)

        return self._while_unchanged(stream, ask)

    def look_at_all(self, wanted: Wanted) -> dict[str, Look | None]:
        return {stream: self.look(stream, *places) for stream, places in wanted.items()}

    def limit(self, stream: str, position: Position, look: Look, count: int) -> Look | None:
        def ask(index: Index, end: Position) -> Look | None:
            archived = index.count(position.id, min(end.id, look.to))
            if archived >= count:
                to = index.id_at(index.rank(position.id) + count)
                return look._replace(to=to, taken=count)
            begin = max(position, end, key=lambda one: one.id)
            live = look._replace(total=look.total - archived, taken=look.taken - archived)
            shorter = self._stream.limit(stream, begin, live, count - archived)
            return shorter and shorter._replace(
                total=shorter.total + archived, taken=shorter.taken + archived
            )

        return self._while_unchanged(stream, ask)

    def limit_all(self, wanted: Limits) -> dict[str, Look | None]:
        return {stream: self.limit(stream, *one) for stream, one in wanted.items()}

    def cut(self, stream: str, span: ReadSpan, parts: int) -> CutRange:
        start, to = span.start.id, span.end.id

        def ask(index: Index, end: Position) -> CutRange:
            archived = index.count(start, min(to, end.id))
            rest = max(0, span.entries - archived)
            state: StreamState | None = None
            cuts: list[tuple[IDRange, int]] = []
            if archived:
                share = parts if not rest else max(1, parts * archived // span.entries)
                cuts = _archived_parts(index, start, min(to, end.id), share)
            if to > end.id:
                begin = max(span.start, end, key=lambda one: one.id)
                live = self._stream.cut(
                    stream, ReadSpan(begin, span.end), max(1, parts - len(cuts))
                )
                state, cuts = live.state, cuts + live.parts
            if state is None and sum(count for _ids, count in cuts) != span.entries:
                state = self._store.state(stream)  # it explains what is missing
            return CutRange(state, cuts)

        return self._while_unchanged(stream, ask)

    def cut_all(self, spans: Mapping[str, tuple[ReadSpan, int]]) -> dict[str, CutRange]:
        return {stream: self.cut(stream, *asked) for stream, asked in spans.items()}

    def count(self, stream: str, start: StreamID, to: StreamID) -> int:
        def ask(index: Index, end: Position) -> int:
            archived = index.count(start, min(to, end.id))
            return archived + self._stream.count(stream, max(start, end.id), to)

        return self._while_unchanged(stream, ask)

    def _while_unchanged(self, stream: str, ask: Callable[[Index, Position], T]) -> T:
        """Call ``ask`` with the archive's index and end, until the archive has not grown during the call; return
        the result.

        Raises `HeadwaterError` after `_ATTEMPTS` calls.
        """
        manifest = self._store.manifest(stream)
        for _attempt in range(_ATTEMPTS):
            end = manifest.end
            answer = ask(self._index(stream), end)
            if manifest.end == end:
                return answer
        raise HeadwaterError(
            f"the archive of {stream!r} grew during each of {_ATTEMPTS} attempts to plan a batch; archive it "
            "less often"
        )

    def _index(self, stream: str) -> Index:
        """Return the index of the manifest's current segments; make it only if they have changed."""
        manifest = self._store.manifest(stream)
        index = self._indexes.get(stream)
        if index is None or index.segments is not manifest.segments():
            index = self._indexes[stream] = Index(manifest)
        return index


def _archived_parts(
    index: Index, start: StreamID, to: StreamID, parts: int
) -> list[tuple[IDRange, int]]:
    """Return at most ``parts`` ranges that cover the archived entries in (start, to], with counts.

    The ranges end where row groups end, because two tasks that share a row group both read it. If a row group's
    end is further than a quarter of a range from an even division, the range ends within the row group.
    """
    first, last = index.rank(start), index.rank(to)
    sizes = part_sizes(last - first, max(1, min(parts, last - first)))
    ends: list[int] = []
    for edge in itertools.accumulate(sizes, initial=first):
        near = index.edge_near(edge)
        inside = first < near < last and abs(near - edge) * 4 <= sizes[0]
        ends.append(near if inside and edge not in {first, last} else edge)
    cut: list[tuple[IDRange, int]] = []
    begin = start
    for low, high in itertools.pairwise(ends):
        end = to if high == last else index.id_at(high)
        cut.append((IDRange(after(begin), end), high - low))
        begin = end
    return cut
