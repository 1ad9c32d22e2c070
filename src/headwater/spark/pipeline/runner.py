"""Runs a pipeline: a streaming query for each append table, then a batch for each complete one.

Rule 1. A table of mode append is one query from the sources, with the SQL of the append tables it
        reads put in as views: it rests on no other table's files, so each is exactly once alone.
Rule 2. A table of mode complete is made from what the manifests say is there.
Rule 3. Whatever ends a run, a crash or Ctrl-C, the next goes on from the checkpoints.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headwater import errors
from headwater.errors import HeadwaterError, PipelineError
from headwater.spark.pipeline.declaration import Pipeline, Table
from headwater.spark.pipeline.graph import upstream
from headwater.spark.pipeline.sinks import BatchId
from headwater.spark.pipeline.sinks.parquet import AppendTable, CompleteTable
from headwater.spark.sessions import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

Report = Callable[[str], None]

_POLL_SECONDS: Final = 0.1


class Made(NamedTuple):
    """What a run did to one table; ``rows`` were added (append) or are in it now (complete)."""

    table: str
    rows: int
    batches: int
    seconds: float


def run(
    pipeline: Pipeline,
    *,
    once: bool = False,
    master: str | None = None,
    report: Report = print,
    stop: threading.Event | None = None,
) -> list[Made]:
    """Run ``pipeline``; what it did, table by table.

    With the trigger available-now, or ``once``: everything the streams hold at this moment, then
    the complete tables. With an interval: until ``stop`` is set. ``report`` gets a line a batch.

    Raises `PipelineError` naming the table whose SQL Spark refuses, and what stopped a query:
    `DataLoss`, `DecodeError`, `Disconnected`.
    """
    spark = session(app=pipeline.app, master=master or pipeline.master, config=pipeline.conf)
    # What stops a query is raised here, in one sentence; the JVM would print it in a hundred lines.
    spark.sparkContext.setLogLevel(pipeline.conf.get("spark.log.level", "FATAL"))
    interval = None if once else pipeline.interval
    return _Run(pipeline, spark, report, stop or threading.Event()).run(interval)


class _Run:
    def __init__(
        self, pipeline: Pipeline, spark: SparkSession, report: Report, stop: threading.Event
    ) -> None:
        self._pipeline = pipeline
        # Streams and finished tables go by the same names: each kind has its own session.
        self._streaming = _new_session(spark, pipeline)
        self._batch = _new_session(spark, pipeline)
        self._report = report
        self._stop = stop
        self._appends: dict[str, AppendTable] = {}
        self._completes: dict[str, CompleteTable] = {}
        self._schemas: dict[str, StructType] = {}
        self._made: dict[str, Made] = {}
        self._changed: set[str] = set()
        self._failures: dict[str, Exception] = {}
        for table in pipeline.tables.values():
            if table.mode == "append":
                self._appends[table.name] = AppendTable(table.path, table.partition_by)
            else:
                self._completes[table.name] = CompleteTable(table.path, table.partition_by)
            self._made[table.name] = Made(table.name, 0, 0, 0.0)

    def run(self, interval: float | None) -> list[Made]:
        for kept in self._appends.values():
            kept.prepare()
        for made in self._completes.values():
            made.prepare()
        queries = self._start(interval)
        try:
            self._follow(queries, interval)
        finally:
            for query in queries.values():
                query.stop()
        if interval is None and not self._stop.is_set():
            self._recompute(set(self._completes))
        return list(self._made.values())

    # --- streaming --------------------------------------------------------------------------------

    def _start(self, interval: float | None) -> dict[str, StreamingQuery]:
        spark = self._streaming
        self._register_inputs(spark)
        for source in self._pipeline.sources.values():
            reader = spark.readStream.format("headwater").options(**source.options)
            if source.schema is not None:
                reader = reader.schema(source.schema)
            _explain(self._pipeline, f"source.{source.name}", reader.load).createOrReplaceTempView(
                source.name
            )
        frames: dict[str, DataFrame] = {}
        for name in self._appends:
            frames[name] = self._sql(spark, self._pipeline.tables[name])
            frames[name].createOrReplaceTempView(name)
            self._schemas[name] = frames[name].schema
        return {name: self._query(name, frame, interval) for name, frame in frames.items()}

    def _query(self, name: str, frame: DataFrame, interval: float | None) -> StreamingQuery:
        table = self._appends[name]

        def add(batch: DataFrame, number: int) -> None:
            began = time.monotonic()
            try:
                rows = table.write(batch, BatchId(number))
            except Exception as error:
                self._failures[name] = error  # on its way through the JVM it becomes a text
                raise
            seconds = time.monotonic() - began
            if rows > 0:
                self._note(name, rows, seconds)
                pace = f"{rows / seconds:,.0f} rows/s" if seconds else "at once"
                self._report(f"{name}: batch {number}, {rows:,} rows in {seconds:.1f} s ({pace})")
            elif rows < 0:
                self._report(f"{name}: batch {number} was there already, from the run before")

        writer = (
            frame.writeStream.queryName(name)
            .foreachBatch(add)
            .option("checkpointLocation", str(table.checkpoint))
        )
        if interval is None:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{interval * 1000:.0f} milliseconds")
        query: StreamingQuery = _explain(self._pipeline, f"table.{name}", writer.start)
        return query

    def _note(self, name: str, rows: int, seconds: float) -> None:
        before = self._made[name]
        self._made[name] = Made(
            name, before.rows + rows, before.batches + 1, before.seconds + seconds
        )
        self._changed.add(name)

    def _follow(self, queries: dict[str, StreamingQuery], interval: float | None) -> None:
        """Wait for the queries to end; with an interval, keep the complete tables up to date."""
        if interval is not None:
            self._recompute(set(self._completes))
        while not self._stop.is_set():
            for name, query in queries.items():
                error = query.exception()
                if error is not None:
                    cause = self._failures.get(name, error)
                    raise _reason(self._pipeline, f"table {name}", cause) from cause
            if interval is None and not any(query.isActive for query in queries.values()):
                return
            if interval is not None and self._changed:
                changed, self._changed = self._changed, set()
                self._recompute(
                    {
                        name
                        for name in self._completes
                        if changed & upstream(name, self._pipeline.tables)
                    }
                )
            self._stop.wait(_POLL_SECONDS)

    # --- batch ------------------------------------------------------------------------------------

    def _recompute(self, names: set[str]) -> None:
        """Make these complete tables anew, each after those that it reads."""
        if not names:
            return
        spark = self._batch
        self._register_inputs(spark)
        for name, kept in self._appends.items():
            kept.finished(spark, self._schemas[name]).createOrReplaceTempView(name)
        for table in self._pipeline.tables.values():
            if table.name not in self._completes:
                continue
            target = self._completes[table.name]
            if table.name in names:
                began = time.monotonic()
                frame = self._sql(spark, table)
                rows = _explain(self._pipeline, f"table.{table.name}", lambda: target.write(frame))  # noqa: B023 - called now
                seconds = time.monotonic() - began
                self._report(f"{table.name}: {rows:,} rows in {seconds:.1f} s")
                before = self._made[table.name]
                self._made[table.name] = Made(
                    table.name, rows, before.batches + 1, before.seconds + seconds
                )
            target.finished(spark).createOrReplaceTempView(table.name)

    # --- both -------------------------------------------------------------------------------------

    def _register_inputs(self, spark: SparkSession) -> None:
        for source in self._pipeline.inputs.values():
            reader = spark.read.format(source.format).options(**source.options)
            if source.schema is not None:
                reader = reader.schema(source.schema)
            frame = _explain(
                self._pipeline,
                f"input.{source.name}",
                lambda: reader.load(str(source.path)),  # noqa: B023 - called now
            )
            frame.createOrReplaceTempView(source.name)

    def _sql(self, spark: SparkSession, table: Table) -> DataFrame:
        frame: DataFrame = _explain(
            self._pipeline, f"table.{table.name}.sql", lambda: spark.sql(table.sql)
        )
        for column in table.partition_by:
            if column not in frame.columns:
                raise PipelineError(
                    f"{self._pipeline.file}: table.{table.name}.partition_by: {column!r} is no "
                    f"column of the table, which has {', '.join(frame.columns)}"
                )
        return frame


def _new_session(spark: SparkSession, pipeline: Pipeline) -> SparkSession:
    """A session of its own: names of views, and what of the configuration is a session's."""
    made = spark.newSession()
    for name, value in ({"spark.sql.session.timeZone": "UTC"} | pipeline.conf).items():
        if made.conf.isModifiable(name):
            made.conf.set(name, value)
    return made


def _explain(pipeline: Pipeline, key: str, do: Callable[[], Any]) -> Any:
    """``do()``; what Spark says against it becomes an error that names the key."""
    from pyspark.errors import PySparkException

    try:
        return do()
    except PySparkException as error:
        raise _reason(pipeline, key, error) from error


def _reason(pipeline: Pipeline, place: str, error: Exception) -> HeadwaterError:
    """What went wrong, in a sentence: Headwater's own error out of the traceback that Spark wraps
    it in, else the first line of what Spark or the system says."""
    from pyspark.errors import PySparkException

    text = str(error)
    own = re.findall(r"headwater\.errors\.(\w+): (.+)", text)
    if own:
        kind, sentence = own[-1]
        wrapped: type[HeadwaterError] = getattr(errors, kind, PipelineError)
        return wrapped(f"{pipeline.file}: {place}: {sentence}")
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    if not isinstance(error, PySparkException):
        first = f"{type(error).__name__}: {first}"
    return PipelineError(f"{pipeline.file}: {place}: {first}")
