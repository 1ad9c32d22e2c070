"""Where a query begins, and into how many tasks each span is cut."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Final

from headwater.model import MIN_ID
from headwater.spark.core.ids import before
from headwater.spark.core.options import SourceOptions
from headwater.spark.core.planning import Planner
from headwater.spark.core.positions import BEGINNING, Position, ReadSpan
from headwater.spark.core.store import SourceStore

_ENTRIES_WORTH_A_TASK: Final = 10_000
"""Below that a task's start (some 10 ms) costs more than the entries' reading."""


def starting_positions(
    options: SourceOptions, store: SourceStore, plans: Planner
) -> dict[str, Position]:
    """Where each stream's reading begins, with what was ever added up to there.

    Raises `DeclarationError` for a stream that is named and not there.
    """
    return {stream: starting_position(options, store, plans, stream) for stream in store.streams()}


def starting_position(
    options: SourceOptions, store: SourceStore, plans: Planner, stream: str
) -> Position:
    """Where the options begin to read ``stream``."""
    state = store.state(stream)
    if state is None:
        if options.pattern is None:
            raise store.unknown(stream)
        return BEGINNING  # it was there when the pattern was looked up
    start = options.start_of(stream)
    if start == "latest":
        return Position(state.last_id, state.entries_added)
    if start == "earliest":
        start = MIN_ID
    assert not isinstance(start, str)
    # With an archive, what comes after the beginning is more than the stream's length: ask.
    after = MIN_ID if start == MIN_ID else before(start)
    if after >= state.last_id:
        # An id past the end is "latest": an offset must not name an id that the stream never had,
        # for that is how a stream looks that was made anew.
        return Position(state.last_id, state.entries_added)
    look = plans.look(stream, Position(after, 0), None)
    if look is None:
        return BEGINNING
    return Position(after, look.state.entries_added - look.total)


def cut_up(
    spans: Mapping[str, ReadSpan], min_partitions: int | None
) -> Iterator[tuple[str, ReadSpan, int]]:
    """Into how many parts each span is cut: in proportion to its entries, at least one each.

    Without ``min_partitions``: as many as keep the machine's cores busy, none needlessly small.
    """
    total = sum(span.entries for span in spans.values())
    asked = min_partitions or min(os.cpu_count() or 1, -(-total // _ENTRIES_WORTH_A_TASK))
    for stream, span in spans.items():
        parts = -(-asked * span.entries // total)
        yield stream, span, max(1, min(parts, span.entries))
