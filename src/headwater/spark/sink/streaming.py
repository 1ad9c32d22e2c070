"""``df.writeStream.format("headwater")``: writes exactly once with stages, or directly at least once.

Spark calls `write` in tasks, and `commit` and `abort` in a Python process of the driver, with a new writer
each time. Only tasks know the query's id (a local property of the job), so their messages carry the id to the
driver. A batch without partitions also has a task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from headwater.errors import DeclarationError, HeadwaterError
from headwater.spark.sink.columns import LOSS, check_schema, loses_fields
from headwater.spark.sink.options import SinkOptions, parse_options
from headwater.spark.sink.publishing import abort_all, publish_all
from headwater.spark.sink.staging import TaskReport, staged_by, write_directly, write_staged

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_QUERY: Final = "sql.streaming.queryId"
"""The local property with the query's id, which is also in the checkpoint's metadata."""

_BATCH: Final = "streaming.sql.batchId"
"""The local property with the number of the batch."""


class StreamWriter(DataSourceStreamArrowWriter):
    """Adds each row exactly once or, with ``delivery=atLeastOnce``, at least once and without a stage."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    @classmethod
    def of(cls, given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> StreamWriter:
        """Return the writer for Spark's options. Raises `DeclarationError` for wrong options and columns."""
        options = parse_options(given, streaming=True)
        if overwrite:
            raise DeclarationError(
                'outputMode("complete") would write the whole result again with every batch, but a '
                'stream keeps all entries: use outputMode("append"), or foreachBatch'
            )
        check_schema(schema, options.codec, options.stream_column)
        return cls(options, schema)

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task, in an executor."""
        if loses_fields(self._schema) and not self._options.write_source_columns and _is_first():
            raise DeclarationError(LOSS)
        if self._options.delivery == "atLeastOnce":
            return write_directly(self._options, self._schema, iterator)
        return write_staged(self._options, self._schema, _query_of_task(), iterator)

    def commit(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - Spark's name
    ) -> None:
        """Publish the batch. Spark calls this in the driver, and after a crash again with the same id."""
        query = _query_of(messages)
        if query:
            publish_all(self._options, query, batchId, staged_by(messages))

    def abort(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: ARG002, N803 - Spark's name
    ) -> None:
        """Remove the stages. Spark calls this in the driver if a task or `commit` failed.

        Stages that `commit` recorded before it failed are kept.
        """
        query = _query_of(messages)
        if query:
            abort_all(self._options, query, staged_by(messages))


def _query_of_task() -> str:
    context = TaskContext.get()
    query = context.getLocalProperty(_QUERY) if context is not None else None
    if not query:
        raise HeadwaterError(
            f"Spark did not pass the query's id to this task ({_QUERY}), so it cannot write exactly "
            "once; set delivery=atLeastOnce"
        )
    return query


def _is_first() -> bool:
    """Return whether this task writes the first batch of its query. A later batch may continue what the first began."""
    context = TaskContext.get()
    return context is not None and context.getLocalProperty(_BATCH) == "0"


def _query_of(messages: list[WriterCommitMessage | None]) -> str:
    """Return the query for which the tasks worked; empty if nothing was staged."""
    queries = {message.query for message in messages if isinstance(message, TaskReport)} - {""}
    assert len(queries) <= 1, queries
    return queries.pop() if queries else ""
