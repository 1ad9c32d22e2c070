"""Plans on Redis and Valkey: Lua calls page through XRANGE inside the server, up to the last id that XINFO has
reported, and return only counts and ids.

    plan of a stream ──▶ Walk ─┐                             ┌─▶ its number and ids ──▶ the plan goes on
    plan of a stream ──▶ Walk ─┴─▶ calls of one request ─────┴─▶ …

Rule 1. A plan is a generator. It yields a walk and continues when that walk has ended, so the next walks of many
        plans are sent together.
Rule 2. Entries that are removed between the calls count as missing, which is correct.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from headwater.common.model import StreamID
from headwater.groups.protocol.operation import Script
from headwater.spark.core.planning.planning import (
    CutRange,
    Limits,
    Look,
    Planner,
    Wanted,
    part_sizes,
    parts_between,
)
from headwater.spark.core.positions import Position, ReadSpan, StreamState, before
from headwater.spark.core.store import ScriptCall, SourceStore

T = TypeVar("T")

_WALK: Final = Script("""
local seen, last, marks, nextMark, ended = 0, false, {}, 5, 0
local start, budget, bytes = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4])
local most = math.max(1, math.min(16, math.floor(bytes / 1048576)))
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
return {seen, last, marks, ended, tonumber(ARGV[4]) - bytes}
""")
"""Walks a range. Arguments: start, end, the maximum number of entries, the approximate number of bytes after which
the call ends, then increasing indexes (0 is the first entry). Returns the number of entries, the last id, the ids at
those indexes, whether the range ended there, and the approximate number of bytes copied.

XRANGE copies the entries into Lua. So the size of a page's last entry decides how many entries the next page
has: about 1 MB, at most 200 entries."""

_BUDGET: Final = 10_000
_BUDGET_BYTES: Final = 16 * 1024 * 1024
"""Maximum numbers of entries and bytes that one request's calls walk, which blocks the server for some 10 ms."""

_TOGETHER: Final = 32
"""Maximum number of calls in one request. More calls save little, and leave each stream too small a share."""

_AT_FIRST: Final = 16
"""Number of calls in the first request, when the sizes of entries are not known."""


