"""``headwater pipeline plan``: describes a run. Spark analyses the SQL, without reading data or writing anything."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from headwater.client.redaction import redacted
from headwater.errors import DeclarationError, HeadwaterError
from headwater.spark.core.options import SourceOptions, parse_options
from headwater.spark.pipeline.checkpoints import Checkpoint
from headwater.spark.pipeline.declaration.model import Pipeline, Source, Table
from headwater.spark.pipeline.errors import explaining, reason
from headwater.spark.pipeline.lag import Lag, lags_below, opened
from headwater.spark.pipeline.preflight import check_source
from headwater.spark.pipeline.recompute import analyse_sql
from headwater.spark.pipeline.spark_session import start_spark
from headwater.spark.pipeline.table_sinks import TableSinks

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class PlannedSource(NamedTuple):
    """A source: its url without credentials, and its existing streams. ``problem`` explains why the source
    cannot be read, for example because a stream is missing; None if it can be."""

    name: str
    url: str
    what: str
    reads: str
    streams: list[str]
    problem: str | None


class PlannedTable(NamedTuple):
    """A table, its columns (None if Spark did not analyse the SQL) and its current lags.

    Its query reads the logs of the tables in ``follows``. For the tables in ``through`` it reads their sources
    instead, because its checkpoint is from a version that did not read logs. ``checkpoint`` is None for a
    complete table, ``batch`` also before the first committed batch.
    """

    table: Table
    columns: list[tuple[str, str]] | None
    sources: list[str]
    follows: list[str]
    through: list[str]
    checkpoint: str | None
    batch: int | None
    lags: list[Lag]


class Plan(NamedTuple):
    """A description of a run. ``tables`` are in the order in which they are made; ``master`` is None without Spark."""

    pipeline: Pipeline
    master: str | None
    sources: list[PlannedSource]
    tables: list[PlannedTable]


def plan(pipeline: Pipeline, *, master: str | None = None, analyse: bool = True) -> Plan:
    """Analyse all SQL of ``pipeline`` and read its servers' counters.

    If ``analyse`` is false, Spark is not started and the plan has no columns. The plan reports unreachable
    servers. Raises `PipelineError` for SQL that Spark refuses, and if a table's place contains something else.
    """
    sinks = TableSinks(pipeline)
    sinks.check()
    checkpoints = {name: kept.checkpoint for name, kept in sinks.streamed.items()}
    sources = [_source(pipeline, source, checkpoints) for source in pipeline.sources.values()]
    with explaining(pipeline, "plan"):
        spark = start_spark(pipeline, master=master) if analyse else None
        analysed = analyse_sql(spark, pipeline, sinks) if spark else None
    tables: list[PlannedTable] = []
    for name, table in pipeline.tables.items():
        kept = sinks.streamed.get(name)
        tables.append(
            PlannedTable(
                table=table,
                columns=None if analysed is None else _columns(analysed.schemas[name]),
                sources=[] if kept is None else sinks.sources(name),
                follows=[] if kept is None else sinks.followed(name),
                through=[] if kept is None or sinks.follows(name) else sinks.logged_above(name),
                checkpoint=None if kept is None else str(kept.checkpoint.path),
                batch=None if kept is None else kept.checkpoint.last_batch(),
                lags=[] if kept is None else _unread(pipeline, sinks, name),
            )
        )
    return Plan(pipeline, str(spark.sparkContext.master) if spark else None, sources, tables)


def _columns(schema: StructType) -> list[tuple[str, str]]:
    return [(one.name, one.dataType.simpleString()) for one in schema.fields]


def _unread(pipeline: Pipeline, sinks: TableSinks, table: str) -> list[Lag]:
    """Return the lags of a table on sources whose server answers. `PlannedSource` has the problems of the
    others."""
    found: list[Lag] = []
    for name, committed in sinks.positions(table).items():
        with suppress(HeadwaterError):
            found += lags_below(pipeline, name, committed)
    return found


def _source(
    pipeline: Pipeline, source: Source, checkpoints: Mapping[str, Checkpoint]
) -> PlannedSource:
    options = parse_options(source.options)
    streams: list[str] = []
    problem = None
    try:
        with opened(source) as store:
            streams = [one for one in store.streams() if store.state(one) is not None]
            check_source(store, pipeline, source, checkpoints)
    except DeclarationError as error:
        raise reason(pipeline, f"source.{source.name}", error) from None
    except HeadwaterError as error:
        problem = pipeline.shown(str(error))
    return PlannedSource(
        name=source.name,
        url=redacted(options.url),
        what=options.asked,
        reads=_how(options),
        streams=streams,
        problem=problem,
    )


def _how(options: SourceOptions) -> str:
    if options.group is not None:
        return f"group {options.group.name}, consumer {options.group.consumer}"
    if isinstance(options.starting, Mapping):
        return "log, from " + ", ".join(f"{s} {at}" for s, at in options.starting.items())
    return f"log, from {options.starting}"
