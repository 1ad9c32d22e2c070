"""Determines the positions at which a query begins, and the ranges that each task of a batch reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql.datasource import InputPartition

from headwater.common.model import MIN_ID, StreamID
from headwater.spark.core.options import SourceOptions
from headwater.spark.core.planning.planning import CutRange, Planner
from headwater.spark.core.positions import BEGINNING, Position, ReadSpan, before
from headwater.spark.core.ranges import EntryRange, EntryTask
from headwater.spark.core.store import SourceStore
from headwater.spark.core.tasks import Division


def starting_positions(
    options: SourceOptions, store: SourceStore, plans: Planner, streams: Sequence[str]
) -> dict[str, Position]:
    """Return the position at which the options begin to read each stream.

    Raises `DeclarationError` for a named stream that does not exist.
    """
    found: dict[str, Position] = {}
    counted: dict[str, tuple[Position, None]] = {}
    for stream, state in store.states(streams).items():
        if state is None and options.pattern is None:
            raise store.unknown(stream)
        start = options.start_of(stream)
        if state is None:
            found[stream] = BEGINNING  # the pattern matched it, and it was deleted since
        elif start == "latest" or (after := _before(start)) >= state.last_id:
            # An id past the end means "latest". An offset must not contain an id that the stream never
            # reached, because the stream would then look as if it had been recreated.
            found[stream] = Position(state.last_id, state.entries_added)
        else:
            # With an archive, more entries may follow the beginning than the stream holds.
            counted[stream] = Position(after, 0), None
    for stream, look in plans.look_at_all(counted).items():
        after = counted[stream][0].id
        found[stream] = (
            BEGINNING if look is None else Position(after, look.state.entries_added - look.total)
        )
    return {stream: found[stream] for stream in streams}


def _before(start: StreamID | str) -> StreamID:
    """Return the id after which reading begins."""
    if isinstance(start, str):
        assert start == "earliest", start
        return MIN_ID
    return MIN_ID if start == MIN_ID else before(start)


def divided(
    plans: Planner, spans: Mapping[str, ReadSpan], options: SourceOptions
) -> tuple[dict[str, CutRange], list[InputPartition]]:
    """Divide a batch into tasks; return the parts of each stream's span, and the tasks that read them."""
    division = Division.of(sum(span.entries for span in spans.values()), options)
    cuts = plans.cut_all(
        {stream: (span, division.parts(span.entries)) for stream, span in spans.items()}
    )
    ranges = [
        EntryRange(stream, ids, count) for stream in spans for ids, count in cuts[stream].parts
    ]
    return cuts, [EntryTask(tuple(group)) for group in division.packed(ranges)]
