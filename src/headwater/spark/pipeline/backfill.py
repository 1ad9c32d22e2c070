"""``headwater pipeline backfill``: entries from before a table began, through its SQL, once.

    what the table has not read │ what it reads
    ───────[from ········ to]───┼──────────────▶
                                └ beginning.json, in its checkpoint

Rule 1. A backfill ends where the table begins, at the latest, and touches no other backfill: no
        entry is in the table twice.
Rule 2. Its batch has a series of its own, named by its range: done again, it changes nothing; cut
        short, it is done by doing it again.
Rule 3. Only SQL that makes rows of single entries can be backfilled: what sums or compares entries
        would have to see both sides of the seam at once.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headwater.errors import PipelineError
from headwater.model import MAX_ID, MIN_ID, StreamID
from headwater.spark.core import option_values
from headwater.spark.core.options import parse_options
from headwater.spark.log_mode.offsets import spans_of
from headwater.spark.pipeline.archiving import archived_options
from headwater.spark.pipeline.checkpoints import Checkpoint
from headwater.spark.pipeline.declaration.graph import sources_below, upstream
from headwater.spark.pipeline.declaration.model import Pipeline, Table
from headwater.spark.pipeline.errors import explained
from headwater.spark.pipeline.expectations import WriteOutcome
from headwater.spark.pipeline.preflight import check_sources
from headwater.spark.pipeline.sinks import BatchId
from headwater.spark.pipeline.spark_session import start_spark
from headwater.spark.pipeline.table_sinks import TableSinks
from headwater.spark.pipeline.views import analysed, batched, new_session, streamed, table_frames

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ID: Final = re.compile(r"\d+(-\d+)?")

_STATEFUL: Final = {
    "Aggregate": "sums up rows (GROUP BY, or a function like count)",
    "Distinct": "removes rows that are equal (DISTINCT)",
    "Deduplicate": "removes rows that are equal",
    "DeduplicateWithinWatermark": "removes rows that are equal",
    "Window": "compares rows (OVER)",
    "GlobalLimit": "takes some rows (LIMIT)",
}
"""What Spark's plan calls what needs more than one entry to make a row."""

_OF_STREAMING: Final = (
    "startingid",
    "startingtimestamp",
    "endingid",
    "endingtimestamp",
    "maxentriespertrigger",
    "maxbytespertrigger",
)

Range = tuple[StreamID, StreamID]
"""The first and the last id of what is read of one stream."""


class Filled(NamedTuple):
    """What a backfill did to one table."""

    table: str
    """The name of the table."""
    ranges: dict[str, dict[str, Range]]
    """From which id to which, by source and stream."""
    outcome: WriteOutcome
    seconds: float
    """Seconds that it took."""


def backfill(
    pipeline: Pipeline,
    table: str,
    *,
    start: str = "earliest",
    end: str | None = None,
    master: str | None = None,
) -> Filled:
    """Read what lies between ``start`` and ``end`` (ids or times, as ``startingId`` and
    ``endingTimestamp`` take them) through ``table``'s SQL into its sink. Without ``end``: up to where
    the table begins.

    ``Filled.outcome.rows`` is `THERE_ALREADY` where the table has it. Raises `PipelineError` where
    the table cannot be backfilled, or has read a part of the range.
    """
    declared = _table(pipeline, table)
    sources = _sources(pipeline, declared)
    sinks = TableSinks(pipeline)
    kept = sinks.streamed[table]
    with ExitStack() as locks:
        if kept.checkpoint.query() is not None:
            sinks.hold(table, locks)
        place = f"table.{table}"
        ranges = explained(pipeline, place, lambda: _ranges(kept.checkpoint, sources, start, end))
        check_sources(pipeline, {table: kept.checkpoint})
        spark = start_spark(pipeline, master=master)
        needed = [
            one for one in pipeline.tables if one in {table, *upstream(table, pipeline.tables)}
        ]
        followed = new_session(spark, pipeline)
        frames = table_frames(followed, pipeline, streamed(followed, pipeline), needed)
        explained(pipeline, f"{place}.sql", lambda: _refuse_stateful(frames[table]))
        once = new_session(spark, pipeline)
        options = {name: _options(sources[name], ranges[name]) for name in ranges}
        frames = table_frames(once, pipeline, batched(once, pipeline, options), needed)
        series, record = _record(ranges)
        kept.checkpoint.note_backfill(series, record | {"done": False})
        began = time.monotonic()
        outcome = explained(pipeline, place, lambda: kept.write(frames[table], BatchId(0, series)))
        kept.checkpoint.note_backfill(series, record | {"done": True})
        return Filled(table, ranges, outcome, time.monotonic() - began)


def _table(pipeline: Pipeline, name: str) -> Table:
    declared = pipeline.tables.get(name)
    if declared is None:
        raise PipelineError(
            f"{pipeline.file}: there is no table {name!r}; tables are {', '.join(pipeline.tables)}"
        )
    if declared.mode == "complete":
        raise PipelineError(
            f"{pipeline.file}: table.{name} is made anew at every run, of what its tables hold; backfill "
            "those that it reads"
        )
    if declared.mode == "update":
        raise PipelineError(
            f"{pipeline.file}: table.{name} has mode update: older entries would take the place of newer "
            "rows. Make it anew instead: remove its directory and run the pipeline."
        )
    return declared


