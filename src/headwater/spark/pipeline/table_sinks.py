"""The sinks of a pipeline's tables, and the locks on them, for a run and for a backfill."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from headwater.spark.pipeline.checkpoints import Checkpoint, held
from headwater.spark.pipeline.declaration.model import Pipeline, Table
from headwater.spark.pipeline.errors import explained
from headwater.spark.pipeline.expectations import WriteOutcome, write_checked
from headwater.spark.pipeline.sinks import AppendSink, BatchId, CompleteSink
from headwater.spark.pipeline.sinks.parquet import AppendTable, CompleteTable
from headwater.spark.pipeline.sinks.registry import append_sink, complete_sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class Streamed:
    """A table that a streaming query adds to, with its quarantine."""

    def __init__(self, table: Table) -> None:
        target = table.target
        self.table = table
        self.sink: AppendSink = append_sink(
            name=table.name,
            mode=table.mode,
            sink=target.sink,
            path=target.path,
            url=target.url,
            stream=target.stream,
            partition_by=table.partition_by,
            key=target.key,
            checkpoint=target.checkpoint,
            options=target.options,
        )
        self.checkpoint = Checkpoint(self.sink.checkpoint)
        self.quarantine = (
            None
            if table.quarantine is None
            else AppendTable(table.quarantine, (), checkpoint=self.sink.checkpoint)
        )

    def prepare(self) -> None:
        """Make what must be there; undo what a killed run left half done."""
        self.sink.prepare()
        if self.quarantine is not None:
            self.quarantine.prepare()

    def write(self, frame: DataFrame, batch: BatchId) -> WriteOutcome:
        """Add a batch, as the table's expectations say."""

        def held_back(rows: DataFrame) -> int:
            assert self.quarantine is not None, "the declaration gives it a path"
            return self.quarantine.write(rows, batch)

        return write_checked(
            frame,
            self.table,
            write=lambda rows: self.sink.write(rows, batch),
            quarantine=held_back if self.quarantine is not None else None,
        )


class Recomputed:
    """A table that is made anew, with its quarantine, which is made anew too."""

    def __init__(self, table: Table) -> None:
        assert table.target.path is not None, "sinks of mode complete have a path"
        self.table = table
        self.sink: CompleteSink = complete_sink(
            sink=table.target.sink, path=table.target.path, partition_by=table.partition_by
        )
        self.quarantine = None if table.quarantine is None else CompleteTable(table.quarantine, ())

    def prepare(self) -> None:
        """Make what must be there."""
        self.sink.prepare()
        if self.quarantine is not None:
            self.quarantine.prepare()

    def write(self, frame: DataFrame) -> WriteOutcome:
        """Put the rows that the table's expectations let through in the place of what it holds."""
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

    def prepare(self, locks: ExitStack) -> None:
        """Hold and prepare every table; ``locks`` lets go of them.

        Raises `PipelineError` where another process writes one, or something else is in its place.
        """
        for name in self.streamed:
            self.hold(name, locks)
        for name, made in self.recomputed.items():
            # Beside the table: what is at its path may be a stranger's.
            assert made.table.path is not None, "sinks of mode complete have a path"
            lock = made.table.path.with_name(f".{made.table.path.name}.lock")
            explained(
                self.pipeline,
                f"table.{name}",
                lambda: locks.enter_context(held(lock, "the table")),  # noqa: B023 - called now
            )
            explained(self.pipeline, f"table.{name}", made.prepare)

    def hold(self, name: str, locks: ExitStack) -> None:
        """Hold and prepare one streamed table."""
        kept = self.streamed[name]

        def prepare() -> None:
            if not kept.checkpoint.own.exists():
                kept.prepare()  # nobody can be writing it yet; a stranger's directory stays as it is
            locks.enter_context(kept.checkpoint.held("the table"))
            kept.prepare()

        explained(self.pipeline, f"table.{name}", prepare)

    def finished(self, spark: SparkSession, name: str, schema: StructType) -> DataFrame:
        """What is in a streamed table."""
        return self.streamed[name].sink.finished(spark, schema)
