"""Analyses the SQL of all tables, and makes tables of mode complete from the contents of the tables that they
read, in dependency order."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

from headwater.spark.pipeline.declaration.graph import upstream
from headwater.spark.pipeline.declaration.model import Pipeline
from headwater.spark.pipeline.errors import explained
from headwater.spark.pipeline.expectations import WriteOutcome
from headwater.spark.pipeline.table_sinks import TableSinks
from headwater.spark.pipeline.views import (
    check_streaming,
    new_session,
    register_inputs,
    table_frame,
    table_frames,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

Done = Callable[[str, WriteOutcome, float], None]


class Analysis(NamedTuple):
    """The frames of streamed tables, the columns of all tables, and a session with views of finished tables."""

    frames: dict[str, DataFrame]
    schemas: dict[str, StructType]
    batch: SparkSession


def analyse_sql(spark: SparkSession, pipeline: Pipeline, sinks: TableSinks) -> Analysis:
    """Analyse the SQL of all tables without reading data. Raises `PipelineError` for SQL that Spark refuses."""
    # Names mean streams in one session and finished tables in the other.
    streaming, batch = new_session(spark, pipeline), new_session(spark, pipeline)
    frames = table_frames(streaming, pipeline, sinks.streamed, sinks.follows)
    check_streaming(pipeline, frames)
    schemas = {name: frame.schema for name, frame in frames.items()}
    register_inputs(batch, pipeline)
    for name, schema in schemas.items():
        batch.createDataFrame([], schema).createOrReplaceTempView(name)
    for name in sinks.recomputed:
        schemas[name] = table_frame(batch, pipeline, pipeline.tables[name]).schema
        batch.createDataFrame([], schemas[name]).createOrReplaceTempView(name)
    return Analysis(frames, schemas, batch)


class Recomputer:
    """Makes complete tables in its own session, in which names refer to finished tables."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        sinks: TableSinks,
        schemas: Mapping[str, StructType],
        done: Done,
    ) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._sinks = sinks
        self._schemas = schemas
        self._done = done

    def after(self, changed: Collection[str]) -> set[str]:
        """Return the complete tables that read one of ``changed``, directly or through other tables."""
        return {
            name
            for name in self._sinks.recomputed
            if set(changed) & upstream(name, self._pipeline.tables)
        }

    def make(self, names: Collection[str]) -> None:
        """Rebuild the complete tables in ``names``."""
        if not names:
            return
        tables = self._pipeline.tables
        needed = {above for name in names for above in upstream(name, tables)}
        register_inputs(self._spark, self._pipeline)
        for name in self._sinks.streamed:
            if name in needed:
                frame = self._sinks.finished(self._spark, name, self._schemas[name])
                frame.createOrReplaceTempView(name)
        for name, made in self._sinks.recomputed.items():
            if name in names:
                began = time.monotonic()
                frame = table_frame(self._spark, self._pipeline, tables[name])
                outcome = explained(
                    self._pipeline,
                    f"table.{name}",
                    lambda: made.write(frame),  # noqa: B023 - called now
                )
                self._done(name, outcome, time.monotonic() - began)
            if name in names or name in needed:
                frame = made.sink.finished(self._spark, self._schemas[name])
                frame.createOrReplaceTempView(name)
