"""``headwater pipeline backfill``: runs a table's SQL once on entries from before the table's beginning.

    what the table has not read │ what it reads
    ───────[from ········ to]───┼──────────────▶
                                └ beginning.json, in its checkpoint

Rule 1. A backfill ends at the table's beginning at the latest, and does not overlap another backfill, so no
        entry is in the table twice.
Rule 2. A backfill is one batch, in a series named after its ranges. Repeating a complete backfill changes
        nothing; repeating an interrupted one completes it.
Rule 3. Only SQL that makes each row from a single entry can be backfilled. SQL that aggregates or compares entries
        would need the entries from before and after the table's beginning together.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headwater.common.model import MAX_ID, MIN_ID, StreamID
from headwater.errors import PipelineError
from headwater.spark.core import option_values
from headwater.spark.core.options import parse_options
from headwater.spark.log_mode.offsets import spans_of
from headwater.spark.pipeline.archiving import archived_options
from headwater.spark.pipeline.checkpoints import Checkpoint
from headwater.spark.pipeline.declaration.graph import sources_below, upstream
from headwater.spark.pipeline.declaration.model import Pipeline, Table
from headwater.spark.pipeline.errors import explained, explaining
from headwater.spark.pipeline.expectations import WriteOutcome
from headwater.spark.pipeline.preflight import check_sources
from headwater.spark.pipeline.sinks import BatchId
from headwater.spark.pipeline.spark_session import start_spark
from headwater.spark.pipeline.table_sinks import TableSinks
from headwater.spark.pipeline.views import analysed, new_session, table_frames

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ID: Final = re.compile(r"\d+(-\d+)?")

_STATEFUL: Final = {
    "Aggregate": "aggregates rows (GROUP BY, or a function like count)",
    "Distinct": "removes rows that are equal (DISTINCT)",
    "Deduplicate": "removes rows that are equal",
    "DeduplicateWithinWatermark": "removes rows that are equal",
    "Window": "compares rows (OVER)",
    "GlobalLimit": "takes some rows (LIMIT)",
}
"""The nodes of Spark's plan that make a row from more than one entry, with the words that explain each."""

_OF_STREAMING: Final = (
    "startingid",
    "startingtimestamp",
    "endingid",
    "endingtimestamp",
    "maxentriespertrigger",
    "maxbytespertrigger",
)

Range = tuple[StreamID, StreamID]
"""The first and last id to read from one stream."""


class Filled(NamedTuple):
    """Result of a backfill of one table."""

    table: str
    """The name of the table."""
    ranges: dict[str, dict[str, Range]]
    """The first and last id, by source and stream."""
    outcome: WriteOutcome
    seconds: float
    """The duration in seconds."""


def backfill(
    pipeline: Pipeline,
    table: str,
    *,
    start: str = "earliest",
    end: str | None = None,
    master: str | None = None,
) -> Filled:
    """Run the SQL of ``table`` on the entries between ``start`` and ``end``, and add the rows to the table.

    ``start`` and ``end`` are ids or times, as for ``startingId`` and ``endingTimestamp``. If ``end`` is None,
    the entries up to the table's beginning are read. ``Filled.outcome.rows`` is `THERE_ALREADY` if the table
    already has this backfill. Raises `PipelineError` if the table cannot be backfilled, or has read a part of
    the range.
    """
    declared = _table(pipeline, table)
    sources = _sources(pipeline, declared)
    sinks = TableSinks(pipeline)
    kept = sinks.streamed[table]
    if above := sinks.followed(table):
        raise PipelineError(
            f"{pipeline.file}: table.{table} reads the rows of {', '.join(above)}. Backfill "
            f"{', '.join(above)} instead; the next run adds the rows to table.{table}"
        )
    with explaining(pipeline, "backfill"), ExitStack() as locks:
        if kept.checkpoint.query() is not None:
            sinks.lock(table, locks)
        place = f"table.{table}"
        ranges = explained(pipeline, place, lambda: _ranges(kept.checkpoint, sources, start, end))
        check_sources(pipeline, {table: kept.checkpoint})
        spark = start_spark(pipeline, master=master)
        needed = [
            one for one in pipeline.tables if one in {table, *upstream(table, pipeline.tables)}
        ]
        frames = table_frames(new_session(spark, pipeline), pipeline, needed)
        explained(pipeline, f"{place}.sql", lambda: _refuse_stateful(frames[table]))
        once = {name: _options(sources[name], ranges[name]) for name in ranges}
        frames = table_frames(new_session(spark, pipeline), pipeline, needed, once=once)
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
            f"{pipeline.file}: table.{name} is rebuilt by every run from the tables it reads; backfill "
            "those tables"
        )
    if declared.mode == "update":
        raise PipelineError(
            f"{pipeline.file}: table.{name} has mode update: older entries would replace newer "
            "rows. Rebuild it instead: remove its directory and run the pipeline."
        )
    return declared


