"""``headwater pipeline status``: the state of a pipeline's tables, without Spark.

Rule. This module reads checkpoints, manifests and counters and writes nothing, so it can be used during a run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from headwater.errors import HeadwaterError, PipelineError
from headwater.spark.pipeline.dead_letters import dead_letter_counts
from headwater.spark.pipeline.declaration.model import Pipeline, Table
from headwater.spark.pipeline.errors import reason
from headwater.spark.pipeline.lag import Lag, lags_below
from headwater.spark.pipeline.quality import BatchQuality
from headwater.spark.pipeline.table_sinks import TableSinks

if TYPE_CHECKING:
    from headwater.spark.archive.archiver import ArchiveState


@dataclass(frozen=True)
class TableStatus:
    """The status of one table.

    ``rows`` is None if the number is unknown, ``quarantined`` also without a quarantine. For a complete table,
    ``batch`` and ``query`` are None; otherwise ``batch`` is None before the first committed batch, ``query``
    before the first start. ``follows`` are the tables whose logs this table's query reads.
    """

    name: str
    mode: str
    sink: str
    rows: int | None
    quarantined: int | None
    batch: int | None
    query: str | None
    lags: tuple[Lag, ...]
    backfills: tuple[dict[str, Any], ...]
    follows: tuple[str, ...] = ()


@dataclass(frozen=True)
class PipelineStatus:
    """The status of a pipeline. ``dead_letters`` is the number of records by dead-letter stream."""

    file: str
    tables: tuple[TableStatus, ...]
    dead_letters: dict[str, int]
    archive: tuple[ArchiveState, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the value of ``--json``: entries are counts, times are in seconds."""
        return asdict(self)


def status(pipeline: Pipeline) -> PipelineStatus:
    """Return the status of ``pipeline``. Raises an error with the source's key for an unreachable server."""
    sinks = TableSinks(pipeline)
    return PipelineStatus(
        file=str(pipeline.file),
        tables=tuple(_table(pipeline, sinks, table) for table in pipeline.tables.values()),
        dead_letters=dead_letter_counts(pipeline, pipeline.sources.values()),
        archive=_archive(pipeline),
    )


def quality(pipeline: Pipeline, table: str | None = None) -> dict[str, list[BatchQuality]]:
    """Return the batches of each streamed table with expectations, or only those of ``table``, in order.

    Raises `PipelineError` if ``table`` is not a streamed table with expectations.
    """
    found = {
        name: kept.quality.batches()
        for name, kept in TableSinks(pipeline).streamed.items()
        if kept.table.expectations and table in (None, name)
    }
    if table is not None and table not in found:
        raise PipelineError(
            f"{pipeline.file}: {table!r} is not a streamed table with expectations; only such tables have counts"
        )
    return found


def _table(pipeline: Pipeline, sinks: TableSinks, table: Table) -> TableStatus:
    if not table.streams:
        made = sinks.recomputed[table.name]
        return TableStatus(
            name=table.name,
            mode=table.mode,
            sink=repr(table.target),
            rows=made.sink.rows(),
            quarantined=made.quarantine.rows() if made.quarantine else None,
            batch=None,
            query=None,
            lags=(),
            backfills=(),
        )
    kept = sinks.streamed[table.name]
    return TableStatus(
        name=table.name,
        mode=table.mode,
        sink=repr(table.target),
        rows=kept.sink.rows(),
        quarantined=kept.quarantine.rows() if kept.quarantine else None,
        batch=kept.checkpoint.last_batch(),
        query=kept.checkpoint.query(),
        lags=tuple(_lags(pipeline, sinks, table.name)),
        backfills=tuple(kept.checkpoint.backfills()),
        follows=tuple(sinks.followed(table.name)),
    )


def _lags(pipeline: Pipeline, sinks: TableSinks, table: str) -> Iterable[Lag]:
    for name, committed in sinks.positions(table).items():
        try:
            yield from lags_below(pipeline, name, committed)
        except HeadwaterError as error:
            place = "source" if name in pipeline.sources else "table"
            raise reason(pipeline, f"{place}.{name}", error) from error


def _archive(pipeline: Pipeline) -> tuple[ArchiveState, ...]:
    if pipeline.archive is None:
        return ()
    from headwater.spark.pipeline.archiving import archive_status

    try:
        return tuple(archive_status(pipeline.archive))
    except HeadwaterError as error:
        raise reason(pipeline, "archive", error) from error
