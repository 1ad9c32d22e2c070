"""A pipeline's names as Spark's views, and each table's SQL over them.

Rule 1. A table reads what the table before it keeps: rows that an expectation drops or holds back
        are in no view.
Rule 2. What is wrong with SQL is known when the views are made, before any query has started: a
        missing column, a wrong type, a subquery that no stream can have.
Rule 3. A watermark is of one table: it is put on what that table reads, and on nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from headwater.errors import PipelineError
from headwater.spark.embedded import reachable_options
from headwater.spark.pipeline.archiving import archived_options
from headwater.spark.pipeline.declaration.model import Input, Pipeline, Source, Table
from headwater.spark.pipeline.errors import explained
from headwater.spark.pipeline.expectations import FLAGS, holds, passed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Read = Callable[[Source], "DataFrame"]


def new_session(spark: SparkSession, pipeline: Pipeline) -> SparkSession:
    """A session of its own: names of views, and what of the configuration is a session's."""
    made = spark.newSession()
    settings = {
        "spark.sql.session.timeZone": "UTC",
        # A driver that is killed while it writes its first offset leaves half a file, at which Spark
        # would refuse every later start. What this check is for, a table's sink checks itself.
        "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
    }
    for name, value in (settings | pipeline.conf).items():
        if made.conf.isModifiable(name):
            made.conf.set(name, value)
    return made


def streamed(spark: SparkSession, pipeline: Pipeline) -> Read:
    """How a source is followed."""

    def read(source: Source) -> DataFrame:
        options = _options(spark, pipeline, source)
        reader = spark.readStream.format("headwater").options(**options)
        if source.schema is not None:
            reader = reader.schema(source.schema)
        return reader.load()

    return read


def batched(spark: SparkSession, pipeline: Pipeline, changed: Mapping[str, dict[str, str]]) -> Read:
    """How a source is read once; ``changed`` says by its name with which options."""

    def read(source: Source) -> DataFrame:
        options = _options(spark, pipeline, source._replace(options=changed[source.name]))
        reader = spark.read.format("headwater").options(**options)
        if source.schema is not None:
            reader = reader.schema(source.schema)
        return reader.load()

    return read


def register_inputs(
    spark: SparkSession, pipeline: Pipeline, only: Iterable[str] | None = None
) -> None:
    """A view of each static table."""
    for name in pipeline.inputs if only is None else only:
        source = pipeline.inputs[name]

        def read(source: Input = source) -> DataFrame:
            reader = spark.read.format(source.format).options(**source.options)
            if source.schema is not None:
                reader = reader.schema(source.schema)
            return reader.load(str(source.path)) if source.path else reader.load()

        explained(pipeline, f"input.{name}", read).createOrReplaceTempView(name)


def table_frames(
    spark: SparkSession, pipeline: Pipeline, read: Read, tables: Iterable[str]
) -> dict[str, DataFrame]:
    """The frames of ``tables``, which are of mode append or update and stand after those that they
    read; their sources are read by ``read``. Each frame has all rows, those that break an
    expectation too: `write_checked` sees to them.
    """
    names = list(tables)
    reads = {one for name in names for one in pipeline.tables[name].reads}
    register_inputs(spark, pipeline, [name for name in pipeline.inputs if name in reads])
    views: dict[str, DataFrame] = {}
    for name, source in pipeline.sources.items():
        if name in reads:
            views[name] = explained(pipeline, f"source.{name}", lambda: read(source))  # noqa: B023 - called now
            views[name].createOrReplaceTempView(name)
    frames: dict[str, DataFrame] = {}
    for name in names:
        table = pipeline.tables[name]
        late = _with_watermarks(pipeline, table, views)
        for view, frame in late.items():
            frame.createOrReplaceTempView(view)
        frames[name] = table_frame(spark, pipeline, table)
        for view in late:
            views[view].createOrReplaceTempView(view)
        views[name] = passed(frames[name], table.expectations)
        views[name].createOrReplaceTempView(name)
    return frames


