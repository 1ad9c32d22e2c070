"""A pipeline's names as Spark's views, and each table's SQL on them.

Rule 1. A table reads the rows that the tables below it keep: rows that an expectation drops or quarantines
        are not in any view.
Rule 2. Mistakes in SQL are found when the views are made, before any query starts: a missing column, a wrong
        type, a subquery that Spark does not support on a stream.
Rule 3. A watermark belongs to one table and applies only to the streams that this table reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from headwater.errors import PipelineError
from headwater.spark.embedded import reachable_options
from headwater.spark.pipeline.archiving import archived_options
from headwater.spark.pipeline.declaration.model import ZONE, Input, Pipeline, Source, Table
from headwater.spark.pipeline.errors import explained
from headwater.spark.pipeline.expectations import FLAGS, holds, passed
from headwater.spark.pipeline.sinks.layout import nullable_schema, wrong_column
from headwater.spark.sessions import with_parallelism

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def new_session(spark: SparkSession, pipeline: Pipeline) -> SparkSession:
    """Return a new session, with its own views and session settings."""
    made = spark.newSession()
    settings = {
        ZONE: pipeline.zone,
        # A driver that is killed while it writes its first offset leaves a partial file, which would make
        # Spark refuse every later start. The sinks of tables do this check themselves.
        "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
    }
    for name, value in (settings | pipeline.conf).items():
        if made.conf.isModifiable(name):
            explained(pipeline, f"spark.conf.{name}", lambda: made.conf.set(name, value))  # noqa: B023 - called now
    return made


def register_inputs(
    spark: SparkSession, pipeline: Pipeline, only: Iterable[str] | None = None
) -> None:
    """Create a view for each input, or only for those in ``only``."""
    for name in pipeline.inputs if only is None else only:
        source = pipeline.inputs[name]

        def read(source: Input = source) -> DataFrame:
            reader = spark.read.format(source.format).options(**source.options)
            if source.schema is not None:
                reader = reader.schema(source.schema)
            return reader.load(str(source.path)) if source.path else reader.load()

        explained(pipeline, f"input.{name}", read).createOrReplaceTempView(name)


def table_frames(
    spark: SparkSession,
    pipeline: Pipeline,
    tables: Iterable[str],
    follows: Callable[[str], bool] = lambda _name: False,
    *,
    once: Mapping[str, dict[str, str]] | None = None,
) -> dict[str, DataFrame]:
    """Return the frames of ``tables``, which are of mode append or update.

    ``tables`` must be in dependency order. Sources are read as streams or, if ``once`` is given, in one batch
    with the options in ``once`` by the source's name. If ``follows`` is true for a table, its query reads the
    logs of tables that have one; otherwise the query includes their SQL. Each frame also has the rows that
    violate an expectation, which `write_checked` handles.
    """

    def read(source: Source) -> DataFrame:
        if once is not None:
            source = source._replace(options=once[source.name])
        reader = (spark.readStream if once is None else spark.read).format("headwater")
        reader = reader.options(**_options(spark, pipeline, source))
        return (reader if source.schema is None else reader.schema(source.schema)).load()

    names = list(tables)
    reads = {one for name in names for one in pipeline.tables[name].reads}
    register_inputs(spark, pipeline, [name for name in pipeline.inputs if name in reads])
    views: dict[str, DataFrame] = {}
    for name, source in pipeline.sources.items():
        if name in reads:
            views[name] = explained(pipeline, f"source.{name}", lambda: read(source))  # noqa: B023 - called now
    frames: dict[str, DataFrame] = {}
    logs: dict[str, DataFrame] = {}
    included: dict[tuple[str, bool], DataFrame] = {}
    ways = {name: follows(name) for name in names}
    for name in names:
        table = pipeline.tables[name]
        for way in set(ways.values()):
            below = {
                one: logs[one] if way and one in logs else included[one, way]
                for one in table.reads
                if one in pipeline.tables
            }
            frame = _frame_over(spark, pipeline, table, views | below)
            included[name, way] = passed(frame, table.expectations)
            if way == ways[name]:
                frames[name] = frame
        if table.has_log and any(ways.values()):
            logs[name] = _log_frame(spark, table, included[name, True].schema)
    return frames


def _frame_over(
    spark: SparkSession, pipeline: Pipeline, table: Table, below: dict[str, DataFrame]
) -> DataFrame:
    """Return the frame of a table's SQL over ``below``, with the table's watermarks."""
    late = _with_watermarks(pipeline, table, below)
    for view in table.reads:
        if view in below:
            late.get(view, below[view]).createOrReplaceTempView(view)
    return table_frame(spark, pipeline, table)


def _log_frame(spark: SparkSession, table: Table, schema: StructType) -> DataFrame:
    """Return a stream of the rows of ``table``, read from the log of its commits."""
    from pyspark.sql.types import StructType

    from headwater.spark.pipeline.table_log.source import NAME, TableLogSource

    spark.dataSource.register(TableLogSource)
    return (
        spark.readStream.format(NAME)
        .options(**_log_options(table))
        .option("tasks", spark.sparkContext.defaultParallelism)
        .schema(StructType.fromJson(nullable_schema(schema)))
        .load()
    )


def _log_options(table: Table) -> dict[str, str]:
    return {"table": str(table.path), "kind": table.target.sink}


def table_frame(spark: SparkSession, pipeline: Pipeline, table: Table) -> DataFrame:
    """Return the frame of a table's SQL, after checking its columns and expectations."""
    place = f"table.{table.name}"
    frame = explained(pipeline, f"{place}.sql", lambda: spark.sql(table.sql))
    for key, columns in (("partition_by", table.partition_by), ("key", table.target.key)):
        for column in columns:
            if column not in frame.columns:
                raise PipelineError(
                    f"{pipeline.file}: {place}.{key}: the table has no column {column!r}, only "
                    f"{', '.join(frame.columns)}"
                )
    target = table.target
    wrong = wrong_column(
        frame.schema, sink=target.sink, key=target.key, partition_by=table.partition_by
    )
    if wrong is not None:
        raise PipelineError(f"{pipeline.file}: {place}.{wrong[0]}: {wrong[1]}")
    if table.expectations and FLAGS in frame.columns:
        raise PipelineError(
            f"{pipeline.file}: {place}.sql: the column {FLAGS} is reserved for the quarantine; rename "
            "it"
        )
    for expectation in table.expectations:
        explained(
            pipeline,
            f"{place}.expect.{expectation.name}.predicate",
            lambda: frame.where(holds(expectation)),  # noqa: B023 - called now
        )
    return frame


