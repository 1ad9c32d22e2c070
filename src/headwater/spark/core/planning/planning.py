"""Determines where a batch ends and how it is split into ranges, without transferring entries.

`planner` chooses the implementation: split_planning.py on Headwater, lua_planning.py on Redis and Valkey. Both return
the same numbers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from headwater.common.model import IDRange, StreamID
from headwater.spark.core.positions import Position, ReadSpan, StreamState, after, before


class Look(NamedTuple):
    """A stream at one moment, seen from a position in it.

    ``total`` is the number of live entries after the position, ``taken`` the number of those up to ``to``.
    """

    state: StreamState
    to: StreamID
    total: int
    taken: int


class CutRange(NamedTuple):
    """A range split into parts. Each part is an id range with the number of its live entries."""

    state: StreamState | None
    parts: list[tuple[IDRange, int]]

    @property
    def entries(self) -> int:
        return sum(count for _ids, count in self.parts)


Wanted = Mapping[str, tuple[Position, Position | None]]
"""By stream, the position from which to look, and the position up to which to look (None: the last id)."""

Limits = Mapping[str, tuple[Position, Look, int]]
"""By stream, a position, a look from that position, and the number of entries that a batch may take."""


class Planner(ABC):
    """Counts and splits streams for readers. Starts are always excluded, ends are included."""

    @abstractmethod
    def look_at_all(self, wanted: Wanted) -> dict[str, Look | None]:
        """Look at each stream after its first position. ``taken`` counts entries up to the second position.

        The look at a stream that does not exist is None. Streams without new entries share a few requests.
        """

    @abstractmethod
    def limit_all(self, wanted: Limits) -> dict[str, Look | None]:
        """Reduce each look to its first ``count`` entries; ``count`` must be less than ``look.taken``."""

    @abstractmethod
    def cut_all(self, spans: Mapping[str, tuple[ReadSpan, int]]) -> dict[str, CutRange]:
        """Split the span of each stream into at most the given number of parts."""

    @abstractmethod
    def count(self, stream: str, start: StreamID, to: StreamID) -> int:
        """Return the number of live entries after ``start``, up to ``to``."""

    def look(self, stream: str, position: Position, upto: Position | None) -> Look | None:
        """Return `look_at_all` of one stream."""
        return self.look_at_all({stream: (position, upto)})[stream]

    def limit(self, stream: str, position: Position, look: Look, count: int) -> Look | None:
        """Return `limit_all` of one stream."""
        return self.limit_all({stream: (position, look, count)})[stream]

    def cut(self, stream: str, span: ReadSpan, parts: int) -> CutRange:
        """Return `cut_all` of one stream."""
        return self.cut_all({stream: (span, parts)})[stream]


def part_sizes(count: int, parts: int) -> list[int]:
    """Split ``count`` into ``parts`` sizes. The first ``count mod parts`` are larger by one, as in XSPLIT."""
    size, larger = divmod(count, parts)
    return [size + 1] * larger + [size] * (parts - larger)


def parts_between(
    start: StreamID, to: StreamID, starts: Sequence[StreamID], sizes: Iterable[int]
) -> list[tuple[IDRange, int]]:
    """Split (start, to] at ``starts``, each part with its size; empty parts are omitted."""
    if start >= to:
        return []
    firsts = [after(start), *starts]
    lasts = [*(before(start) for start in starts), to]
    cut = zip(firsts, lasts, sizes, strict=True)
    return [(IDRange(first, last), size) for first, last, size in cut if size]


def look_without_new_entries(
    state: StreamState, position: Position, upto: Position | None
) -> Look | None:
    """Return the look at a stream without entries after ``position``; None if there may be such entries."""
    if position.id < state.last_id:
        return None
    to = state.last_id if upto is None else min(upto.id, state.last_id)
    return Look(state, to, 0, 0)
