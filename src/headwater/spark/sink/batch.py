"""``df.write.format("headwater").mode("append")``: rows to entries, straight or in a transaction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from headwater.errors import DeclarationError
from headwater.spark.sink.columns import check_schema
from headwater.spark.sink.options import SinkOptions, parse_options
from headwater.spark.sink.publishing import EpochPublisher
from headwater.spark.sink.staging import staged_by, write_staged, write_straight

if TYPE_CHECKING:
    from pyarrow import RecordBatch


class BatchWriter(DataSourceArrowWriter):
    """Adds each row at least once: a task that Spark runs again adds its rows again.

    With ``txnAppId`` and ``txnVersion``, once: a write of a version that is there adds nothing, and
    one that fails adds nothing until it is run again.
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    @classmethod
    def of(cls, given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> BatchWriter:
        """The writer for Spark's options; raises `DeclarationError`."""
        options = parse_options(given, streaming=False)
        if overwrite:
            raise DeclarationError(
                'a stream cannot be overwritten: write with mode("append"). To begin anew, DEL the '
                "stream first."
            )
        check_schema(schema)
        return cls(options, schema)

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        """In a task."""
        if self._options.transaction is None:
            return write_straight(self._options, self._schema, iterator)
        return write_staged(self._options, self._schema, self._options.transaction[0], iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """In the driver, when all tasks are done."""
        if self._options.transaction is not None:
            app, version = self._options.transaction
            with closing(EpochPublisher(self._options, app)) as publisher:
                publisher.publish(version, staged_by(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """In the driver, when a task, or `commit`, has failed."""
        if self._options.transaction is not None and staged_by(messages):
            with closing(EpochPublisher(self._options, self._options.transaction[0])) as publisher:
                publisher.abort(staged_by(messages))
