"""Plans on Headwater, with XCOUNTERS and XSPLIT.

Rule 1. Numbers that must be consistent are requested in one MULTI.
Rule 2. The counters alone show that a stream has no new entries. They cost some microseconds for each stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from headwater.common.model import StreamID
from headwater.errors import HeadwaterError
from headwater.groups.protocol.operation import Operation, batched
from headwater.operations.positions import entry_number
from headwater.spark.core.planning.planning import (
    CutRange,
    Limits,
    Look,
    Planner,
    Wanted,
    look_without_new_entries,
    part_sizes,
    parts_between,
)
from headwater.spark.core.positions import Position, ReadSpan, before
from headwater.spark.core.store import Command, SourceStore

_TOGETHER: Final = 200
"""Maximum number of streams in one request, which occupies the server for some milliseconds."""


class SplitPlanner(Planner):
    """Plans with XSPLIT, which uses block counts: a few milliseconds for a stream of any length."""

    def __init__(self, store: SourceStore) -> None:
        self._store = store

    def look_at_all(self, wanted: Wanted) -> dict[str, Look | None]:
        found: dict[str, Look | None] = {}
        ahead: dict[str, tuple[Position, Position | None]] = {}
        for stream, state in self._store.states(wanted).items():
            position, upto = wanted[stream]
            look = None if state is None else look_without_new_entries(state, position, upto)
            if state is None or look is not None:
                found[stream] = look
            else:
                ahead[stream] = position, upto
        for names in batched(ahead, _TOGETHER):
            found |= self._looks({name: ahead[name] for name in names})
        return found

    def _looks(self, wanted: Wanted) -> dict[str, Look | None]:
        """Return the looks at streams that have entries after the positions, counted at one moment."""
        commands: list[Command] = []
        for stream, (position, upto) in wanted.items():
            commands.append(("XSPLIT", stream, f"({position.id}", "+", 1))
            if upto is not None:
                commands.append(("XSPLIT", stream, f"({position.id}", str(upto.id), 1))
        states, replies = self._store.states_and(list(wanted), commands)
        counts = iter(replies)
        found: dict[str, Look | None] = {}
        for stream, (_position, upto) in wanted.items():
            total = taken = _cuts(next(counts))[0]
            if upto is not None:
                taken = _cuts(next(counts))[0]
            state = states[stream]
            if state is None:
                found[stream] = None
                continue
            to = state.last_id if upto is None else min(upto.id, state.last_id)
            found[stream] = Look(state, to, total, taken)
        return found

    def limit_all(self, wanted: Limits) -> dict[str, Look | None]:
        # Finding the end takes several steps, during which entries may be removed. The entries up to the
        # end are counted again in one step. Their number may be less than `count`, but never more.
        ends: dict[str, StreamID] = {}
        for names in batched(wanted, _TOGETHER):
            found = self._store.run_operations(
                lambda: [_end_of(one, *wanted[one]) for one in names]  # noqa: B023 - called now
            )
            ends |= zip(names, found, strict=True)
        return self.look_at_all(
            {
                stream: (position, Position(ends[stream], position.added + count))
                for stream, (position, _look, count) in wanted.items()
            }
        )

    def cut_all(self, spans: Mapping[str, tuple[ReadSpan, int]]) -> dict[str, CutRange]:
        found: dict[str, CutRange] = {}
        for names in batched(spans, _TOGETHER):
            asked = [(name, *spans[name]) for name in names]
            commands: list[Command] = [
                ("XSPLIT", name, f"({span.start.id}", str(span.end.id), parts)
                for name, span, parts in asked
            ]
            states, replies = self._store.states_and(names, commands)
            for (name, span, _parts), reply in zip(asked, replies, strict=True):
                live, starts = _cuts(reply)
                sizes = part_sizes(live, len(starts) + 1)
                parts = parts_between(span.start.id, span.end.id, starts, sizes)
                found[name] = CutRange(states[name], parts)
        return found

    def count(self, stream: str, start: StreamID, to: StreamID) -> int:
        if start >= to:
            return 0
        return _cuts(self._store.ask("XSPLIT", stream, f"({start}", str(to), 1))[0]


def _end_of(stream: str, position: Position, look: Look, count: int) -> Operation[StreamID]:
    """Return the greatest id such that at most ``count`` entries are live after ``position``, up to it."""
    following = yield from entry_number(
        stream, count + 1, verbs=True, first=f"({position.id}", last=str(look.to)
    )
    return look.to if following is None else before(StreamID.parse(following))


def _cuts(reply: Any) -> tuple[int, list[StreamID]]:
    if isinstance(reply, Exception):
        raise HeadwaterError(f"XSPLIT: {reply}") from reply
    count, starts = reply
    return int(count), [StreamID.parse(start) for start in starts]