def table_frame(spark: SparkSession, pipeline: Pipeline, table: Table) -> DataFrame:
    """What a table's SQL says, with its columns and expectations checked."""
    place = f"table.{table.name}"
    frame = explained(pipeline, f"{place}.sql", lambda: spark.sql(table.sql))
    for key, columns in (("partition_by", table.partition_by), ("key", table.target.key)):
        for column in columns:
            if column not in frame.columns:
                raise PipelineError(
                    f"{pipeline.file}: {place}.{key}: {column!r} is no column of the table, which has "
                    f"{', '.join(frame.columns)}"
                )
    if table.expectations and FLAGS in frame.columns:
        raise PipelineError(
            f"{pipeline.file}: {place}.sql: the column {FLAGS} is the quarantine's own; name it "
            "otherwise"
        )
    for expectation in table.expectations:
        explained(
            pipeline,
            f"{place}.expect.{expectation.name}.predicate",
            lambda: frame.where(holds(expectation)),  # noqa: B023 - called now
        )
    return frame


def check_streaming(pipeline: Pipeline, frames: Mapping[str, DataFrame]) -> None:
    """Refuse what Spark refuses when a query starts: no query starts before all of them could."""
    for name, frame in frames.items():
        jvm: Any = frame.sparkSession._jvm  # noqa: SLF001 - PySpark has no other door to it
        mode = getattr(
            jvm.org.apache.spark.sql.streaming.OutputMode, pipeline.tables[name].mode.title()
        )()
        checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
        explained(
            pipeline,
            f"table.{name}",
            lambda: checker.checkForStreaming(analysed(frame), mode),  # noqa: B023 - called now
        )


def _with_watermarks(
    pipeline: Pipeline, table: Table, views: dict[str, DataFrame]
) -> dict[str, DataFrame]:
    """The views that the table's watermarks are of, with them."""
    late: dict[str, DataFrame] = {}
    for mark in table.watermarks:
        key = f"table.{table.name}.watermark"
        streaming = [name for name in table.reads if name in views]
        if mark.of is not None and mark.of not in streaming:
            raise PipelineError(
                f"{pipeline.file}: {key}.of: {mark.of!r} is no stream that the table reads; it reads "
                f"{', '.join(streaming)}"
            )
        named = [
            name
            for name in streaming
            if mark.of in (None, name) and mark.column in views[name].columns
        ]
        if not named:
            raise PipelineError(
                f"{pipeline.file}: {key}.column: nothing that the table reads has a column "
                f"{mark.column!r}"
            )
        for name in named:
            late[name] = explained(
                pipeline,
                key,
                lambda: late.get(name, views[name]).withWatermark(mark.column, mark.delay),  # noqa: B023 - called now
            )
    return late


def sources_of(frame: DataFrame, pipeline: Pipeline) -> list[str]:
    """The names of the sources that a streaming frame reads, in the order of its offsets' lines."""
    spark = frame.sparkSession
    wanted = {
        name: {key.lower(): text for key, text in _options(spark, pipeline, source).items()}
        for name, source in pipeline.sources.items()
    }
    found: list[str] = []
    leaves = analysed(frame).collectLeaves()
    for place in range(leaves.size()):
        leaf = leaves.apply(place)
        if not leaf.isStreaming():
            continue
        given = {str(key).lower(): str(text) for key, text in dict(leaf.extraOptions()).items()}
        found += [name for name, options in wanted.items() if options == given][:1]
    return found


def _options(spark: SparkSession, pipeline: Pipeline, source: Source) -> dict[str, str]:
    """What Spark's source is told: the archive in it, an embedded store by a url that reaches it."""
    return reachable_options(archived_options(pipeline.archive, source), spark)


def analysed(frame: DataFrame) -> Any:
    """The JVM's plan of ``frame``, after analysis."""
    return frame._jdf.queryExecution().analyzed()  # noqa: SLF001 - PySpark has no other door to it