def _sources(pipeline: Pipeline, table: Table) -> dict[str, dict[str, str]]:
    """Return the options of each source from which the table is made, by the source's name."""
    found: dict[str, dict[str, str]] = {}
    for name in sources_below(table.name, pipeline.tables, pipeline.sources):
        source = pipeline.sources[name]
        if "group" in source.options:
            raise PipelineError(
                f"{pipeline.file}: table.{table.name} reads the source {name}, which has a group. "
                "Sources with a group cannot be backfilled: other members may have consumed entries."
            )
        found[name] = archived_options(pipeline.archive, source)
    return found


# --- the range ------------------------------------------------------------------------------------


def _ranges(
    checkpoint: Checkpoint, sources: Mapping[str, dict[str, str]], start: str, end: str | None
) -> dict[str, dict[str, Range]]:
    """Return the range to read, by source and stream, without entries that the table has already read."""
    beginning = checkpoint.beginning()
    if checkpoint.query() is None or beginning is None:
        raise PipelineError(
            "the table's beginning is unknown: the table has read nothing yet, or was created by a "
            "version that did not record its beginning. Run the pipeline first; a table that needs all "
            "entries needs startingId = 'earliest' instead of a backfill."
        )
    first, last = _first(start), _last(end)
    if last is not None and first > last:
        raise PipelineError(f"--from {start} is after --to {end}: no entry is between them")
    found: dict[str, dict[str, Range]] = {}
    for name in sources:
        found[name] = {}
        for stream, span in spans_of(beginning.get(name, {})).items():
            begins = span.start.id
            if last is not None and last > begins > MIN_ID:
                raise PipelineError(
                    f"stream {stream!r}: the table has the entries after {begins}; the backfill must "
                    f"end there: --to {begins}, or omit --to"
                )
            upto = begins if last is None else min(last, begins)
            if upto > MIN_ID and first <= upto:
                found[name][stream] = first, upto
    found = {name: streams for name, streams in found.items() if streams}
    if not found:
        raise PipelineError(
            f"the table has read all entries from {start} on: it begins there, before "
            "that, or at the first entries of its streams"
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
                    state = "was backfilled" if record["done"] else "is partly backfilled"
                    raise PipelineError(
                        f"stream {stream!r}: {first} to {last} {state} already; name a range that does not overlap it"
                        + (
                            ""
                            if record["done"]
                            else f", and complete the partial one with --from {first} --to {last}"
                        )
                    )


def _record(ranges: dict[str, dict[str, Range]]) -> tuple[str, dict[str, Any]]:
    """Return the name of a backfill's series, which depends only on the ranges, and the backfill's record."""
    written = {
        name: {stream: [str(first), str(last)] for stream, (first, last) in streams.items()}
        for name, streams in ranges.items()
    }
    digest = hashlib.sha256(json.dumps(written, sort_keys=True).encode()).hexdigest()[:16]
    series = f"backfill-{digest}"
    return series, {"series": series, "ranges": written}


def _options(options: Mapping[str, str], streams: Mapping[str, Range]) -> dict[str, str]:
    """Return a source's options for a batch read of the ranges in ``streams``."""
    kept = {k: text for k, text in options.items() if k.lower() not in _OF_STREAMING}
    made = {
        k: text for k, text in kept.items() if k.lower() not in ("stream", "streamspattern")
    } | {
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
    """Raise `PipelineError` if a row is made from more than one entry of a stream."""
    why = _stateful(analysed(frame))
    if why is not None:
        raise PipelineError(
            f"the SQL {why}, but a backfill cannot combine entries from before and after the table's "
            "beginning. Rebuild the table instead: remove its directory, set startingId = 'earliest', and run."
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
