"""``spark.read.format("headwater")``: what the streams hold at this moment, once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from headwater.errors import DeclarationError
from headwater.model import MAX_ID, StreamID
from headwater.spark.decoding.columns import Shape
from headwater.spark.log_mode.offsets import Position, Span
from headwater.spark.log_mode.partitions import EntryRange, cut_up, starting_positions
from headwater.spark.log_mode.planning import Planner, planner
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
        """Everything from each stream's start to its end, as ranges of ids."""
        store, plans = self._connect()
        try:
            spans: dict[str, Span] = {}
            for stream, at in starting_positions(self._options, store, plans).items():
                span = self._span(plans, stream, at)
                if span is not None and span.entries:
                    spans[stream] = span
            return [
                EntryRange(stream, ids, count)
                for stream, span, parts in cut_up(spans, self._options.min_partitions)
                for ids, count in plans.cut(stream, span, parts).parts
            ]
        finally:
            store.close()

    def _connect(self) -> tuple[Store, Planner]:
        """What is asked about the streams; a reader that has an archive asks of both."""
        store = Store(self._options)
        return store, planner(store)

    def _span(self, plans: Planner, stream: str, at: Position) -> Span | None:
        """What is read of ``stream``; nothing where its end is before its start."""
        start, end = self._range(stream, at.id)
        look = plans.look(stream, at, None)
        if look is None:
            return None
        taken = look.taken
        if start != at.id or end < look.to:
            end = min(end, look.to)
            taken = plans.count(stream, start, end)
        return Span(Position(start, at.added), Position(end, at.added + taken))

    def _range(self, stream: str, start: StreamID) -> tuple[StreamID, StreamID]:
        """What the options ask for after ``start``: a start (excluded) and an end (included)."""
        end = self._options.end_of(stream)
        return start, MAX_ID if end == "latest" else end

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition, in an executor."""
        from headwater.spark.decoding.pages import read_range

        if not isinstance(partition, EntryRange):
            return iter(())  # Spark's own, where there is nothing to read
        return read_range(self._options, self._shape, partition)
