"""`ArchivePlanner`: plans batches of an archive and its stream together.

The archive provides the entries up to its end, and the stream the entries after the archive's end. The stream is
read between two reads of the manifest. The archiver trims entries only after the manifest names them. If the
archive's end is the same in both reads, no entry after that end had been trimmed when the stream was read.
Otherwise planning is repeated.

Entries up to the archive's end that the stream still holds (because a group has not settled them, or because
they are not trimmed yet) count as the archive's, so each entry is counted once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from headwater.common.model import IDRange, StreamID
from headwater.errors import HeadwaterError
from headwater.spark.archive.index import Index
from headwater.spark.archive.store import ArchiveStore, archived_state, set_back_behind
from headwater.spark.core.planning.planners import planner
from headwater.spark.core.planning.planning import (
    CutRange,
    Limits,
    Look,
    Planner,
    Wanted,
    part_sizes,
)
from headwater.spark.core.positions import Position, ReadSpan, after

T = TypeVar("T")


_Archives = Mapping[str, Index]
"""Streams, each with the index of its archive at one moment."""

_ATTEMPTS: Final = 100
"""Maximum number of attempts to plan. Planning takes milliseconds, in which an archive rarely grows."""

_ATTEMPTS_TOGETHER: Final = 3
"""Number of attempts to plan streams together. Many streams take so long that some archive may grow each time."""


class ArchivePlanner(Planner):
    """A `Planner` for archives and streams. Each method reads both as of one moment (`_while_unchanged`), and sends
    the requests for many streams together."""

    def __init__(self, store: ArchiveStore) -> None:
        self._store = store
        self._stream: Planner = planner(store)
        self._indexes: dict[str, Index] = {}

    def look_at_all(self, wanted: Wanted) -> dict[str, Look | None]:
        def ask(archives: _Archives) -> dict[str, Look | None]:
            looks = self._stream.look_at_all(
                {
                    stream: (_later(wanted[stream][0], archive.end), wanted[stream][1])
                    for stream, archive in archives.items()
                }
            )
            return {
                stream: self._whole(stream, looks[stream], archive, *wanted[stream])
                for stream, archive in archives.items()
            }

        return self._while_unchanged(wanted, ask)

    def _whole(
        self,
        stream: str,
        look: Look | None,
        archive: Index,
        position: Position,
        upto: Position | None,
    ) -> Look | None:
        """Add the archive's entries after ``position`` to ``look``, which covers the stream after its archive."""
        end = archive.end
        if look is None:
            state = archived_state(self._store.manifest(stream))
            if state is None:
                return None
            look = Look(state, state.last_id, 0, 0)
        elif look.state.last_id < end.id:
            raise set_back_behind(self._store.manifest(stream), look.state)
        archived = archive.count(position.id, end.id)
        if upto is None or upto.id >= end.id:
            return look._replace(total=look.total + archived, taken=look.taken + archived)
        to = max(position.id, upto.id)
        taken = archive.count(position.id, to)
        return look._replace(to=upto.id, total=look.total + archived, taken=taken)

    def limit_all(self, wanted: Limits) -> dict[str, Look | None]:
        def ask(archives: _Archives) -> dict[str, Look | None]:
            found: dict[str, Look | None] = {}
            rests: dict[str, tuple[Position, Look, int]] = {}
            counts: dict[str, int] = {}
            for stream, archive in archives.items():
                end = archive.end
                position, look, count = wanted[stream]
                archived = counts[stream] = archive.count(position.id, min(end.id, look.to))
                if archived >= count:
                    to = archive.id_at(archive.rank(position.id) + count)
                    found[stream] = look._replace(to=to, taken=count)
                    continue
                live = look._replace(total=look.total - archived, taken=look.taken - archived)
                rests[stream] = _later(position, end), live, count - archived
            for stream, shorter in self._stream.limit_all(rests).items():
                found[stream] = shorter and shorter._replace(
                    total=shorter.total + counts[stream], taken=shorter.taken + counts[stream]
                )
            return found

        return self._while_unchanged(wanted, ask)

    def cut_all(self, spans: Mapping[str, tuple[ReadSpan, int]]) -> dict[str, CutRange]:
        def ask(archives: _Archives) -> dict[str, CutRange]:
            cuts = {
                stream: _archived_cut(archive, *spans[stream])
                for stream, archive in archives.items()
            }
            lives = self._stream.cut_all(
                {
                    stream: (
                        ReadSpan(_later(span.start, archive.end), span.end),
                        max(1, parts - len(cuts[stream])),
                    )
                    for stream, archive in archives.items()
                    for span, parts in [spans[stream]]
                    if span.end.id > archive.end.id
                }
            )
            return {
                stream: self._joined(stream, spans[stream][0], cuts[stream], lives.get(stream))
                for stream in archives
            }

        return self._while_unchanged(spans, ask)

    def _joined(
        self,
        stream: str,
        span: ReadSpan,
        archived: list[tuple[IDRange, int]],
        live: CutRange | None,
    ) -> CutRange:
        state, parts = (None, archived) if live is None else (live.state, archived + live.parts)
        if state is None and sum(count for _ids, count in parts) != span.entries:
            state = self._store.state(stream)  # it explains missing entries
        return CutRange(state, parts)

    def count(self, stream: str, start: StreamID, to: StreamID) -> int:
        def ask(archives: _Archives) -> dict[str, int]:
            end = archives[stream].end.id
            archived = archives[stream].count(start, min(to, end))
            return {stream: archived + self._stream.count(stream, max(start, end), to)}

        return self._while_unchanged([stream], ask)[stream]

    def _while_unchanged(
        self, streams: Iterable[str], ask: Callable[[_Archives], dict[str, T]]
    ) -> dict[str, T]:
        """Call ``ask`` with the archives of streams, and again with the archives that have grown during the call.
        Return the results.

        Raises `HeadwaterError` after `_ATTEMPTS` calls.
        """
        answers: dict[str, T] = {}
        left = list(streams)
        for attempt in range(_ATTEMPTS):
            if attempt >= _ATTEMPTS_TOGETHER and len(left) > 1:
                for stream in left:
                    answers |= self._while_unchanged([stream], ask)
                return answers
            archives = {stream: self._index(stream) for stream in left}
            answers |= ask(archives)
            left = [
                stream
                for stream, archive in archives.items()
                if self._store.manifest(stream).end != archive.end
            ]
            if not left:
                return answers
        raise HeadwaterError(
            f"the archive of {left[0]!r} grew during each of {_ATTEMPTS} attempts to plan a batch; archive it "
            "less often"
        )

    def _index(self, stream: str) -> Index:
        """Return the index of the archive's current segments. A new one is made only if they have changed."""
        manifest = self._store.manifest(stream)
        index = self._indexes.get(stream)
        if index is None or index.segments is not manifest.segments():
            index = self._indexes[stream] = Index(manifest)
        return index


def _later(one: Position, other: Position) -> Position:
    """Return the later position; ``one`` if both have the same id."""
    return max(one, other, key=lambda position: position.id)


def _archived_cut(index: Index, span: ReadSpan, parts: int) -> list[tuple[IDRange, int]]:
    """Split the archive's part of ``span`` into ranges. Their number is the archive's share of ``parts``."""
    to = min(span.end.id, index.end.id)
    archived = index.count(span.start.id, to)
    if not archived:
        return []
    rest = max(0, span.entries - archived)
    share = parts if not rest else max(1, parts * archived // span.entries)
    return _archived_parts(index, span.start.id, to, share)


def _archived_parts(
    index: Index, start: StreamID, to: StreamID, parts: int
) -> list[tuple[IDRange, int]]:
    """Return at most ``parts`` ranges that cover the archived entries in (start, to], with counts.

    Ranges end where row groups end, because two tasks that share a row group both read it. But if the nearest end
    is further than a quarter of a range from an even division, the range ends within a row group.
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