class Walk:
    """A walk over the first ``most`` (None: all) live entries in (start, to]. ``seen`` is the number walked,
    ``starts`` the ids at the increasing indexes ``places``, ``copied`` the bytes that the last call copied."""

    def __init__(
        self,
        stream: str,
        start: StreamID,
        to: StreamID,
        places: Sequence[int] = (),
        most: int | None = None,
    ) -> None:
        self.seen = self.copied = 0
        self.starts: list[StreamID] = []
        self.ended = start >= to
        self._stream, self._to = stream, str(to)
        self._begin = f"({start}"
        self._places, self._most = places, most

    def call(self, share: int) -> ScriptCall:
        """Return the next call, which may walk 1 / ``share`` of a request's budget."""
        budget = max(1, _BUDGET // share)
        if self._most is not None:
            budget = min(budget, self._most - self.seen)
        ahead = (place - self.seen for place in self._places[len(self.starts) :])
        marks = [place for place in ahead if place < budget]
        return [self._stream], [self._begin, self._to, budget, _BUDGET_BYTES // share, *marks]

    def go_on(self, reply: Any) -> None:
        """Process the reply to the last call."""
        found, last, marks, ended, self.copied = reply
        self.seen += int(found)
        self.starts += [StreamID.parse(mark) for mark in marks]
        self.ended = bool(ended) or self.seen == self._most
        if not self.ended:
            self._begin = f"({StreamID.parse(last)}"


Plan = Generator[Walk, None, T]
"""Yields walks that have not ended, and continues after each when it has ended (rule 1)."""


class LuaPlanner(Planner):
    """Plans with Lua on Redis and Valkey.

    On these servers a count walks the range, so known counts are not computed again. If the first entry is after
    the position, so are all others. If no entry was missing at the last look, none is missing now if the total
    of removed entries and the first entry are the same, and the stream has all entries that its counter says were
    added since. Then only the entries added since are counted. (The last check is needed because a stream that
    was created again can pass the others.)
    """

    def __init__(self, store: SourceStore) -> None:
        self._store = store
        self._complete: dict[str, StreamState] = {}
        """The streams from which no entry was missing at the last look, with their state at that time."""
        self._together = _AT_FIRST

    def look_at_all(self, wanted: Wanted) -> dict[str, Look | None]:
        states = self._store.states(wanted)
        found = self._carried_out(
            {
                stream: self._look(stream, *wanted[stream], state)
                for stream, state in states.items()
                if state is not None
            }
        )
        return {stream: found.get(stream) for stream in states}

    def _look(
        self, stream: str, position: Position, upto: Position | None, state: StreamState
    ) -> Plan[Look | None]:
        expected = state.entries_added - position.added
        if (yield from self._is_unharmed(stream, state)):
            total = expected
        elif state.first_id > position.id or not state.length:
            total = state.length
        else:
            total = yield from _counted(stream, position.id, state.last_id)
        to = state.last_id if upto is None else min(upto.id, state.last_id)
        if total == expected:
            self._complete[stream] = state
            taken = yield from _taken(stream, position, upto, state, total)
            return Look(state, to, total, taken)
        self._complete.pop(stream, None)
        taken = total
        if to != state.last_id:
            taken = yield from _counted(stream, position.id, to)
        # The state is read again, so that an XDEL during the count is recognised as an XDEL.
        now = self._store.state(stream)
        if now is None:
            return None
        return Look(state._replace(max_deleted_id=now.max_deleted_id), to, total, taken)

    def _is_unharmed(self, stream: str, state: StreamState) -> Plan[bool]:
        then = self._complete.get(stream)
        if (
            then is None
            or state.removed != then.removed
            or state.first_id != then.first_id
            or state.entries_added < then.entries_added
            or state.last_id < then.last_id
        ):
            return False
        since = yield from _counted(stream, then.last_id, state.last_id)
        return since == state.entries_added - then.entries_added

    def limit_all(self, wanted: Limits) -> dict[str, Look | None]:
        return self._carried_out({stream: _limited(stream, *one) for stream, one in wanted.items()})

    def cut_all(self, spans: Mapping[str, tuple[ReadSpan, int]]) -> dict[str, CutRange]:
        return self._carried_out(
            {stream: self._cut(stream, span, parts) for stream, (span, parts) in spans.items()}
        )

    def _cut(self, stream: str, span: ReadSpan, parts: int) -> Plan[CutRange]:
        start, to = span.start.id, span.end.id
        sizes = part_sizes(span.entries, max(1, min(parts, span.entries)))
        places = list(itertools.accumulate(sizes[:-1]))
        walk = Walk(stream, start, to, places)
        if not walk.ended:
            yield walk
        edges = [0, *places[: len(walk.starts)], walk.seen]
        counted = [end - start for start, end in itertools.pairwise(edges)]
        cut = parts_between(start, to, walk.starts, counted)
        # The state is needed only to explain missing entries.
        missing = sum(counted) != span.entries
        return CutRange(self._store.state(stream) if missing else None, cut)

    def count(self, stream: str, start: StreamID, to: StreamID) -> int:
        return self._carried_out({stream: _counted(stream, start, to)})[stream]

    # --- walks ------------------------------------------------------------------------------------

    def _carried_out(self, plans: Mapping[str, Plan[T]]) -> dict[str, T]:
        """Run plans to their ends, and return their results."""
        found: dict[str, T] = {}
        going = dict(plans)
        while going:
            walks = []
            for stream, plan in list(going.items()):
                try:
                    walks.append(next(plan))
                except StopIteration as end:
                    found[stream] = end.value
                    del going[stream]
            self._walk(walks)
        return {stream: found[stream] for stream in plans}

    def _walk(self, walks: Iterable[Walk]) -> None:
        """Run walks to their ends."""
        left = deque(walks)
        while left:
            together = [left.popleft() for _ in range(min(_TOGETHER, self._together, len(left)))]
            calls = [walk.call(len(together)) for walk in together]
            for walk, reply in zip(together, self._store.run_all(_WALK, calls), strict=True):
                walk.go_on(reply)
            # A call always copies at least one entry, which may exceed the call's share of the bytes.
            largest = max(1, *(walk.copied for walk in together))
            self._together = max(1, min(2 * self._together, _TOGETHER, _BUDGET_BYTES // largest))
            left.extendleft(walk for walk in reversed(together) if not walk.ended)


def _counted(stream: str, start: StreamID, to: StreamID) -> Plan[int]:
    """Return the number of live entries in (start, to]."""
    walk = Walk(stream, start, to)
    if not walk.ended:
        yield walk
    return walk.seen


def _limited(stream: str, position: Position, look: Look, count: int) -> Plan[Look | None]:
    """Return ``look`` reduced to its first ``count`` entries."""
    walk = Walk(stream, position.id, look.to, [count], most=count + 1)
    if not walk.ended:
        yield walk
    to = before(walk.starts[0]) if walk.starts else look.to
    return look._replace(to=to, taken=min(walk.seen, count))


def _taken(
    stream: str, position: Position, upto: Position | None, state: StreamState, total: int
) -> Plan[int]:
    """Return the number of entries after ``position``, up to ``upto``.

    ``total`` is the number of live entries after ``position``; no entry must be missing.
    """
    if upto is None or upto.id >= state.last_id:
        return total
    if state.max_deleted_id <= upto.id:
        return upto.added - position.added
    # Entries deleted after the end are counted in `position`, but not in `upto`.
    return total - (yield from _counted(stream, max(position.id, upto.id), state.last_id))
