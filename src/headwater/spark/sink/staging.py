"""What a task writes, to the stream itself or to a stage, and what it reports to the driver.

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
class Wrote(WriterCommitMessage):
    """A finished task's message: the query for which it wrote and, if it staged, what and where."""

    query: str
    staged: Staged | None


def write_directly(
    options: SinkOptions, schema: StructType, batches: Iterator[RecordBatch]
) -> Wrote:
    """Write a task's rows to the stream itself, at least once."""
    StreamAppender(options).append_all(RowEncoder(schema, options.codec).rows(batches))
    return Wrote("", None)


def write_staged(
    options: SinkOptions, schema: StructType, query: str, batches: Iterator[RecordBatch]
) -> Wrote:
    """Write a task's rows to a new stage."""
    appender = StageAppender(options, query, uuid.uuid4().hex)
    appender.append_all(RowEncoder(schema, options.codec).rows(batches))
    return Wrote(query, appender.staged())


def staged_by(messages: list[WriterCommitMessage | None]) -> list[Staged]:
    """Return the stages of the tasks that finished, in the order of their partitions."""
    return [
        message.staged
        for message in messages
        if isinstance(message, Wrote) and message.staged is not None
    ]
