"""Runs a pipeline: a streaming query for each table of mode append or update, then a batch for each
complete table.

Rule 1. A streamed table is one query. It reads sources, and the rows of append tables from the logs of their
        commits (table_log/), so it also gets rows from before its declaration, and those of backfills. The SQL
        of a table without a log is included as a view.
Rule 2. A table of mode complete is made from the rows that the sinks report as written.
Rule 3. All SQL is analysed, and all streams are looked up, before any query starts.
Rule 4. However a run ends, even by a crash or Ctrl-C, the next run continues from the checkpoints.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, NamedTuple

from headwater.errors import HeadwaterError, PipelineError
from headwater.spark.core.causes import root_cause
from headwater.spark.core.options import parse_options
from headwater.spark.pipeline.declaration.model import Pipeline
from headwater.spark.pipeline.errors import explained, explaining, reason
from headwater.spark.pipeline.expectations import WriteOutcome
from headwater.spark.pipeline.lag import lags_below
from headwater.spark.pipeline.preflight import check_sources
from headwater.spark.pipeline.progress import Progress, lag_text, line_of
from headwater.spark.pipeline.recompute import Recomputer, analyse_sql
from headwater.spark.pipeline.sinks import BatchId
from headwater.spark.pipeline.spark_session import start_spark
from headwater.spark.pipeline.table_sinks import TableSinks
from headwater.spark.pipeline.views import sources_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Report = Callable[[str], None]

_POLL_SECONDS: Final = 0.1

_MOST_TEXT: Final = 300
"""Maximum number of characters of an error that is passed to Spark."""

_LAG_SECONDS: Final = 1.0
"""Time between two updates of the lag of a table without new batches, in seconds."""

_STARTING_SECONDS: Final = 30.0
"""Maximum time for which starting queries delay another query, in seconds. A longer start has other causes."""

_ARCHIVE_SECONDS: Final = 60.0
"""Time between archivings in a run with an interval, in seconds: a file per minute and stream, not per batch."""


class Made(NamedTuple):
    """Result of a run for one table."""

    table: str
    """The name of the table."""
    rows: int
    """Rows that were added; in mode complete, the rows of the table."""
    batches: int
    """The number of batches that had rows; in mode complete, of rebuilds."""
    seconds: float
    """Seconds spent writing."""


class _Batch(NamedTuple):
    table: str
    number: int
    outcome: WriteOutcome
    seconds: float


def run(
    pipeline: Pipeline,
    *,
    once: bool = False,
    master: str | None = None,
    report: Report = print,
    stop: threading.Event | None = None,
    progress: Progress | None = None,
) -> list[Made]:
    """Run a pipeline and return the result, one `Made` for each table.

        declared = pipeline.load("orders.toml")
        for made in pipeline.run(declared, once=True):
            print(made.table, made.rows)

    - ``once``: read the current entries, make the complete tables, and end, as with the trigger available-now.
      Otherwise a pipeline with the trigger interval runs until ``stop`` is set.
    - ``master``: Spark's master instead of the declared one.
    - ``report``: called with a line for each batch with rows or violations, each rebuilt table, each archived stream.
    - ``stop``: an event that ends the run when it is set.
    - ``progress``: kept up to date during the run, so that other threads can read it.
    Raises `PipelineError` for SQL that Spark refuses and for a stream that does not exist, and the error that
    ended a query: `ExpectationFailed`, `DataLoss`, `DecodeError`, `Disconnected`.
    """
    sinks = TableSinks(pipeline)
    sinks.check()
    check_sources(pipeline, {name: kept.checkpoint for name, kept in sinks.streamed.items()})
    spark = start_spark(pipeline, master=master)
    interval = None if once else pipeline.interval
    progress = progress or Progress()
    with explaining(pipeline, "run"):
        _Run(pipeline, spark, sinks, progress, report, stop or threading.Event()).run(interval)
    return [Made(one.name, one.rows, one.batches, one.seconds) for one in progress.tables()]


def _is_starting(query: StreamingQuery) -> bool:
    """Return whether the query has neither begun its first batch nor found that it has nothing to read."""
    return query.isActive and str(query.status["message"]).startswith(("Initializing", "Getting"))


class _Run:
    def __init__(
        self,
        pipeline: Pipeline,
        spark: SparkSession,
        sinks: TableSinks,
        progress: Progress,
        report: Report,
        stop: threading.Event,
    ) -> None:
        self._pipeline = pipeline
        self._spark = spark
        self._sinks = sinks
        self._progress = progress
        self._report = report
        self._stop = stop
        self._batches: deque[_Batch] = deque()
        self._failures: dict[str, Exception] = {}
        self._looked = self._archived = time.monotonic()
        for table in pipeline.tables.values():
            progress.begin(table.name, table.mode)

    def run(self, interval: float | None) -> None:
        frames, schemas, batch = analyse_sql(self._spark, self._pipeline, self._sinks)
        self._recomputer = Recomputer(batch, self._pipeline, self._sinks, schemas, self._remade)
        with ExitStack() as locks:
            self._sinks.prepare(locks)
            for name, frame in frames.items():
                checkpoint, read = (
                    self._sinks.streamed[name].checkpoint,
                    sources_of(frame, self._pipeline),
                )
                explained(
                    self._pipeline,
                    f"table.{name}.sql",
                    lambda: checkpoint.note_sources(read),  # noqa: B023 - called now
                )
            self._settle()
            for names in self._together(interval):
                if self._stop.is_set():
                    break
                self._stream({name: frames[name] for name in names}, interval)
            self._settle()
            if interval is None and not self._stop.is_set():
                self._recomputer.make(set(self._sinks.recomputed))
                self._archive()

    # --- streaming --------------------------------------------------------------------------------

    def _together(self, interval: float | None) -> list[list[str]]:
        """Return groups of tables, in the order in which they run. The queries of a group run at the same time.

        A run without an interval starts a table's query when the queries of the tables that it follows have ended.
        """
        if interval is not None:
            return [list(self._sinks.streamed)]
        groups: list[list[str]] = []
        place: dict[str, int] = {}
        for name in self._sinks.streamed:
            place[name] = 1 + max((place[one] for one in self._sinks.followed(name)), default=-1)
            groups += [[]] if place[name] == len(groups) else []
            groups[place[name]].append(name)
        return groups

    def _stream(self, frames: dict[str, DataFrame], interval: float | None) -> None:
        queries: dict[str, StreamingQuery] = {}
        try:
            for name, frame in frames.items():
                self._await_room(list(queries.values()))
                queries[name] = self._query(name, frame, interval)
            self._follow(queries, interval)
        finally:
            for query in queries.values():
                query.stop()
            self._report_batches()

    def _await_room(self, queries: list[StreamingQuery]) -> None:
        """Limit the number of starting queries to half the cores.

        A starting query starts a Python process. Spark gives up if that process does not connect in ten seconds.
        """
        room = max(1, (os.cpu_count() or 1) // 2)
        deadline = time.monotonic() + _STARTING_SECONDS
        while sum(_is_starting(query) for query in queries) >= room:
            if self._stop.is_set() or time.monotonic() > deadline:
                return
            self._stop.wait(_POLL_SECONDS / 5)

    def _query(self, name: str, frame: DataFrame, interval: float | None) -> StreamingQuery:
        kept = self._sinks.streamed[name]

        def add(batch: DataFrame, number: int) -> None:
            began = time.monotonic()
            try:
                kept.checkpoint.note_beginning()
                kept.checkpoint.sync_batch(number)
                outcome = kept.write(batch, BatchId(number))
            except Exception as error:
                self._failures[name] = error  # the JVM would turn it into text
                # When a query is stopped, Spark matches this text with a pattern that uses several stack
                # frames per character. A long text would end the query's thread with a
                # StackOverflowError, in a thousand lines on the terminal. The error is stored above.
                cause = self._pipeline.shown(root_cause(error))[:_MOST_TEXT]
                raise PipelineError(f"table {name}: {cause}") from None
            self._batches.append(_Batch(name, number, outcome, time.monotonic() - began))

        writer = (
            frame.writeStream.queryName(name)
            .foreachBatch(add)
            .outputMode(kept.table.mode)
            .option("checkpointLocation", str(kept.checkpoint.path))
        )
        if interval is None:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{interval * 1000:.0f} milliseconds")
        return explained(self._pipeline, f"table.{name}", writer.start)

    def _follow(self, queries: dict[str, StreamingQuery], interval: float | None) -> None:
        """Wait for the queries to end; with an interval, keep the complete tables up to date."""
        if interval is not None:
            self._recomputer.make(set(self._sinks.recomputed))
        while not self._stop.is_set():
            alive = [query for query in queries.values() if query.isActive]
            changed = self._report_batches()
            for name, query in queries.items():
                error = query.exception()
                if error is not None:
                    cause = self._failures.get(name, error)
                    if root_cause(cause).startswith("InterruptedException"):
                        cause = error  # this error ended the query, which interrupted the batch
                    raise reason(self._pipeline, f"table {name}", cause) from cause
            if interval is None and not alive:
                return
            if interval is not None and changed:
                self._recomputer.make(self._recomputer.after(changed))
            if interval is not None and time.monotonic() - self._archived >= _ARCHIVE_SECONDS:
                self._archive()
            self._stop.wait(_POLL_SECONDS)

    def _report_batches(self) -> set[str]:
        """Report the newly written batches; return the tables to which they added rows."""
        changed: set[str] = set()
        news: dict[str, list[str]] = {}
        while self._batches:
            name, number, outcome, seconds = self._batches.popleft()
            self._progress.add(name, outcome, seconds, batch=number)
            if outcome.rows or outcome.violations:
                news.setdefault(name, []).append(line_of(name, number, outcome, seconds))
            if outcome.rows > 0:
                changed.add(name)
        now = time.monotonic()
        everyone = now - self._looked >= _LAG_SECONDS
        if everyone:
            self._looked = now
        for name in self._sinks.streamed if everyone else news:
            self._look(name)
        for name, lines in news.items():
            behind = lag_text(self._progress[name])
            lines[-1] += f"; {behind}" if behind else ""
            for line in lines:
                self._report(line)
        return changed

    def _look(self, name: str) -> None:
        """Update the lags of a table. Keeps them if a server is unreachable, which the query reports."""
        checkpoint, number = self._sinks.streamed[name].checkpoint, self._progress[name].batch
        # Spark stores a batch's offsets before the batch is written, and its commit only afterwards.
        read = checkpoint.committed() if number is None else checkpoint.by_source(number)
        lags = []
        try:
            for source, offset in read.items():
                lags += lags_below(self._pipeline, source, offset)
        except HeadwaterError:
            return
        self._progress.note_lags(name, lags)

    # --- after the streams ------------------------------------------------------------------------

    def _remade(self, name: str, outcome: WriteOutcome, seconds: float) -> None:
        self._progress.add(name, outcome, seconds)
        self._report(line_of(name, None, outcome, seconds))

    def _settle(self) -> None:
        """Settle the last committed batches of all queries.

        Spark tells a source that a batch has been committed only when the next batch begins.
        """
        for name, kept in self._sinks.streamed.items():
            for place, source in enumerate(kept.checkpoint.sources()):
                if source not in self._pipeline.sources:
                    continue  # a table
                options = parse_options(self._pipeline.sources[source].options)
                if options.group is not None:
                    from headwater.spark.group_mode.settling import settle_committed

                    explained(
                        self._pipeline,
                        f"table {name}",
                        lambda: settle_committed(options, kept.checkpoint.path, source=place),  # noqa: B023 - called now
                    )

    def _archive(self) -> None:
        """Archive the sources' entries and trim the streams, if the pipeline has an archive."""
        if self._pipeline.archive is not None:
            from headwater.spark.pipeline.archiving import run_archive

            run_archive(self._spark, self._pipeline.archive, self._report)
            self._archived = time.monotonic()
