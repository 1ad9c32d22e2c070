"""What a task writes, and what it reports to the driver: rows to the stream itself, or to a stage.

Batch writes and streaming queries share it.
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
    """What a task says when it is done: which query it wrote for and where, if it staged."""

    query: str
    staged: Staged | None


def write_straight(
    options: SinkOptions, schema: StructType, batches: Iterator[RecordBatch]
) -> Wrote:
    """A task's rows to the stream itself, at least once."""
    StreamAppender(options).append_all(RowEncoder(schema, options.codec).rows(batches))
    return Wrote("", None)


def write_staged(
    options: SinkOptions, schema: StructType, query: str, batches: Iterator[RecordBatch]
) -> Wrote:
    """A task's rows to a stage of its own."""
    appender = StageAppender(options, query, uuid.uuid4().hex)
    appender.append_all(RowEncoder(schema, options.codec).rows(batches))
    return Wrote(query, appender.staged())


def staged_by(messages: list[WriterCommitMessage | None]) -> list[Staged]:
    """The stages of tasks that came to an end, in the order of their partitions."""
    return [
        message.staged
        for message in messages
        if isinstance(message, Wrote) and message.staged is not None
    ]
