"""The data source that Spark finds by the name ``headwater``.

    events = (
        spark.readStream.format("headwater")
        .option("url", "redis://localhost:6379")
        .option("stream", "orders")
        .schema("order_id bigint, item string, price decimal(10, 2)")
        .load()
    )

Spark searches for modules named ``pyspark_*`` and finds ``pyspark_headwater.py`` where Headwater is
installed, so the source need not be registered. Options: core/options.py, and sink/options.py for writing.
Columns: decoding/columns.py.

This module only chooses the reader or writer; other packages implement the readers and writers.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from headwater.errors import DeclarationError
from headwater.spark.core.options import SourceOptions, parse_options

if TYPE_CHECKING:
    from headwater.spark.decoding.backend import Backend


class HeadwaterSource(DataSource):
    """Streams of Headwater, Redis (7.0 or later) or Valkey as tables, and tables as streams."""

    @classmethod
    def name(cls) -> str:
        return "headwater"

    @cached_property
    def _reading(self) -> SourceOptions:
        _refuse_without_options(self.options)
        options = parse_options(self.options)
        _refuse_embedded(options.url)
        return options

    def schema(self) -> StructType | str:
        """Return the columns for a read without a schema."""
        if self._reading.infer_schema:
            from headwater.spark.log_mode.inference import inferred_schema

            inferred: StructType = inferred_schema(self._reading)
            return inferred
        from headwater.spark.decoding.columns import default_schema

        return default_schema(self._reading)

    def reader(self, schema: StructType) -> Any:
        """Return the reader for ``spark.read``."""
        options, backend = self._reading, self._backend(schema)
        if options.group is not None:
            raise DeclarationError(
                "group is for readStream: a batch read of a group would take entries from its "
                "members and could not settle them. Remove group, or use readStream."
            )
        if options.pushdown:
            from headwater.spark.log_mode.pushdown import PushdownReader

            return PushdownReader(options, backend)
        from headwater.spark.log_mode.batch import BatchReader

        return BatchReader(options, backend)

    def streamReader(self, schema: StructType) -> Any:  # noqa: N802 - Spark's name
        """Return the reader for ``spark.readStream``."""
        options = self._reading
        if options.group is not None:
            from headwater.spark.decoding.columns import RowShape
            from headwater.spark.group_mode.streaming import GroupReader

            return GroupReader(options, RowShape.of(schema, options))
        from headwater.spark.log_mode.streaming import StreamReader

        return StreamReader(options, self._backend(schema))

    def _backend(self, schema: StructType) -> Backend:
        """Return the source of the entries: the server, or the archive and the server."""
        from headwater.spark.decoding.columns import RowShape

        options, shape = self._reading, RowShape.of(schema, self._reading)
        if options.archive is not None:
            from headwater.spark.archive.backend import ArchiveBackend

            return ArchiveBackend(options, shape)
        from headwater.spark.decoding.backend import Backend

        return Backend(options, shape)

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        """Return the writer for ``df.write``."""
        from headwater.spark.sink.batch import BatchWriter

        _refuse_without_options(self.options)
        _refuse_embedded(self.options.get("url", ""))
        return BatchWriter.of(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802 - Spark's name
        """Return the writer for ``df.writeStream``."""
        from headwater.spark.sink.streaming import StreamWriter

        _refuse_embedded(self.options.get("url", ""))
        return StreamWriter.of(self.options, schema, overwrite=overwrite)


def _refuse_without_options(options: Mapping[str, str]) -> None:
    """Raise for a table of Spark's catalog: Spark (4.3) passes no options of such a table to a Python source."""
    if not options:
        raise DeclarationError(
            "no options: Spark does not pass those of a table (CREATE TABLE … USING headwater) to a source in "
            "Python. Name them in the query, SELECT … FROM the_table WITH (url 'redis://localhost:6379', stream "
            "'orders'), or create a view: CREATE TEMPORARY VIEW orders USING headwater OPTIONS (url '…', stream '…')"
        )


def _refuse_embedded(url: str) -> None:
    """Raise for an embedded store: this function runs in a Spark process, which cannot reach that store."""
    if url.startswith("headwater:"):
        from headwater.spark.embedded import refuse_unserved

        refuse_unserved(url)
