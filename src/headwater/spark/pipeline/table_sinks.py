"""The sinks of a pipeline's tables, and the locks on them, for a run and for a backfill."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from headwater.errors import PipelineError
from headwater.spark.core.durable import locked
from headwater.spark.pipeline.checkpoints import Checkpoint, Offset, in_use
from headwater.spark.pipeline.declaration.graph import sources_below, upstream
from headwater.spark.pipeline.declaration.model import Pipeline, Table
from headwater.spark.pipeline.errors import explained
from headwater.spark.pipeline.expectations import WriteOutcome, write_checked
from headwater.spark.pipeline.quality import QualityLog
from headwater.spark.pipeline.sinks import AppendSink, BatchId, CompleteSink
from headwater.spark.pipeline.sinks.console import Console
from headwater.spark.pipeline.sinks.delta import DeltaAppend, DeltaComplete, DeltaUpdate
from headwater.spark.pipeline.sinks.layout import check_directory, is_utc, moved_to_utc, zone_of
from headwater.spark.pipeline.sinks.parquet import AppendTable, CompleteTable
from headwater.spark.pipeline.table_log.positions import is_position

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class RepairedTimes(NamedTuple):
    """Result of a repair of partition values: the columns, and the number of files with new values.

    ``twice`` are local times that occurred twice because clocks were set back; the first occurrence was assumed.
    ``followers`` are tables that may have read the old values.
    """

    columns: list[str]
    files: int
    twice: list[str]
    followers: list[str]


def _append_sink(table: Table) -> AppendSink:
    """Create the sink of a streaming table, of mode append or update."""
    target, parts = table.target, table.partition_by
    if target.path is not None:
        if target.sink == "parquet":
            return AppendTable(target.path, parts)
        if table.mode == "update":
            return DeltaUpdate(
                target.path, target.key, partition_by=parts, checkpoint=target.checkpoint
            )
        return DeltaAppend(target.path, partition_by=parts, checkpoint=target.checkpoint)
    assert target.checkpoint is not None, "sinks without a path have a checkpoint"
    if target.sink == "console":
        return Console(table.name, checkpoint=target.checkpoint, options=target.options)
    from headwater.spark.pipeline.sinks.stream import StreamTable

    assert target.url is not None, "the sink stream has a url"
    assert target.stream is not None, "the sink stream has a stream"
    return StreamTable(
        target.url, target.stream, checkpoint=target.checkpoint, options=target.options
    )


class _Kept:
    """The sink of a table, and its quarantine."""

    sink: AppendSink | CompleteSink
    quarantine: AppendTable | CompleteTable | None

    def check(self) -> None:
        """Raise `PipelineError` if the place of a sink contains something else. Writes nothing."""
        self.sink.check()
        if self.quarantine is not None:
            self.quarantine.check()

    def prepare(self) -> None:
        """Create missing directories, and undo the incomplete work of a killed run."""
        self.sink.prepare()
        if self.quarantine is not None:
            self.quarantine.prepare()


class Streamed(_Kept):
    """A table to which a streaming query adds batches, with its quarantine."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.sink: AppendSink = _append_sink(table)
        self.checkpoint = Checkpoint(self.sink.checkpoint)
        self.quality = QualityLog(self.checkpoint.own)
        self.quarantine: AppendTable | None = None
        if table.quarantine is not None:
            self.quarantine = AppendTable(table.quarantine, (), checkpoint=self.sink.checkpoint)

    def local_times(self) -> list[str]:
        """Return the partition columns whose times an earlier version wrote in its session's time zone."""
        return self.sink.local_times() if isinstance(self.sink, (AppendTable, DeltaAppend)) else []

    def write(self, frame: DataFrame, batch: BatchId) -> WriteOutcome:
        """Add a batch according to the table's expectations."""

        def held_back(rows: DataFrame) -> int:
            assert self.quarantine is not None, "the declaration gives it a path"
            return self.quarantine.write(rows, batch)

        return write_checked(
            frame,
            self.table,
            write=lambda rows: self.sink.write(rows, batch),
            quarantine=held_back if self.quarantine is not None else None,
            note=lambda counts: self.quality.note(batch, counts),
        )


class Recomputed(_Kept):
    """A table that every run rebuilds, with its quarantine, which is rebuilt too."""

    def __init__(self, table: Table) -> None:
        assert table.path is not None, "sinks of mode complete have a path"
        self.table = table
        kind = DeltaComplete if table.target.sink == "delta" else CompleteTable
        self.sink: CompleteSink = kind(table.path, table.partition_by)
        self.quarantine: CompleteTable | None = None
        if table.quarantine is not None:
            self.quarantine = CompleteTable(table.quarantine, ())

    def write(self, frame: DataFrame) -> WriteOutcome:
        """Replace the table's contents with the rows that its expectations keep."""
        return write_checked(
            frame,
            self.table,
            write=self.sink.write,
            quarantine=self.quarantine.write if self.quarantine is not None else None,
        )


