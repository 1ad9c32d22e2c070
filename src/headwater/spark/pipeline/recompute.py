"""Makes tables of mode complete from the contents of the tables that they read, in dependency order."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from headwater.spark.pipeline.declaration.graph import upstream
from headwater.spark.pipeline.declaration.model import Pipeline
from headwater.spark.pipeline.errors import explained
from headwater.spark.pipeline.expectations import WriteOutcome
from headwater.spark.pipeline.table_sinks import TableSinks
from headwater.spark.pipeline.views import register_inputs, table_frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

Done = Callable[[str, WriteOutcome, float], None]


def schemas_of_completes(
    spark: SparkSession, pipeline: Pipeline, streamed: Mapping[str, StructType]
) -> dict[str, StructType]:
    """Return the columns of every table of mode complete, without reading data.

    ``streamed`` are those of the other tables. Raises `PipelineError` for SQL that Spark refuses.
    """
    register_inputs(spark, pipeline)
    schemas = dict(streamed)
    for name, schema in streamed.items():
        spark.createDataFrame([], schema).createOrReplaceTempView(name)
    for name, table in pipeline.tables.items():
        if not table.streams:
            schemas[name] = table_frame(spark, pipeline, table).schema
            spark.createDataFrame([], schemas[name]).createOrReplaceTempView(name)
    return {name: schema for name, schema in schemas.items() if name not in streamed}


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
        """Return the complete tables that read one of ``changed``, directly or through others."""
        return {
            name
            for name in self._sinks.recomputed
            if set(changed) & upstream(name, self._pipeline.tables)
        }

    def make(self, names: Collection[str]) -> None:
        """Rebuild these tables."""
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
