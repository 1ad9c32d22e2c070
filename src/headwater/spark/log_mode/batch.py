"""``spark.read.format("headwater")``: reads the entries that the streams hold at one moment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from headwater.common.model import MAX_ID, MIN_ID, StreamID
from headwater.errors import DeclarationError
from headwater.spark.core.options import SourceOptions
from headwater.spark.core.planning.planning import Planner
from headwater.spark.core.positions import Position, ReadSpan, before
from headwater.spark.core.ranges import EntryTask
from headwater.spark.core.store import SourceStore
from headwater.spark.decoding.backend import Backend
from headwater.spark.log_mode.partitions import divided, starting_positions

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Window:
    """The part of the streams to read: ids from ``first`` to ``last``, included, in ``streams`` (None: all)."""

    first: StreamID = MIN_ID
    last: StreamID = MAX_ID
    streams: frozenset[str] | None = None

    def wants(self, stream: str) -> bool:
        """Return whether ``stream`` is read."""
        return self.streams is None or stream in self.streams

    def narrowed(self, first: StreamID, last: StreamID) -> Window:
        """Return the part of the window between two ids, both included."""
        return Window(max(self.first, first), min(self.last, last), self.streams)


EVERYTHING = Window()


class BatchReader(DataSourceReader):
    """Plans once per query, in the driver, and reads the partitions in executors.

    Spark pickles the reader to the executors, so it holds options and a backend, but not a connection.
    """

    def __init__(self, options: SourceOptions, backend: Backend) -> None:
        start = options.starting
        if "latest" in (start.values() if isinstance(start, Mapping) else (start,)):
            raise DeclarationError(
                "startingId: latest reads nothing in a batch, which ends at the last entry; remove it, "
                "or use readStream"
            )
        self._options = options
        self._backend = backend
        self._window = EVERYTHING

    def partitions(self) -> list[InputPartition]:
        """Return ranges of ids that cover each stream from its start to its end."""
        store, plans = self._backend.connect()
        try:
            spans = batch_spans(self._options, store, plans, self._window)
            _cuts, tasks = divided(plans, spans, self._options)
            return tasks
        finally:
            store.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition, in an executor."""
        if not isinstance(partition, EntryTask):
            return iter(())  # Spark's own partition, for a read without entries
        return self._backend.read_task(partition)


def batch_spans(
    options: SourceOptions, store: SourceStore, plans: Planner, window: Window = EVERYTHING
) -> dict[str, ReadSpan]:
    """Return the span of each stream that a batch reads. Streams without entries to read are omitted.

    Raises `DeclarationError` for a named stream that does not exist.
    """
    streams = list(filter(window.wants, store.streams()))
    spans: dict[str, ReadSpan | None] = {}
    whole: dict[str, tuple[Position, None]] = {}
    for stream, at in starting_positions(options, store, plans, streams).items():
        end = options.end_of(stream)
        last = min(window.last, MAX_ID if end == "latest" else end)
        start = at.id if window.first == MIN_ID else max(at.id, before(window.first))
        spans[stream] = None
        if (start, last) == (at.id, MAX_ID):
            whole[stream] = at, None
        elif start < last:  # otherwise the range is empty and not read, as in Kafka's source
            spans[stream] = _span(store, plans, stream, at, start, last)
    for stream, look in plans.look_at_all(whole).items():
        at = whole[stream][0]
        spans[stream] = look and ReadSpan(at, Position(look.to, at.added + look.taken))
    return {stream: span for stream, span in spans.items() if span is not None and span.entries}


def _span(
    store: SourceStore,
    plans: Planner,
    stream: str,
    at: Position,
    start: StreamID,
    last: StreamID,
) -> ReadSpan | None:
    """Return the span of a stream after ``start``, up to ``last``; None if the stream does not exist."""
    state = store.state(stream)
    if state is None:
        return None
    to = min(last, state.last_id)
    taken = plans.count(stream, start, to)
    return ReadSpan(Position(start, at.added), Position(to, at.added + taken))
