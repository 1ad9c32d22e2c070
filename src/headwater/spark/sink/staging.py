"""Writes the rows of one task, to the streams themselves or to stages, and returns the task's report.

Batch writes and streaming queries share this module.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from headwater.spark.sink.appending import StageAppender, Staged, StreamAppender
from headwater.spark.sink.entries import EncodedRow, RowEncoder
from headwater.spark.sink.options import SinkOptions
from headwater.spark.sink.wire import OwnerConnections

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_MOST_WAITING: Final = 16 * 2**20
"""Number of waiting bytes, for all streams of a task together, at which all rows are sent."""

A = TypeVar("A", StageAppender, StreamAppender)


@dataclass
class TaskReport(WriterCommitMessage):
    """The report of a finished task to the driver: the query for which it wrote, and its stage for each stream.
    Both are empty if the task wrote to the streams themselves."""

    query: str
    staged: dict[str, Staged]


class _Appenders(Generic[A]):
    """An appender for each stream to which a task writes."""

    def __init__(self, options: SinkOptions, make: Callable[[SinkOptions], A]) -> None:
        self._options = options
        self._make: Callable[[SinkOptions], A] = make
        self.by_stream: dict[str, A] = {}
        if options.stream_column is None:
            self._of(options.stream)  # so that the report has a stage even without rows

    def append_all(self, rows: Iterator[EncodedRow]) -> None:
        """Write ``rows``, and wait until the server has replied to all of them."""
        waiting = 0
        try:
            for row in rows:
                appender = self._of(row.stream or self._options.stream)
                before = appender.waiting
                appender.append(row)
                waiting += appender.waiting - before
                if waiting >= _MOST_WAITING:
                    self._flush()
                    waiting = 0
            self._flush()
        except Exception:
            for appender in self.by_stream.values():
                appender.give_up()
            raise

    def _of(self, stream: str) -> A:
        found = self.by_stream.get(stream)
        if found is None:
            found = self.by_stream[stream] = self._make(self._options.to(stream))
        return found

    def _flush(self) -> None:
        for appender in self.by_stream.values():
            appender.flush()


def write_directly(
    options: SinkOptions, schema: StructType, batches: Iterator[RecordBatch]
) -> TaskReport:
    """Write a task's rows to the streams themselves, at least once.

    Raises `EncodeError` for a value that cannot be written, `Disconnected` if the server cannot be reached,
    and `HeadwaterError` if the server refuses an entry.
    """
    with closing(OwnerConnections(options.url)) as connections:
        appenders = _Appenders(options, lambda one: StreamAppender(one, connections))
        appenders.append_all(_encoder(options, schema).rows(batches))
    return TaskReport("", {})


def write_staged(
    options: SinkOptions, schema: StructType, query: str, batches: Iterator[RecordBatch]
) -> TaskReport:
    """Write a task's rows to new stages of ``query``. Raises the same errors as `write_directly`."""
    name = uuid.uuid4().hex
    with closing(OwnerConnections(options.url)) as connections:
        appenders = _Appenders(options, lambda one: StageAppender(one, connections, query, name))
        appenders.append_all(_encoder(options, schema).rows(batches))
    return TaskReport(query, {one: made.staged() for one, made in appenders.by_stream.items()})


def _encoder(options: SinkOptions, schema: StructType) -> RowEncoder:
    return RowEncoder(
        schema, options.codec, options.non_finite, stream_column=options.stream_column
    )


def staged_by(messages: list[WriterCommitMessage | None]) -> dict[str, list[Staged]]:
    """Return, by stream, the stages of the tasks that finished, in the order of their partitions."""
    found: dict[str, list[Staged]] = {}
    for message in messages:
        if isinstance(message, TaskReport):
            for stream, staged in message.staged.items():
                found.setdefault(stream, []).append(staged)
    return found