def _sources(pipeline: Pipeline, table: Table) -> dict[str, dict[str, str]]:
    """The options of every source that the table is made of."""
    found: dict[str, dict[str, str]] = {}
    for name in sources_below(table.name, pipeline.tables, pipeline.sources):
        source = pipeline.sources[name]
        if "group" in source.options:
            raise PipelineError(
                f"{pipeline.file}: table.{table.name} reads the source {name}, which has a group: "
                "which entries its other members took, nobody can tell. Only a source without "
                "group can be backfilled."
            )
        found[name] = archived_options(pipeline.archive, source)
    return found


# --- the range ------------------------------------------------------------------------------------


def _ranges(
    checkpoint: Checkpoint, sources: Mapping[str, dict[str, str]], start: str, end: str | None
) -> dict[str, dict[str, Range]]:
    """What is to be read of each stream of each source; nothing that the table has."""
    beginning = checkpoint.beginning()
    if checkpoint.query() is None or beginning is None:
        raise PipelineError(
            "where the table begins is not known: it has read nothing yet, or was begun by a version "
            "that did not note it. Run the pipeline first; a table that is to have everything needs "
            "no backfill but startingId = 'earliest'."
        )
    first, last = _first(start), _last(end)
    found: dict[str, dict[str, Range]] = {}
    for name in sources:
        found[name] = {}
        for stream, span in spans_of(beginning.get(name, {})).items():
            begins = span.start.id
            if last is not None and last > begins > MIN_ID:
                raise PipelineError(
                    f"stream {stream!r}: the table has what comes after {begins}; the backfill is to "
                    f"end there: --to {begins}, or leave --to out"
                )
            upto = begins if last is None else min(last, begins)
            if upto > MIN_ID and first <= upto:
                found[name][stream] = first, upto
    found = {name: streams for name, streams in found.items() if streams}
    if not found:
        raise PipelineError(
            f"there is nothing from {start} on that the table has not read: it begins at the streams' "
            "own beginning, or before that place"
        )
    _refuse_overlap(checkpoint, found)
    return found


def _first(text: str) -> StreamID:
    if text.strip() == "earliest":
        return MIN_ID
    if _ID.fullmatch(text.strip()):
        found = option_values.start("--from", text)
        assert isinstance(found, StreamID), found
        return found
    return option_values.starting_time("--from", text)


def _last(text: str | None) -> StreamID | None:
    if text is None:
        return None
    if _ID.fullmatch(text.strip()):
        found = option_values.end("--to", text)
        return found if isinstance(found, StreamID) else MAX_ID
    return option_values.ending_time("--to", text)


def _refuse_overlap(checkpoint: Checkpoint, ranges: dict[str, dict[str, Range]]) -> None:
    series = _record(ranges)[0]
    for record in checkpoint.backfills():
        if record["series"] == series:
            continue
        for name, streams in record["ranges"].items():
            for stream, (first, last) in streams.items():
                mine = ranges.get(name, {}).get(stream)
                if mine and mine[0] <= StreamID.parse(last) and StreamID.parse(first) <= mine[1]:
                    state = "was backfilled" if record["done"] else "is half backfilled"
                    raise PipelineError(
                        f"stream {stream!r}: {first} to {last} {state} already; name a range beside it"
                        + (
                            ""
                            if record["done"]
                            else f", and do that one again: --from {first} --to {last}"
                        )
                    )


def _record(ranges: dict[str, dict[str, Range]]) -> tuple[str, dict[str, Any]]:
    """A series' name, which the range alone decides, and what is kept about it."""
    written = {
        name: {stream: [str(first), str(last)] for stream, (first, last) in streams.items()}
        for name, streams in ranges.items()
    }
    digest = hashlib.sha256(json.dumps(written, sort_keys=True).encode()).hexdigest()[:16]
    series = f"backfill-{digest}"
    return series, {"series": series, "ranges": written}


def _options(options: Mapping[str, str], streams: Mapping[str, Range]) -> dict[str, str]:
    """A source's options, for a batch read of these ranges."""
    kept = {k: text for k, text in options.items() if k.lower() not in _OF_STREAMING}
    made = {k: text for k, text in kept.items() if k.lower() != "stream"} | {
        "stream": json.dumps(list(streams)),
        "startingId": json.dumps(
            {s: "earliest" if first == MIN_ID else str(first) for s, (first, _) in streams.items()}
        ),
        "endingId": json.dumps({s: str(last) for s, (_, last) in streams.items()}),
    }
    parse_options(made)
    return made


# --- the SQL --------------------------------------------------------------------------------------


def _refuse_stateful(frame: DataFrame) -> None:
    """Raises `PipelineError` where a row is made of more than one entry of a stream."""
    why = _stateful(analysed(frame))
    if why is not None:
        raise PipelineError(
            f"the SQL {why}; entries on both sides of where the table begins would be taken apart. Make "
            "the table anew instead: remove its directory, set startingId = 'earliest', and run."
        )


def _stateful(plan: Any) -> str | None:
    children = plan.children()
    below = [children.apply(place) for place in range(children.size())]
    if plan.isStreaming():
        if plan.nodeName() in _STATEFUL:
            return _STATEFUL[plan.nodeName()]
        if plan.nodeName() == "Join" and sum(bool(one.isStreaming()) for one in below) > 1:
            return "joins streams with each other"
    return next((why for why in map(_stateful, below) if why is not None), None)
