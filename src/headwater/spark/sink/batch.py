"""``df.write.format("headwater").mode("append")``: writes rows as entries, optionally exactly once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from headwater.errors import DeclarationError
from headwater.spark.sink.columns import LOSS, check_schema, loses_fields
from headwater.spark.sink.options import SinkOptions, parse_options
from headwater.spark.sink.publishing import abort_all, publish_all, recorded_of
from headwater.spark.sink.staging import staged_by, write_directly, write_staged

if TYPE_CHECKING:
    from pyarrow import RecordBatch


class BatchWriter(DataSourceArrowWriter):
    """Adds each row at least once: a task that Spark runs again adds its rows again.

    With ``txnAppId`` and ``txnVersion`` each row is added exactly once, and writing a version again adds
    nothing. A write that failed may have added a part of its rows; repeating it adds the others.
    """

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    @classmethod
    def of(cls, given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> BatchWriter:
        """Return the writer for Spark's options. Raises `DeclarationError` for wrong options and columns."""
        options = parse_options(given, streaming=False)
        if overwrite:
            raise DeclarationError(
                'a stream cannot be overwritten: write with mode("append"). To start over, DEL the '
                "stream first."
            )
        check_schema(schema, options.codec, options.stream_column)
        if loses_fields(schema) and not options.write_source_columns and not _goes_on(options):
            raise DeclarationError(LOSS)
        return cls(options, schema)

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task, in an executor."""
        if self._options.transaction is None:
            return write_directly(self._options, self._schema, iterator)
        return write_staged(self._options, self._schema, self._options.transaction[0], iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish all rows. Spark calls this in the driver after all tasks."""
        if self._options.transaction is not None:
            app, version = self._options.transaction
            publish_all(self._options, app, version, staged_by(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove stages that are not recorded. Spark calls this in the driver if a task or `commit` failed."""
        if self._options.transaction is not None:
            abort_all(self._options, self._options.transaction[0], staged_by(messages))


def _goes_on(options: SinkOptions) -> bool:
    """Return whether the server has a record of this transaction's application, whose write may continue."""
    if options.transaction is None or options.stream_column is not None:
        return False
    return recorded_of(options, options.transaction[0]) is not None