def check_streaming(pipeline: Pipeline, frames: Mapping[str, DataFrame]) -> None:
    """Raise the errors that Spark raises when a query starts, so that no query starts unless all can start."""
    for name, frame in frames.items():
        jvm: Any = frame.sparkSession._jvm  # noqa: SLF001 - PySpark has no public access to it
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
    """Return the views to which the table's watermarks apply, with these watermarks."""
    late: dict[str, DataFrame] = {}
    for mark in table.watermarks:
        key = f"table.{table.name}.watermark"
        streaming = [name for name in table.reads if name in views]
        if mark.of is not None and mark.of not in streaming:
            raise PipelineError(
                f"{pipeline.file}: {key}.of: the table does not read a stream {mark.of!r}; it reads "
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
    """Return the names of the sources and tables that a streaming frame reads, in the order of its offsets' lines."""
    spark = frame.sparkSession
    wanted = {
        name: {key.lower(): text for key, text in _options(spark, pipeline, source).items()}
        for name, source in pipeline.sources.items()
    } | {name: _log_options(table) for name, table in pipeline.tables.items() if table.has_log}
    found: list[str] = []
    leaves = analysed(frame).collectLeaves()
    for place in range(leaves.size()):
        leaf = leaves.apply(place)
        if not leaf.isStreaming():
            continue
        given = {str(key).lower(): str(text) for key, text in dict(leaf.extraOptions()).items()}
        given.pop("tasks", None)
        found += [name for name, options in wanted.items() if options == given][:1]
    return found


def _options(spark: SparkSession, pipeline: Pipeline, source: Source) -> dict[str, str]:
    """Return the options for Spark's source, with the archive and a url that reaches the store."""
    options = with_parallelism(archived_options(pipeline.archive, source), spark)
    return reachable_options(options, spark)


def analysed(frame: DataFrame) -> Any:
    """Return the JVM's analysed plan of ``frame``."""
    return frame._jdf.queryExecution().analyzed()  # noqa: SLF001 - PySpark has no public access to it
