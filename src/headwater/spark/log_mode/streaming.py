"""``spark.readStream.format("headwater")``: reads micro-batches, each a set of id ranges.

In a new query Spark calls `initialOffset` (twice) and `latestOffset`, writes the offset to its log, then
calls `partitions` and `read`. After a crash it first calls `partitions` with the offset in its log. Therefore a
batch must follow completely from its end offset (offsets.py). The reader must not depend on `commit`, which Spark
does not call for the last batch, nor on `stop`, which may run after a SIGKILL of the driver.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from headwater.errors import DeclarationError
from headwater.spark.core.completeness import (
    LastSeen,
    judge,
    judge_range,
    report,
    set_back,
    was_set_back,
)
from headwater.spark.core.idle import IdleCounters, IdlePauses
from headwater.spark.core.options import SourceOptions
from headwater.spark.core.planning.planning import Look, Planner
from headwater.spark.core.positions import BEGINNING, Position, ReadSpan
from headwater.spark.core.queries import Register
from headwater.spark.core.ranges import EntryTask
from headwater.spark.core.store import SourceStore
from headwater.spark.decoding.backend import Backend
from headwater.spark.log_mode.offsets import (
    Offset,
    end_offset,
    initial_offset,
    positions_of,
    query_of,
    removed_of,
    spans_of,
    streams_of,
)
from headwater.spark.log_mode.partitions import divided, starting_positions
from headwater.spark.log_mode.removed import finding_of, is_continued, remembered
from headwater.spark.log_mode.rest import Rest

if TYPE_CHECKING:
    import pyarrow as pa


_log = logging.getLogger("headwater.spark")


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches in the driver and reads their partitions in executors.

    Spark pickles the reader to the executors, where it has only its options and its backend.
    """

    def __init__(self, options: SourceOptions, backend: Backend) -> None:
        refuse_batch_options(options)
        self._options = options
        self._backend = backend
        self._store: SourceStore | None = None
        self._planner: Planner | None = None
        self._initial: Offset | None = None
        self._targets: dict[str, Position] | None = None
        self._latest: dict[str, ReadSpan] = {}
        self._memory = LastSeen()
        self._register: Register | None = None
        self._checked = False
        self._pauses = IdlePauses()
        self._rest = Rest()
        self._idle_counters = IdleCounters()
        self._idle = False
        """True if the last poll found nothing."""

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_backend": self._backend}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["_options"], state["_backend"])  # type: ignore[misc]

    # --- called by Spark in the driver ------------------------------------------------------------

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return the offset at which the query begins. Later calls return the same offset."""
        if self._initial is None:
            store, plans = self._open()
            positions = starting_positions(self._options, store, plans, store.streams())
            self._initial = initial_offset(positions, query=str(uuid.uuid4()))
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit of a batch: ``maxEntriesPerTrigger`` entries or ``maxBytesPerTrigger`` bytes.

        Spark does not have a limit of both kinds. If both are set, `latestOffset` also applies the bytes.
        """
        if self._options.max_entries_per_trigger is not None:
            return ReadMaxRows(self._options.max_entries_per_trigger)
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Remember the current end of each stream, beyond which this run does not read."""
        store, _plans = self._open()
        self._targets = {}
        for stream, state in store.states(store.streams()).items():
            if state is not None:
                self._memory.compare(stream, state)
                self._targets[stream] = Position(state.last_id, state.entries_added)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        """Return the end of the next batch, or ``start`` itself if there is nothing to log.

        Raises `DataLoss` if entries were removed before they were read (core/completeness.py).
        """
        self._pauses.wait()
        store, plans = self._open()
        # Only an idle query reads the counters first: a poll is cheap while they stay the same.
        seen = self._idle_counters.now(store, store.recent_streams()) if self._idle else None
        rests = self._rest.lasts(start, seen)
        end = start if rests else self._next(store, plans, start, limit)
        self._idle = end is start
        if not self._idle:
            self._rest.end()
        elif not rests:
            self._rest.begin(start, seen)
        self._pauses.polled(found=not self._idle)
        return end

    def _next(self, store: SourceStore, plans: Planner, start: Offset, limit: ReadLimit) -> Offset:
        self._check_is_ours(start)
        query = query_of(start) or str(uuid.uuid4())
        self._register_committed(store, query, start)
        positions, removed = positions_of(start), removed_of(start)
        appeared = [stream for stream in store.recent_streams() if stream not in positions]
        positions |= self._beginnings(store, plans, appeared, removed)
        looks, gone = self._looks(store, plans, positions, removed)
        self._hold_to(limit, store, plans, looks)
        spans = {
            stream: ReadSpan(at, Position(look.to, at.added + look.taken))
            if look
            else ReadSpan(at, at)
            for stream, (at, look) in looks.items()
        }
        self._latest = {
            stream: ReadSpan(at, Position(look.state.last_id, look.state.entries_added))
            for stream, (at, look) in looks.items()
            if look
        }
        ends = {stream: span.end for stream, span in spans.items()}
        settled = set(streams_of(start)) == set(spans_of(start)) and ends == positions_of(start)
        if settled and query_of(start):
            return start
        return end_offset(spans, query=query, removed=remembered(removed, gone, looks))

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802 - Spark's name
        """Return the end that each stream had when the last batch was planned, for Spark's progress."""
        return end_offset(self._latest) if self._latest else None

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:  # noqa: ARG002
        """Return the batch that ends at ``end`` as ranges of ids; ``start`` is not used."""
        self._check_is_ours(end)
        _store, plans = self._open()
        spans = {stream: span for stream, span in spans_of(end).items() if span.entries}
        cuts, tasks = divided(plans, spans, self._options)
        for stream, span in spans.items():
            cut = cuts[stream]
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
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition, in an executor."""
        assert isinstance(partition, EntryTask), partition
        return self._backend.read_task(partition)

    def stop(self) -> None:
        """Close the connection. Correctness does not depend on this call (see the module's docstring)."""
        if self._store is not None:
            self._store.close()
            self._store = self._planner = None

    # --- internals --------------------------------------------------------------------------------

    def _open(self) -> tuple[SourceStore, Planner]:
        if self._store is None or self._planner is None:
            self._store, self._planner = self._backend.connect()
        return self._store, self._planner

    def _check_is_ours(self, offset: Offset) -> None:
        """Raise `DeclarationError` if the checkpoint has only streams that the options do not include."""
        if self._checked:
            return
        held = list(positions_of(offset))
        others = [stream for stream in held if not self._options.includes(stream)]
        if others and len(others) == len(held):
            raise DeclarationError(
                f"stream: the checkpoint belongs to {', '.join(others)}, but {self._options.asked!r} includes "
                "none of these streams. Give this query its own checkpointLocation, or name the stream "
                "that it read before."
            )
        if others:
            _log.warning(
                "the checkpoint has a position in %s, which the option stream no longer includes; the "
                "position is kept, but nothing is read there.",
                ", ".join(others),
            )
        self._checked = True

    def _register_committed(self, store: SourceStore, query: str, start: Offset) -> None:
        """Store the positions of ``start`` on the server. Spark has committed the batch that ends at ``start``."""
        if self._register is None:
            self._register = Register(store, query)
        positions = positions_of(start).items()
        self._register.record(
            {stream: at.id for stream, at in positions if self._options.includes(stream)}
        )
        self._register.leave(removed_of(start))

    def _beginnings(
        self,
        store: SourceStore,
        plans: Planner,
        streams: list[str],
        removed: Mapping[str, Position],
    ) -> dict[str, Position]:
        """Return the positions at which reading begins in streams that the checkpoint does not contain.

        A stream that a pattern matches is new and read from its beginning, or has come back and continues. A named
        stream was added to the option, and begins at the options' start.
        """
        if self._options.pattern is not None:
            return {stream: removed.get(stream, BEGINNING) for stream in streams}
        return starting_positions(self._options, store, plans, streams)

    def _looks(
        self,
        store: SourceStore,
        plans: Planner,
        positions: Mapping[str, Position],
        removed: Mapping[str, Position],
    ) -> tuple[dict[str, tuple[Position, Look | None]], dict[str, Position]]:
        """Look at each stream that the options include, from its position.

        Returns the looks, and the positions of the streams that are gone.
        """
        wanted = {
            stream: (at, None if self._targets is None else self._targets.get(stream, BEGINNING))
            for stream, at in positions.items()
            if self._options.includes(stream)
        }
        seen = plans.look_at_all(wanted)
        gone = self._gone(
            store, [stream for stream in wanted if seen[stream] is None], positions, removed
        )
        for stream in removed.keys() & wanted.keys():
            look, (at, upto) = seen[stream], wanted[stream]
            if look and not is_continued(at, look):
                wanted[stream] = self._backend.restart(store, stream), upto
                seen[stream] = plans.look(stream, *wanted[stream])
        looks = {
            stream: self._look(store, plans, stream, *wanted[stream], seen[stream])
            if stream in wanted
            else (at, None)
            for stream, at in positions.items()
            if stream not in gone
        }
        return looks, gone

    def _gone(
        self,
        store: SourceStore,
        unseen: list[str],
        positions: Mapping[str, Position],
        removed: Mapping[str, Position],
    ) -> dict[str, Position]:
        """Return the streams of ``unseen`` whose key is gone, with their positions; empty without a pattern.

        Reports entries that were lost with these streams (log_mode/removed.py).
        """
        if self._options.pattern is None:
            return {}
        gone = {stream: positions[stream] for stream in store.missing(unseen)}
        for stream, at in gone.items():
            then = self._memory.forget(stream)
            finding = None if stream in removed else finding_of(stream, at, then)
            if finding:
                report(finding, self._options)
        store.forget(gone)
        return gone

    def _look(
        self,
        store: SourceStore,
        plans: Planner,
        stream: str,
        at: Position,
        upto: Position | None,
        look: Look | None,
    ) -> tuple[Position, Look | None]:
        """Return the look at the stream from ``at``, or from the position of a restart if the stream was set back."""
        state = look.state if look else None
        if state is None and self._options.pattern is not None:
            return at, None  # the stream came back after the look: the next poll reads it
        changed = self._memory.compare(stream, state)
        if was_set_back(at, state) or (state is None and changed):
            report(set_back(stream, at, state), self._options)
            at, changed = self._backend.restart(store, stream), None
            if state is not None:
                at = Position(at.id, state.entries_added - state.length)
                look = plans.look(stream, at, upto)
        if look is None or (upto is not None and upto.id <= at.id and not changed):
            return at, None
        return self._judged(stream, at, look, changed=changed)

    def _judged(
        self, stream: str, at: Position, look: Look, *, changed: str | None = None
    ) -> tuple[Position, Look | None]:
        """Report missing entries. They are reported once, because the returned position counts them as read."""
        finding = judge(stream, at, look.state, look.total, changed=changed)
        if finding:
            report(finding, self._options)
        return Position(at.id, look.state.entries_added - look.total), look

    def _hold_to(
        self,
        limit: ReadLimit,
        store: SourceStore,
        plans: Planner,
        looks: dict[str, tuple[Position, Look | None]],
    ) -> None:
        """Reduce ``looks`` to the limits of one batch."""
        if isinstance(limit, ReadAllAvailable):
            return
        wanted = {stream: look.taken for stream, (_at, look) in looks.items() if look}
        first = sorted(wanted, key=lambda stream: looks[stream][0].id)

        def weigh(streams: Iterable[str]) -> dict[str, int]:
            found = {stream: looks[stream][1] for stream in streams}
            return store.entry_sizes(
                {stream: look.state.length if look else 0 for stream, look in found.items()}
            )

        allowed = allowances(
            {stream: wanted[stream] for stream in first},
            entries=limit.max_rows if isinstance(limit, ReadMaxRows) else None,
            size=self._options.max_bytes_per_trigger,
            weigh=weigh,
        )
        limited: dict[str, tuple[Position, Look, int]] = {}
        for stream, share in allowed.items():
            at, look = looks[stream]
            if look is None or share >= look.taken:
                continue
            if share:
                limited[stream] = at, look, share
            else:
                looks[stream] = at, look._replace(to=at.id, taken=0)
        for stream, shorter in plans.limit_all(limited).items():
            at = limited[stream][0]
            if shorter is None or was_set_back(at, shorter.state):
                looks[stream] = at, None  # the next batch reports it
            else:
                looks[stream] = self._judged(stream, at, shorter)


# --- options that a streaming read refuses --------------------------------------------------------


_BATCH_ONLY: Final = {
    "endingId or endingTimestamp": "a streaming query has no end; remove it, or use read",
    "inferSchema": "a query's columns must not change when it is restarted. Infer them once, with a "
    "batch read, and pass the result to readStream with .schema(…)",
    "pushdown": "Spark does not push filters into a streaming read; remove it",
}


def refuse_batch_options(options: SourceOptions) -> None:
    """Raise `DeclarationError` for an option that is only for batch reads."""
    asked = {
        "endingId or endingTimestamp": options.ending != "latest",
        "inferSchema": options.infer_schema,
        "pushdown": options.pushdown,
    }
    for name, given in asked.items():
        if given:
            raise DeclarationError(f"{name} is for batch reads: {_BATCH_ONLY[name]}")


# --- maxEntriesPerTrigger and maxBytesPerTrigger --------------------------------------------------
#
# The number of entries is exact. Bytes are an estimate, because the driver reads no bodies: an entry's size is its
# stream's memory divided by the number of entries. A batch with anything to read has at least one entry.


def allowances(
    wanted: Mapping[str, int],
    *,
    entries: int | None,
    size: int | None,
    weigh: Callable[[Sequence[str]], Mapping[str, int]],
) -> dict[str, int]:
    """Return the number of entries that a batch may take from each stream, divided evenly as in `shares`.

    ``entries`` and ``size`` (bytes) limit the whole batch; None means unlimited. ``weigh`` returns the bytes per
    entry by stream, and is called only if there is a ``size``.

    >>> allowances({"a": 9, "b": 9}, entries=None, size=1000, weigh=lambda _: {"a": 100, "b": 300})
    {'a': 5, 'b': 1}
    """
    allowed = dict(wanted)
    hungry = [stream for stream, want in wanted.items() if want]
    if size is not None and hungry:
        weights = weigh(hungry)
        heavy = {stream: wanted[stream] * weights[stream] for stream in hungry}
        dealt = shares(heavy, size)
        allowed |= {stream: dealt[stream] // weights[stream] for stream in hungry}
        if not any(allowed.values()):
            allowed[hungry[0]] = 1
    return allowed if entries is None else shares(allowed, entries)


def shares(wanted: Mapping[str, int], limit: int) -> dict[str, int]:
    """Divide ``limit`` evenly among streams. A share that one stream does not need goes to the others.

    No stream waits for another stream, even one with a long backlog. If ``limit`` is less than the number of
    streams, the first streams get one each.

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
