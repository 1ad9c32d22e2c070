"""``spark.read.format("headwater")``: what the streams hold at this moment, once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from headwater.errors import DeclarationError
from headwater.spark.decoding.columns import Shape
from headwater.spark.log_mode.offsets import Position, Span
from headwater.spark.log_mode.partitions import EntryRange, cut_up, starting_positions
from headwater.spark.log_mode.planning import planner
from headwater.spark.options import SourceOptions
from headwater.spark.store import Store

if TYPE_CHECKING:
    import pyarrow as pa


class BatchReader(DataSourceReader):
    """Plans in the driver's process, once for a query, and reads its partitions in executors.

    Spark pickles it to the executors; it holds its options and its shape, no connection.
    """

    def __init__(self, options: SourceOptions, shape: Shape) -> None:
        starts = {options.starting, *(options.starting_of or {}).values()}
        if "latest" in starts:
            raise DeclarationError(
                "startingId: latest reads nothing in a batch, which ends at the last entry there "
                "is; leave it out, or use readStream"
            )
        self._options = options
        self._shape = shape

    def partitions(self) -> list[InputPartition]:
        """Everything from ``startingId`` to each stream's last id, as ranges of ids."""
        store = Store(self._options)
        try:
            plans = planner(store)
            spans: dict[str, Span] = {}
            for stream, at in starting_positions(self._options, store, plans).items():
                look = plans.look(stream, at, None)
                if look and look.taken:
                    spans[stream] = Span(at, Position(look.to, at.added + look.taken))
            return [
                EntryRange(stream, ids, count)
                for stream, span, parts in cut_up(spans, self._options.min_partitions)
                for ids, count in plans.cut(stream, span, parts).parts
            ]
        finally:
            store.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition, in an executor."""
        from headwater.spark.decoding.pages import read_range

        if not isinstance(partition, EntryRange):
            return iter(())  # Spark's own, where there is nothing to read
        return read_range(self._options, self._shape, partition)
