"""``spark.read.format("headwater")``: what the streams hold at this moment, once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from headwater.errors import DeclarationError
from headwater.model import MAX_ID, MIN_ID, StreamID
from headwater.spark.core.ids import before
from headwater.spark.core.options import SourceOptions
from headwater.spark.core.planning import Planner
from headwater.spark.core.positions import Position, ReadSpan
from headwater.spark.core.ranges import EntryRange
from headwater.spark.core.store import SourceStore
from headwater.spark.log_mode.backend import Backend
from headwater.spark.log_mode.partitions import cut_up, starting_position

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Window:
    """What of the streams is looked at: ids from ``first`` to ``last``, and, where that is said,
    some streams only."""

    first: StreamID = MIN_ID
    last: StreamID = MAX_ID
    streams: frozenset[str] | None = None

    def wants(self, stream: str) -> bool:
        """Whether ``stream`` is looked at."""
        return self.streams is None or stream in self.streams

    def narrowed(self, first: StreamID, last: StreamID) -> Window:
        """The part of it between two ids, both included."""
        return Window(max(self.first, first), min(self.last, last), self.streams)


EVERYTHING = Window()


class BatchReader(DataSourceReader):
    """Plans in the driver's process, once for a query, and reads its partitions in executors.

    Spark pickles it to the executors; it holds its options and its backend, no connection.
    """

    def __init__(self, options: SourceOptions, backend: Backend) -> None:
        start = options.starting
        if "latest" in (start.values() if isinstance(start, Mapping) else (start,)):
            raise DeclarationError(
                "startingId: latest reads nothing in a batch, which ends at the last entry there "
                "is; leave it out, or use readStream"
            )
        self._options = options
        self._backend = backend
        self._window = EVERYTHING

    def partitions(self) -> list[InputPartition]:
        """Everything from each stream's start to its end, as ranges of ids."""
        store, plans = self._backend.connect()
        try:
            spans = batch_spans(self._options, store, plans, self._window)
            return [
                EntryRange(stream, ids, count)
                for stream, span, parts in cut_up(spans, self._options.min_partitions)
                for ids, count in plans.cut(stream, span, parts).parts
            ]
        finally:
            store.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition, in an executor."""
        if not isinstance(partition, EntryRange):
            return iter(())  # Spark's own, where there is nothing to read
        return self._backend.read(partition)


def batch_spans(
    options: SourceOptions, store: SourceStore, plans: Planner, window: Window = EVERYTHING
) -> dict[str, ReadSpan]:
    """What a batch reads of each stream; those of which it reads nothing are left out.

    Raises `DeclarationError` for a stream that is named and not there.
    """
    spans: dict[str, ReadSpan] = {}
    for stream in filter(window.wants, store.streams()):
        span = _span(options, store, plans, stream, window)
        if span is not None and span.entries:
            spans[stream] = span
    return spans


def _span(
    options: SourceOptions, store: SourceStore, plans: Planner, stream: str, window: Window
) -> ReadSpan | None:
    """None where the end is before the start: nothing is read then, as in Kafka's source."""
    at = starting_position(options, store, plans, stream)
    end = options.end_of(stream)
    last = min(window.last, MAX_ID if end == "latest" else end)
    start = at.id if window.first == MIN_ID else max(at.id, before(window.first))
    if start >= last:
        return None
    if (start, last) == (at.id, MAX_ID):
        look = plans.look(stream, at, None)
        return look and ReadSpan(at, Position(look.to, at.added + look.taken))
    state = store.state(stream)
    if state is None:
        return None
    to = min(last, state.last_id)
    taken = plans.count(stream, start, to)
    return ReadSpan(Position(start, at.added), Position(to, at.added + taken))
