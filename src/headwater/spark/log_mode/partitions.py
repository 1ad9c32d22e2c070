"""Determines where a query begins, and into how many tasks each span is split."""

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
"""With fewer entries, starting a task (some 10 ms) takes longer than reading them."""


def starting_positions(
    options: SourceOptions, store: SourceStore, plans: Planner
) -> dict[str, Position]:
    """Return where reading of each stream begins, with the number of entries added up to there.

    Raises `DeclarationError` for a named stream that does not exist.
    """
    return {stream: starting_position(options, store, plans, stream) for stream in store.streams()}


def starting_position(
    options: SourceOptions, store: SourceStore, plans: Planner, stream: str
) -> Position:
    """Return where the options begin to read ``stream``."""
    state = store.state(stream)
    if state is None:
        if options.pattern is None:
            raise store.unknown(stream)
        return BEGINNING  # the pattern matched it, and it was deleted since
    start = options.start_of(stream)
    if start == "latest":
        return Position(state.last_id, state.entries_added)
    if start == "earliest":
        start = MIN_ID
    assert not isinstance(start, str)
    # With an archive, more entries may follow the beginning than the stream holds: count them.
    after = MIN_ID if start == MIN_ID else before(start)
    if after >= state.last_id:
        # An id past the end means "latest": an offset must not contain an id that the stream never
        # had, because then the stream would look as if it had been recreated.
        return Position(state.last_id, state.entries_added)
    look = plans.look(stream, Position(after, 0), None)
    if look is None:
        return BEGINNING
    return Position(after, look.state.entries_added - look.total)


def cut_up(
    spans: Mapping[str, ReadSpan], min_partitions: int | None
) -> Iterator[tuple[str, ReadSpan, int]]:
    """Yield each span with its number of parts: proportional to its entries, at least one.

    Without ``min_partitions`` there are enough parts to use all cores of the machine, but no needlessly
    small ones.
    """
    total = sum(span.entries for span in spans.values())
    asked = min_partitions or min(os.cpu_count() or 1, -(-total // _ENTRIES_WORTH_A_TASK))
    for stream, span in spans.items():
        parts = -(-asked * span.entries // total)
        yield stream, span, max(1, min(parts, span.entries))
