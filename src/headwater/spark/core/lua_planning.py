"""Plans on Redis and Valkey: Lua calls page through XRANGE inside the server, up to the last id that XINFO has
reported, and return only counts and ids.

Entries that are removed between the calls count as missing, which is correct.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Final

from headwater.groups.operation import Script
from headwater.model import StreamID
from headwater.spark.core.ids import before
from headwater.spark.core.planning import CutRange, Look, Wanted, part_sizes, parts_between
from headwater.spark.core.positions import Position, ReadSpan
from headwater.spark.core.state import StreamState
from headwater.spark.core.store import SourceStore

_WALK: Final = Script("""
local seen, last, marks, nextMark, ended = 0, false, {}, 4, 0
local start, budget = ARGV[1], tonumber(ARGV[3])
local most, bytes = 16, 16777216
while seen < budget and bytes > 0 do
  local want = math.min(most, budget - seen)
  local page = redis.call('XRANGE', KEYS[1], start, ARGV[2], 'COUNT', want)
  while ARGV[nextMark] and tonumber(ARGV[nextMark]) < seen + #page do
    marks[#marks + 1] = page[tonumber(ARGV[nextMark]) - seen + 1][1]
    nextMark = nextMark + 1
  end
  seen = seen + #page
  if #page > 0 then
    last = page[#page][1]
    start = '(' .. last
    local weight = 1
    for _, word in ipairs(page[#page][2]) do weight = weight + #word end
    bytes = bytes - weight * #page
    most = math.max(1, math.min(200, 4 * most, math.floor(1048576 / weight)))
  end
  if #page < want then
    ended = 1
    break
  end
end
return {seen, last, marks, ended}
""")
"""Walks a range. Arguments: start, end, the maximum number of entries, then increasing indexes (0 is the
first entry). Returns the number of entries, the last id, the ids at those indexes, and whether the range
ended there.

XRANGE copies the entries into Lua. So the size of a page's last entry decides how many entries the next page
has (about 1 MB, at most 200 entries), and a call ends after it has copied some 16 MB."""


class LuaPlanner:
    """Plans with Lua on Redis and Valkey.

    There, counting means walking the range, so known counts are not computed again. If the first entry is
    after the position, all live entries are. If nothing was missing at the last look, nothing is missing
    now, provided that as many entries were removed in total, the first entry is the same, and the stream
    holds as many of the entries added since as its counter says: only those are counted. (The last check
    is needed because a stream that was created again can have the rest in common.)
    """

    _BUDGET: Final = 10_000
    """How many entries one call may walk: some 10 ms during which the server serves no other client."""

    def __init__(self, store: SourceStore) -> None:
        self._store = store
        self._complete: dict[str, StreamState] = {}
        """The streams that missed nothing at the last look, with their state at that time."""

    def look(self, stream: str, position: Position, upto: Position | None) -> Look | None:
        state = self._store.state(stream)
        return state and self._look(stream, position, upto, state)

    def look_at_all(self, wanted: Wanted) -> dict[str, Look | None]:
        return {
            stream: state and self._look(stream, *wanted[stream], state)
            for stream, state in self._store.states(wanted).items()
        }

    def _look(
        self, stream: str, position: Position, upto: Position | None, state: StreamState
    ) -> Look | None:
        expected = state.entries_added - position.added
        if self._unharmed(stream, state):
            total = expected
        elif state.first_id > position.id or not state.length:
            total = state.length
        else:
            total, _ = self._walk(stream, position.id, state.last_id)
        to = state.last_id if upto is None else min(upto.id, state.last_id)
        if total == expected:
            self._complete[stream] = state
            return Look(state, to, total, self._taken(stream, position, upto, state, total))
        self._complete.pop(stream, None)
        taken = total if to == state.last_id else self._walk(stream, position.id, to)[0]
        # An XDEL that ran during the count must be recognised as an XDEL.
        now = self._store.state(stream)
        if now is None:
            return None
        return Look(state._replace(max_deleted_id=now.max_deleted_id), to, total, taken)

    def limit(self, stream: str, position: Position, look: Look, count: int) -> Look | None:
        found, marks = self._walk(stream, position.id, look.to, [count], most=count + 1)
        to = before(marks[0]) if marks else look.to
        return look._replace(to=to, taken=min(found, count))

    def cut(self, stream: str, span: ReadSpan, parts: int) -> CutRange:
        start, to = span.start.id, span.end.id
        sizes = part_sizes(span.entries, max(1, min(parts, span.entries)))
        places = list(itertools.accumulate(sizes[:-1]))
        found, starts = self._walk(stream, start, to, places)
        edges = [0, *places[: len(starts)], found]
        counted = [end - start for start, end in itertools.pairwise(edges)]
        cut = parts_between(start, to, starts, counted)
        # The state only explains what is missing.
        missing = sum(counted) != span.entries
        return CutRange(self._store.state(stream) if missing else None, cut)

    def cut_all(self, spans: Mapping[str, tuple[ReadSpan, int]]) -> dict[str, CutRange]:
        return {stream: self.cut(stream, span, parts) for stream, (span, parts) in spans.items()}

    def count(self, stream: str, start: StreamID, to: StreamID) -> int:
        return self._walk(stream, start, to)[0]

    def _taken(
        self,
        stream: str,
        position: Position,
        upto: Position | None,
        state: StreamState,
        total: int,
    ) -> int:
        """Return how many of the ``total`` entries after ``position`` are up to ``upto``.

        All ``total`` entries are live.
        """
        if upto is None or upto.id >= state.last_id:
            return total
        if state.max_deleted_id <= upto.id:
            return upto.added - position.added
        # Entries deleted after the end are counted in `position`, but not in `upto`.
        return total - self._walk(stream, max(position.id, upto.id), state.last_id)[0]

    def _unharmed(self, stream: str, state: StreamState) -> bool:
        then = self._complete.get(stream)
        return (
            then is not None
            and state.removed == then.removed
            and state.first_id == then.first_id
            and state.entries_added >= then.entries_added
            and state.last_id >= then.last_id
            and self.count(stream, then.last_id, state.last_id)
            == state.entries_added - then.entries_added
        )

    def _walk(
        self,
        stream: str,
        start: StreamID,
        to: StreamID,
        places: Sequence[int] = (),
        *,
        most: int | None = None,
    ) -> tuple[int, list[StreamID]]:
        """Return how many entries are live in (start, to], at most ``most``, and some of their ids.

        The ids are those at the indexes ``places`` (increasing; 0 is the first entry).
        """
        seen, starts = 0, list[StreamID]()
        if start >= to:
            return seen, starts
        begin = f"({start}"
        while True:
            budget = self._BUDGET if most is None else min(self._BUDGET, most - seen)
            ahead = [place - seen for place in places[len(starts) :] if place - seen < budget]
            found, last, marks, ended = self._store.run(
                _WALK, [stream], [begin, str(to), budget, *ahead]
            )
            starts += [StreamID.parse(mark) for mark in marks]
            seen += int(found)
            if ended or seen == most:
                return seen, starts
            begin = f"({StreamID.parse(last)}"
