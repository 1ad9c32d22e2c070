"""Writes the rows of one task, to the stream itself or to a stage, and returns its report to the driver.

Batch writes and streaming queries share this module.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from headwater.spark.sink.appending import StageAppender, Staged, StreamAppender
from headwater.spark.sink.entries import RowEncoder
from headwater.spark.sink.options import SinkOptions

if TYPE_CHECKING:
    from pyarrow import RecordBatch


@dataclass
class TaskReport(WriterCommitMessage):
    """What a finished task reports to the driver: the query for which it wrote and its stage. If it wrote to
    the stream itself, ``query`` is empty and ``staged`` None."""

    query: str
    staged: Staged | None


def write_directly(
    options: SinkOptions, schema: StructType, batches: Iterator[RecordBatch]
) -> TaskReport:
    """Write a task's rows to the stream itself, at least once.

    Raises `EncodeError` for a value that cannot be written, `Disconnected` if the server cannot be reached,
    and `HeadwaterError` if it refuses an entry.
    """
    StreamAppender(options).append_all(
        RowEncoder(schema, options.codec, options.non_finite).rows(batches)
    )
    return TaskReport("", None)


def write_staged(
    options: SinkOptions, schema: StructType, query: str, batches: Iterator[RecordBatch]
) -> TaskReport:
    """Write a task's rows to a new stage of ``query``. Raises the same as `write_directly`."""
    appender = StageAppender(options, query, uuid.uuid4().hex)
    appender.append_all(RowEncoder(schema, options.codec, options.non_finite).rows(batches))
    return TaskReport(query, appender.staged())


def staged_by(messages: list[WriterCommitMessage | None]) -> list[Staged]:
    """Return the stages of the tasks that finished, in the order of their partitions."""
    return [
        message.staged
        for message in messages
        if isinstance(message, TaskReport) and message.staged is not None
    ]
