"""``spark.readStream.format("headwater").option("archive", path)``: a query that begins, or goes on,
with what is no longer in the stream.

A batch is named by ids and counts (core/positions.py), and both mean the same in the archive. So a
batch is replayable for ever, also when its entries were trimmed between two attempts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headwater.spark.archive.planning import ArchivePlanner
from headwater.spark.archive.stores import ArchiveStore
from headwater.spark.core.planning import Planner
from headwater.spark.core.positions import Position
from headwater.spark.core.ranges import EntryRange
from headwater.spark.core.store import Store
from headwater.spark.log_mode.streaming import StreamReader

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition


class ArchiveStreamReader(StreamReader):
    """Micro-batches from archive and stream as one."""

    def _connect(self) -> tuple[Store, Planner]:
        store = ArchiveStore(self._options)
        return store, ArchivePlanner(store)

    def _anew(self, stream: str) -> Position:
        """After the archive's end: what is archived was read, or will be."""
        store, _plans = self._open()
        assert isinstance(store, ArchiveStore), store
        return store.manifest(stream).end

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition, in an executor."""
        from headwater.spark.archive.reading import read_range

        assert isinstance(partition, EntryRange), partition
        return read_range(self._options, self._shape, partition)
