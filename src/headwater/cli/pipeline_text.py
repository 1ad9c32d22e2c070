"""Text output of ``headwater pipeline``: plans, states and progress."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from headwater.spark.pipeline.lag import Lag
from headwater.spark.pipeline.progress import Progress, lag_text
from headwater.spark.pipeline.sinks import THERE_ALREADY

if TYPE_CHECKING:
    from headwater.spark.pipeline.backfill import Filled
    from headwater.spark.pipeline.plan import Plan, PlannedSource, PlannedTable
    from headwater.spark.pipeline.quality import BatchQuality
    from headwater.spark.pipeline.status import PipelineStatus, TableStatus
    from headwater.spark.pipeline.table_sinks import RepairedTimes


def plan_text(plan: Plan) -> str:
    """Return a plan as text."""
    pipeline = plan.pipeline
    trigger = "available-now" if pipeline.interval is None else f"every {pipeline.interval:g} s"
    where = "SQL not analysed" if plan.master is None else f"on {plan.master}"
    lines = [f"{pipeline.file}: {trigger}, {where}"]
    for source in plan.sources:
        lines += _source_lines(source)
    for source_input in pipeline.inputs.values():
        place = str(source_input.path) if source_input.path is not None else "a database"
        lines.append(f"input {source_input.name}: {source_input.format}, {place}")
    for number, table in enumerate(plan.tables, 1):
        lines += _table_lines(number, table)
    return pipeline.shown("\n".join(lines))


def _source_lines(source: PlannedSource) -> Iterator[str]:
    yield f"source {source.name}: {source.what} at {source.url} ({source.reads})"
    if source.problem is not None:
        yield f"  {source.problem}"
    if source.problem is None and not source.streams:
        yield "  the stream does not exist yet"


def _table_lines(number: int, planned: PlannedTable) -> Iterator[str]:
    table = planned.table
    yield f"{number}. table {table.name}: {table.mode}, to {table.target!r}"
    yield f"  reads {', '.join(table.reads)}"
    if planned.follows:
        yield f"  follows the rows of {', '.join(planned.follows)}"
    if planned.through:
        yield (
            f"  reads the sources of {', '.join(planned.through)}, because its checkpoint began with them: remove the "
            "table with its checkpoint to build it from the rows of these tables"
        )
    if planned.columns is not None:
        yield f"  columns {', '.join(f'{name} {kind}' for name, kind in planned.columns)}"
    if table.partition_by:
        yield f"  partitioned by {', '.join(table.partition_by)}"
    if table.target.key:
        yield f"  key {', '.join(table.target.key)}"
    for mark in table.watermarks:
        yield f"  watermark {mark.column}, {mark.delay}"
    for expectation in table.expectations:
        yield f"  expects {expectation.name}: {expectation.predicate} (else {expectation.action})"
    if table.quarantine is not None:
        yield f"  quarantine {table.quarantine}"
    if planned.checkpoint is not None:
        begun = "not begun" if planned.batch is None else f"batch {planned.batch} is done"
        yield f"  checkpoint {planned.checkpoint} ({begun})"
    yield from _lag_lines(planned.lags)


def repaired_text(table: str, zone: str, found: RepairedTimes, *, dry_run: bool) -> str:
    """Return the result of a repair of partition values as text. With ``dry_run``, it says what would change."""
    if not found.columns:
        return f"{table}: no partition value is a time in a session's zone; nothing to repair"
    done = "would be" if dry_run else "are"
    lines = [
        f"{table}: {found.files:,} files {done} corrected from {zone} to UTC, by {', '.join(found.columns)}"
    ]
    if found.twice:
        lines.append(
            f"  {len(found.twice):,} times occurred twice, when clocks were set back; the first is assumed: "
            f"{', '.join(found.twice[:5])}"
        )
    if found.followers:
        lines.append(
            f"  {', '.join(found.followers)} may have read the old values: remove the table with its checkpoint to "
            "build it again"
        )
    return "\n".join(lines)


def status_text(status: PipelineStatus) -> str:
    """Return a pipeline's state as text."""
    lines: list[str] = []
    for table in status.tables:
        lines += _status_lines(table)
    for stream, count in status.dead_letters.items():
        lines.append(f"dead letters {stream}: {count:,}")
    for archived in status.archive:
        trim = ""
        if archived.trimmable is not None:
            trim = f", needed from {archived.trimmable} on by {archived.needed_by}"
        lines.append(
            f"archive {archived.stream}: up to {archived.end}, {archived.entries:,} entries, "
            f"{archived.bytes:,} bytes in {archived.files:,} files, {archived.waiting:,} entries waiting{trim}"
        )
    return "\n".join(lines)