class TableSinks:
    """The sinks of all tables of a pipeline, by name."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        tables = pipeline.tables
        self.streamed = {n: Streamed(table) for n, table in tables.items() if table.streams}
        self.recomputed = {n: Recomputed(table) for n, table in tables.items() if not table.streams}

    def follows(self, name: str) -> bool:
        """Return whether the query of ``name`` reads the logs of tables that have a log.

        A query whose checkpoint is from a version that did not read logs continues to read the sources.
        """
        begun = self.streamed[name].checkpoint.newest_offsets()
        return not begun or any(map(is_position, begun))

    def followed(self, name: str) -> list[str]:
        """Return the tables whose logs the query of ``name`` reads."""
        return self.logged_above(name) if self.follows(name) else []

    def logged_above(self, name: str) -> list[str]:
        """Return the tables with a log that ``name`` reads, directly or through tables without a log."""
        tables, logged = self.pipeline.tables, self.pipeline.logged
        above = upstream(name, tables, logged)
        return [one for one in tables if one in above and one in logged]

    def sources(self, name: str) -> list[str]:
        """Return the sources that the query of ``name`` reads."""
        tables = self.pipeline.tables
        return sources_below(name, tables, self.pipeline.sources, self.followed(name))

    def positions(self, name: str) -> dict[str, Offset | None]:
        """Return the offset up to which the query of ``name`` has read each source and each table that it follows.

        The offsets are None before the first committed batch.
        """
        committed = self.streamed[name].checkpoint.committed()
        return {one: committed.get(one) for one in (*self.sources(name), *self.followed(name))}

    def check(self) -> None:
        """Check every table's place without writing anything.

        Raises `PipelineError` if a place contains something else, or if partition values may be local times.
        """
        for name, kept in self.streamed.items():
            explained(self.pipeline, f"table.{name}", kept.check)
            self._check_times(name)
        for name, made in self.recomputed.items():
            explained(self.pipeline, f"table.{name}", made.check)
        archive = self.pipeline.archive
        if archive is not None:
            explained(self.pipeline, "archive.path", lambda: check_directory(archive.path))

    def _check_times(self, name: str) -> None:
        """Raise `PipelineError` if partition values of ``name`` may be times in the session's zone.

        The zone of the session that wrote them is not recorded, and is assumed to be the declared zone.
        """
        zone, table = self.pipeline.zone, self.pipeline.tables[name]
        columns = [] if is_utc(zone) else self.streamed[name].local_times()
        if columns:
            raise PipelineError(
                f"{self.pipeline.file}: table.{name}: an earlier version of Headwater wrote the times of the partition "
                f"column {', '.join(columns)} in {table.path} in the zone of its session, which seems to be {zone}, but "
                "readers take them for UTC. Correct them with: headwater pipeline repair "
                f"{self.pipeline.file} --table {name} --zone {zone}"
            )

    def repair_times(self, name: str, zone: str, *, dry_run: bool = False) -> RepairedTimes:
        """Correct partition values of ``name`` that were written as times in ``zone``.

        Raises `PipelineError` for a table of mode complete, an unknown zone, or a table that another process writes.
        """
        kept = self.streamed.get(name)
        if kept is None:
            known = ", ".join(self.streamed) or "none"
            raise PipelineError(
                f"{name!r} is not a table of mode append or update of {self.pipeline.file}; these are {known}. Every "
                "run rebuilds a table of mode complete."
            )
        written = zone_of(zone)
        twice = set[str]()

        def in_utc(text: str) -> str:
            moment, ambiguous = moved_to_utc(text, written)
            twice.update([text] if ambiguous else [])
            return moment

        with ExitStack() as locks:
            if kept.checkpoint.own.exists():
                locks.enter_context(kept.checkpoint.locked())
            columns = explained(self.pipeline, f"table.{name}", kept.local_times)
            files = 0
            if columns and isinstance(kept.sink, (AppendTable, DeltaAppend)):
                files = kept.sink.repair_times(in_utc, dry_run=dry_run)
        tables = self.pipeline.tables
        followers = [one for one in self.streamed if name in tables[one].reads]
        return RepairedTimes(columns, files, sorted(twice), followers)

    def prepare(self, locks: ExitStack) -> None:
        """Lock and prepare every table; ``locks`` releases the locks.

        Raises `PipelineError` if another process writes a table, or a table's place contains something else.
        """
        for name in self.streamed:
            self.lock(name, locks)
        for name, made in self.recomputed.items():
            # The lock is next to the table, because the table's path may contain something else.
            assert made.table.path is not None, "sinks of mode complete have a path"
            lock = made.table.path.with_name(f".{made.table.path.name}.lock")
            explained(
                self.pipeline,
                f"table.{name}",
                lambda: locks.enter_context(locked(lock, in_use)),  # noqa: B023 - called now
            )
            explained(self.pipeline, f"table.{name}", made.prepare)

    def lock(self, name: str, locks: ExitStack) -> None:
        """Lock and prepare one streamed table; ``locks`` releases the lock."""
        kept = self.streamed[name]
        self._check_times(name)

        def prepare() -> None:
            if not kept.checkpoint.own.exists():
                kept.prepare()  # no process writes it yet; checks its place before the lock is there
            locks.enter_context(kept.checkpoint.locked())
            kept.prepare()

        explained(self.pipeline, f"table.{name}", prepare)

    def finished(self, spark: SparkSession, name: str, schema: StructType) -> DataFrame:
        """Return the contents of a streamed table."""
        return self.streamed[name].sink.finished(spark, schema)
