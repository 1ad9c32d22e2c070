"""``spark.readStream.format("headwater")``: micro-batches, each a set of id ranges.

Spark calls, in a new query: `initialOffset` (twice), `latestOffset`, then writes the offset to its
log, then `partitions` and `read`. After a crash it calls `partitions` with the offset it logged,
before anything else. So everything that a batch is must follow from its end offset (offsets.py),
and nothing may rest on `commit`, which does not come for the last batch, nor on `stop`, which may
run after a SIGKILL of the driver.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from headwater.spark.decoding.columns import Shape
from headwater.spark.log_mode.completeness import judge, judge_range, report, set_back, was_set_back
from headwater.spark.log_mode.offsets import (
    BEGINNING,
    Offset,
    Position,
    Span,
    end_offset,
    initial_offset,
    positions_of,
    spans_of,
)
from headwater.spark.log_mode.partitions import EntryRange, cut_up, starting_positions
from headwater.spark.log_mode.planning import Look, Planner, planner
from headwater.spark.options import SourceOptions
from headwater.spark.store import Store

if TYPE_CHECKING:
    import pyarrow as pa


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches in the driver and reads their partitions in executors.

    Spark pickles it to the executors: there it is only its options and its shape.
    """

    def __init__(self, options: SourceOptions, shape: Shape) -> None:
        self._options = options
        self._shape = shape
        self._store: Store | None = None
        self._planner: Planner | None = None
        self._initial: Offset | None = None
        self._targets: dict[str, Position] | None = None
        self._latest: dict[str, Span] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_shape": self._shape}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["_options"], state["_shape"])  # type: ignore[misc]

    # --- what Spark asks the driver ---------------------------------------------------------------

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Where the query begins; the same answer however often it is asked."""
        if self._initial is None:
            store, plans = self._open()
            self._initial = initial_offset(starting_positions(self._options, store, plans))
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """At most ``maxEntriesPerTrigger`` entries a batch."""
        if self._options.max_entries_per_trigger is None:
            return ReadAllAvailable()
        return ReadMaxRows(self._options.max_entries_per_trigger)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Remember how far each stream reaches now: this run reads no further."""
        store, _plans = self._open()
        self._targets = {}
        for stream in store.streams():
            state = store.state(stream)
            if state is not None:
                self._targets[stream] = Position(state.last_id, state.entries_added)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        """The end of the next batch; ``start`` itself when there is nothing to log.

        Raises `DataLoss` where entries were removed before they were read (completeness.py).
        """
        store, plans = self._open()
        new = [stream for stream in store.streams() if stream not in start]
        positions = positions_of(start) | dict.fromkeys(new, BEGINNING)
        looks = {
            stream: self._look(plans, stream, at) if self._options.asks_for(stream) else (at, None)
            for stream, at in positions.items()
        }
        if isinstance(limit, ReadMaxRows):
            self._hold_to(limit.max_rows, plans, looks)
        spans = {
            stream: Span(at, Position(look.to, at.added + look.taken)) if look else Span(at, at)
            for stream, (at, look) in looks.items()
        }
        self._latest = {
            stream: Span(at, Position(look.state.last_id, look.state.entries_added))
            for stream, (at, look) in looks.items()
            if look
        }
        ends = {stream: span.end for stream, span in spans.items()}
        settled = set(start) == set(spans_of(start)) and ends == positions_of(start)
        return start if settled else end_offset(spans)

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802 - Spark's name
        """How far each stream reached when the last batch was planned, for Spark's progress."""
        return end_offset(self._latest) if self._latest else None

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:  # noqa: ARG002
        """The batch that ends at ``end``, as ranges of ids; ``start`` is not looked at."""
        _store, plans = self._open()
        spans = {stream: span for stream, span in spans_of(end).items() if span.entries}
        partitions: list[InputPartition] = []
        for stream, span, parts in cut_up(spans, self._options.min_partitions):
            cut = plans.cut(stream, span, parts)
            finding = judge_range(
                stream,
                span.start.id,
                span.end.id,
                expected=span.entries,
                found=cut.entries,
                state=cut.state,
            )
            if finding:
                report(finding, self._options)
            partitions += [EntryRange(stream, ids, count) for ids, count in cut.parts]
        return partitions

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition, in an executor."""
        from headwater.spark.decoding.pages import read_range

        assert isinstance(partition, EntryRange), partition
        return read_range(self._options, self._shape, partition)

    def stop(self) -> None:
        """Close the connection; nothing is settled here (see the head of this file)."""
        if self._store is not None:
            self._store.close()
            self._store = self._planner = None

    # --- inside -----------------------------------------------------------------------------------

    def _open(self) -> tuple[Store, Planner]:
        if self._store is None or self._planner is None:
            self._store = Store(self._options)
            self._planner = planner(self._store)
        return self._store, self._planner

    def _look(self, plans: Planner, stream: str, at: Position) -> tuple[Position, Look | None]:
        """The stream from ``at``, or from where it must be read after what was found missing."""
        upto = None if self._targets is None else self._targets.get(stream, BEGINNING)
        look = plans.look(stream, at, upto)
        state = look.state if look else None
        if was_set_back(at, state):
            report(set_back(stream, at, state), self._options)
            at = BEGINNING
            if state is not None:
                at = Position(at.id, state.entries_added - state.length)
                look = plans.look(stream, at, upto)
        if look is None or (upto is not None and upto.id <= at.id):
            return at, None
        return self._judged(stream, at, look)

    def _judged(self, stream: str, at: Position, look: Look) -> tuple[Position, Look | None]:
        """What is missing is reported here, once: the position counts it from now on."""
        finding = judge(stream, at, look.state, look.total)
        if finding:
            report(finding, self._options)
        return Position(at.id, look.state.entries_added - look.total), look

    def _hold_to(
        self, limit: int, plans: Planner, looks: dict[str, tuple[Position, Look | None]]
    ) -> None:
        """Cut ``looks`` down to ``limit`` entries in all."""
        wanted = {stream: look.taken for stream, (_at, look) in looks.items() if look}
        first = sorted(wanted, key=lambda stream: looks[stream][0].id)
        for stream, share in shares({stream: wanted[stream] for stream in first}, limit).items():
            at, look = looks[stream]
            if look is None or share >= look.taken:
                continue
            if not share:
                looks[stream] = at, look._replace(to=at.id, taken=0)
                continue
            shorter = plans.limit(stream, at, look, share)
            if shorter is None or was_set_back(at, shorter.state):
                looks[stream] = at, None  # the next batch will say so
            else:
                looks[stream] = self._judged(stream, at, shorter)


def shares(wanted: Mapping[str, int], limit: int) -> dict[str, int]:
    """``limit`` entries dealt out among streams: evenly, and what one does not want to the others.

    No stream waits for another, however long the other's backlog is; where there are fewer entries
    than streams, those named first get one.

    >>> shares({"a": 100, "b": 2, "c": 100}, 10)
    {'a': 4, 'b': 2, 'c': 4}
    """
    dealt = dict.fromkeys(wanted, 0)
    left = min(limit, sum(wanted.values()))
    while left:
        hungry = [stream for stream, want in wanted.items() if dealt[stream] < want]
        portion = max(1, left // len(hungry))
        for stream in hungry[:left]:
            given = min(portion, wanted[stream] - dealt[stream])
            dealt[stream] += given
            left -= given
    return dealt