def _status_lines(table: TableStatus) -> Iterator[str]:
    facts = [table.mode, table.sink]
    if table.rows is not None:
        facts.append(f"{table.rows:,} rows")
    if table.quarantined is not None:
        facts.append(f"{table.quarantined:,} quarantined")
    if table.mode != "complete":
        facts.append("not begun" if table.batch is None else f"batch {table.batch}")
    yield f"{table.name}: {', '.join(facts)}"
    yield from _lag_lines(table.lags)
    for record in table.backfills:
        state = "backfilled" if record["done"] else "partly backfilled"
        for source, streams in record["ranges"].items():
            for stream, (first, last) in streams.items():
                yield f"  {source} {stream}: {state} {first} to {last}"


def _lag_lines(lags: Iterable[Lag]) -> Iterator[str]:
    for lag in lags:
        yield f"  {lag.source}{f' {lag.stream}' if lag.stream else ''}: {_lag_words(lag)}"


def _lag_words(lag: Lag) -> str:
    if lag.entries == 0:
        return "nothing to read"
    entries = "an unknown number of" if lag.entries is None else f"{lag.entries:,}"
    age = "" if lag.seconds is None else f", the oldest {lag.seconds:,.1f} s old"
    return f"{entries} {'entries' if lag.stream else 'rows'} to read{age}"


def quality_text(found: dict[str, list[BatchQuality]]) -> str:
    """Return the batches of each table, with their violated expectations, as text."""
    lines = [] if found else ["no streamed table has expectations"]
    for name, batches in found.items():
        lines.append(f"{name}:" + ("" if batches else " no batch yet"))
        for one in batches:
            at = datetime.fromtimestamp(one.at, UTC).strftime("%Y-%m-%d %H:%M:%S")
            batch = f"{one.batch.series or 'batch'} {one.batch.number}"
            violated = ", ".join(
                f"{rule} {count:,}" for rule, count in one.violations.items() if count
            )
            lines.append(
                f"  {at} {batch}: {one.rows:,} rows, {one.kept:,} kept, {one.dropped:,} dropped, "
                f"{one.quarantined:,} quarantined" + (f"; not met: {violated}" if violated else "")
            )
    return "\n".join(lines)


def backfill_text(filled: Filled) -> str:
    """Return the result of a backfill as text."""
    ranges = "; ".join(
        f"{stream} {first} to {last}"
        for streams in filled.ranges.values()
        for stream, (first, last) in streams.items()
    )
    if filled.outcome.rows == THERE_ALREADY:
        return f"{filled.table}: {ranges} was there already"
    extra = ""
    if filled.outcome.dropped:
        extra += f", {filled.outcome.dropped:,} dropped"
    if filled.outcome.quarantined:
        extra += f", {filled.outcome.quarantined:,} quarantined"
    return (
        f"{filled.table}: {filled.outcome.rows:,} rows{extra} of {ranges}, {filled.seconds:.1f} s"
    )


@contextmanager
def live(progress: Progress) -> Iterator[Callable[[str], None]]:
    """Show ``progress`` as a live table. Yield a function that prints violations and repeated batches above it."""
    from rich.live import Live

    with Live(get_renderable=lambda: progress_table(progress), refresh_per_second=4) as shown:

        def report(line: str) -> None:
            if "; not met: " in line or "there already" in line:
                shown.console.print(line, markup=False, highlight=False)

        yield report


def progress_table(progress: Progress) -> Any:
    """Return the progress of a run as a rich table, with a row for each table of the pipeline."""
    from rich.table import Table

    drawn = Table("table", "batch", "rows", "rows/s", "batch time", "held back", "behind")
    for table in progress.tables():
        drawn.add_row(
            table.name,
            "" if table.batch is None else str(table.batch),
            f"{table.rows:,}",
            f"{table.rows_per_second:,.0f}" if table.batches else "",
            f"{table.batch_seconds:.1f} s" if table.batches else "",
            _held_back(table.dropped, table.quarantined),
            lag_text(table),
        )
    return drawn


def _held_back(dropped: int, quarantined: int) -> str:
    parts: Iterable[str] = (
        f"{count:,} {word}"
        for count, word in ((dropped, "dropped"), (quarantined, "quarantined"))
        if count
    )
    return ", ".join(parts)
