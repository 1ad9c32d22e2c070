"""``spark.read.format("headwater").option("archive", path)``: archive and stream as one table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headwater.spark.archive.planning import ArchivePlanner
from headwater.spark.archive.stores import ArchiveStore
from headwater.spark.core.planning import Planner
from headwater.spark.core.ranges import EntryRange
from headwater.spark.core.store import Store
from headwater.spark.log_mode.batch import BatchReader
from headwater.spark.log_mode.pushdown import PushdownReader

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition


class ArchiveBatchReader(BatchReader):
    """Everything that was archived and everything that the streams hold, each entry once."""

    def _connect(self) -> tuple[Store, Planner]:
        store = ArchiveStore(self._options)
        return store, ArchivePlanner(store)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition, in an executor."""
        from headwater.spark.archive.reading import read_range

        if not isinstance(partition, EntryRange):
            return iter(())  # Spark's own, where there is nothing to read
        return read_range(self._options, self._shape, partition)


class ArchivePushdownReader(ArchiveBatchReader, PushdownReader):
    """The same, narrowed by what Spark pushes down: row groups outside of it are not opened."""
