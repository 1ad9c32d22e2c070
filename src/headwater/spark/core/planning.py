"""Decides where a batch ends and how it is split into partitions, without reading entries' bodies.

On Headwater each step is one MULTI of XINFO STREAM and XSPLIT, so its numbers are consistent. On Redis and
Valkey, XINFO is followed by Lua calls that page through XRANGE inside the server, up to the last id that
XINFO reported, and return only counts and ids. Entries that are removed between the calls count as missing,
which is correct.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

from headwater.errors import HeadwaterError
from headwater.model import MAX_ID, IDRange, StreamID
from headwater.spark.core.ids import after, before
from headwater.spark.core.positions import Position, ReadSpan
from headwater.spark.core.state import StreamState
from headwater.spark.core.store import Command, SourceStore


class Look(NamedTuple):
    """A stream at one moment, seen from a position in it.

    ``total`` entries are live after the position, ``taken`` of them up to ``to``.
    """

    state: StreamState
    to: StreamID
    total: int
    taken: int


class CutRange(NamedTuple):
    """A range split into partitions: each is an id range with the number of its live entries."""

    state: StreamState | None
    parts: list[tuple[IDRange, int]]

    @property
    def entries(self) -> int:
        return sum(count for _ids, count in self.parts)


class Planner(Protocol):
    """What readers need to know about a stream. Starts are always excluded, ends are included."""

    def look(self, stream: str, position: Position, upto: Position | None) -> Look | None:
        """Look at the stream after ``position``, taken up to ``upto`` or else its last id.

        Returns None if there is no such stream.
        """

    def limit(self, stream: str, position: Position, look: Look, count: int) -> Look | None:
        """Reduce ``look`` to its first ``count`` entries; requires ``count < look.taken``."""

    def cut(self, stream: str, span: ReadSpan, parts: int) -> CutRange:
        """Split ``span`` into at most ``parts`` parts."""

    def count(self, stream: str, start: StreamID, to: StreamID) -> int:
        """Return how many entries are live after ``start``, up to ``to``."""


def planner(store: SourceStore) -> Planner:
    """Return the planner for the commands that the server supports."""
    return SplitPlanner(store) if store.splits else LuaPlanner(store)


def part_sizes(count: int, parts: int) -> list[int]:
    """Split ``count`` into ``parts``; the first ``count mod parts`` are one larger, as in XSPLIT."""
    size, larger = divmod(count, parts)
    return [size + 1] * larger + [size] * (parts - larger)


def _parts(
    start: StreamID, to: StreamID, starts: Sequence[StreamID], sizes: Sequence[int]
) -> list[tuple[IDRange, int]]:
    """Split (start, to] at ``starts``, each part with its size; empty parts are omitted."""
    if start >= to:
        return []
    firsts = [after(start), *starts]
    lasts = [*(before(start) for start in starts), to]
    cut = zip(firsts, lasts, sizes, strict=True)
    return [(IDRange(first, last), size) for first, last, size in cut if size]


class SplitPlanner:
    """Plans with XSPLIT, which uses block counts: a few milliseconds for a stream of any length."""

    _FAN: Final = 256
    """Parts per step of the search for the n-th entry: three steps cover 16 million entries."""

    def __init__(self, store: SourceStore) -> None:
        self._store = store

    def look(self, stream: str, position: Position, upto: Position | None) -> Look | None:
        if position.id == MAX_ID:  # XSPLIT, like XRANGE, rejects it as an excluded start
            state = self._store.state(stream)
            return state and Look(state, state.last_id, 0, 0)
        start = f"({position.id}"
        commands: list[Command] = [("XINFO STREAM", stream), ("XSPLIT", stream, start, "+", 1)]
        if upto is not None:
            commands.append(("XSPLIT", stream, start, str(upto.id), 1))
        info, *counts = self._store.ask_together(*commands)
        state = self._store.read_state(stream, info)
        if state is None:
            return None
        total, taken = (_cuts(reply)[0] for reply in (counts[0], counts[-1]))
        to = state.last_id if upto is None else min(upto.id, state.last_id)
        return Look(state, to, total, taken)

    def limit(self, stream: str, position: Position, look: Look, count: int) -> Look | None:
        # Finding the end takes several steps, during which entries may be removed. The result is
        # counted again in one step, so it may be fewer than `count` entries, but never more.
        end = self._end_of(stream, position.id, look.to, count)
        return self.look(stream, position, Position(end, position.added + count))

    def _end_of(self, stream: str, start: StreamID, to: StreamID, count: int) -> StreamID:
        """Return the greatest id such that at most ``count`` entries are live in (start, id]."""
        begin, skip = f"({start}", count
        while True:
            live, starts = _cuts(self._store.ask("XSPLIT", stream, begin, str(to), self._FAN))
            if live <= skip:
                return to
            passed, inside = 0, 0
            for index, size in enumerate(part_sizes(live, len(starts) + 1)):
                if passed + size > skip:
                    inside = index
                    break
                passed += size
            if passed == skip:
                return before(starts[inside - 1])
            skip -= passed
            if inside < len(starts):
                to = before(starts[inside])
            if inside:
                begin = str(starts[inside - 1])

    def cut(self, stream: str, span: ReadSpan, parts: int) -> CutRange:
        start, to = span.start.id, span.end.id
        info, reply = self._store.ask_together(
            ("XINFO STREAM", stream), ("XSPLIT", stream, f"({start}", str(to), parts)
        )
        live, starts = _cuts(reply)
        sizes = part_sizes(live, len(starts) + 1)
        return CutRange(self._store.read_state(stream, info), _parts(start, to, starts, sizes))

    def count(self, stream: str, start: StreamID, to: StreamID) -> int:
        if start >= to:
            return 0
        return _cuts(self._store.ask("XSPLIT", stream, f"({start}", str(to), 1))[0]


def _cuts(reply: Any) -> tuple[int, list[StreamID]]:
    if isinstance(reply, Exception):
        raise HeadwaterError(f"XSPLIT: {reply}") from reply
    count, starts = reply
    return int(count), [StreamID.parse(start) for start in starts]


_WALK: Final = """
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
"""
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
        self._script = store.client.register_script(_WALK)
        self._complete: dict[str, StreamState] = {}
        """The streams that missed nothing at the last look, with their state at that time."""

    def look(self, stream: str, position: Position, upto: Position | None) -> Look | None:
        state = self._store.state(stream)
        if state is None:
            return None
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
        return CutRange(self._store.state(stream), _parts(start, to, starts, counted))

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
                self._script, [stream], [begin, str(to), budget, *ahead]
            )
            starts += [StreamID.parse(mark) for mark in marks]
            seen += int(found)
            if ended or seen == most:
                return seen, starts
            begin = f"({StreamID.parse(last)}"
