"""Reports the progress of Spark's queries, and their lags on Headwater's source, to Prometheus and in the log.

All numbers come from Spark's own progress, lags from the offsets in it; no request is sent to a store.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from headwater.common.prometheus import Metric, MetricSample, counter, families, gauge, serve
from headwater.errors import DeclarationError
from headwater.spark.core.causes import cause_in
from headwater.spark.log_mode.offsets import positions_of, spans_of

_log = logging.getLogger("headwater.spark")

_GROUP: Final = "group"


class SourceLag(NamedTuple):
    """A query's lag on one source after a batch, over all streams of the source.

    ``entries`` is the number of entries left to read that existed when the batch was planned; None if the server
    does not know it. ``seconds`` is the age of the last entry read, in the stream where it is oldest; None if no
    stream is behind, and in group mode. ``lost`` is the number of entries removed before they were read.
    """

    entries: int | None
    seconds: float | None
    lost: int


def lag_of(
    start: dict[str, Any] | None,
    end: dict[str, Any],
    latest: dict[str, Any] | None,
    *,
    now: float,
) -> SourceLag:
    """Return the lag after a batch from ``start`` to ``end``; ``latest`` is the end of the source.

    ``now`` is the Unix time in seconds. Raises `DeclarationError` for offsets of another source.

    >>> def at(number, before=0):
    ...     return {"s": {"from": f"{before}-0", "added_from": before, "to": f"{number}-0", "added_to": number}}
    >>> lag_of(at(5), at(9, 7), at(12), now=12.0)
    SourceLag(entries=3, seconds=11.991, lost=2)
    """
    if _GROUP in end:
        streams = (latest or {}).get("streams", {}).values()
        lags = [one.get("lag") for one in streams]
        known = [int(lag) for lag in lags if lag is not None]
        return SourceLag(sum(known) if len(known) == len(lags) else None, None, 0)
    read, ahead = positions_of(end), positions_of(latest or {})
    behind = {
        stream: at.added - read[stream].added
        for stream, at in ahead.items()
        if stream in read and at.added > read[stream].added
    }
    oldest = min((read[stream].id.ms for stream in behind), default=None)
    before = positions_of(start or {})
    lost = sum(
        max(0, span.start.added - before[stream].added)
        for stream, span in spans_of(end).items()
        if stream in before and before[stream].added
    )
    seconds = None if oldest is None else max(0.0, now - oldest / 1000)
    return SourceLag(sum(behind.values()), seconds, lost)


@dataclass
class QueryFacts:
    """The state and counts of one query; ``lags`` and ``lost`` are keyed by the source's index in Spark's progress."""

    name: str
    running: bool = True
    rows: int = 0
    batches: int = 0
    batch_seconds: float = 0.0
    lags: dict[int, SourceLag] = field(default_factory=dict)
    lost: dict[int, int] = field(default_factory=dict)


class QueryListener(StreamingQueryListener):
    """Reports the progress of a session's queries.

        listener = headwater.spark.QueryListener(metrics=9108)
        spark.streams.addListener(listener)

    - ``metrics``: the port for Prometheus; 0 lets the system choose one (see `port`), None serves no metrics.
    - ``host``: the address on which the metrics are served.
    - ``log``: if true, each batch with rows is logged to ``headwater.spark``, and each loss as a warning.

    Raises `ListenError` if the port is not available, or prometheus-client is not installed.
    """

    def __init__(
        self, *, metrics: int | None = None, host: str = "127.0.0.1", log: bool = True
    ) -> None:
        self._queries: dict[str, QueryFacts] = {}
        self._lock = threading.Lock()
        self._writes = log
        self._end: Callable[[], None] = lambda: None
        self.port: int | None = None
        """The port on which metrics are served; None if they are not served."""
        if metrics is not None:
            self.port, self._end = serve(
                self, port=metrics, host=host, option="metrics", extra="spark"
            )

    def queries(self) -> list[QueryFacts]:
        """Return the state and counts of each query, including ended ones."""
        with self._lock:
            return list(self._queries.values())

    def close(self) -> None:
        """Stop serving metrics."""
        self._end()
        self._end = lambda: None

    # --- called by Spark --------------------------------------------------------------------------

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Record that a query is running."""
        with self._lock:
            facts = self._queries.setdefault(str(event.id), QueryFacts(event.name or str(event.id)))
            facts.running = True

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Count a batch, and record the query's lags."""
        progress = event.progress
        now = time.time()
        lags = {
            place: lag
            for place, source in enumerate(progress.sources)
            if (lag := _lag(source, now)) is not None
        }
        with self._lock:
            facts = self._queries.setdefault(
                str(progress.id), QueryFacts(progress.name or str(progress.id))
            )
            facts.rows += progress.numInputRows
            facts.batches += 1
            facts.batch_seconds = progress.durationMs.get("triggerExecution", 0) / 1000
            facts.lags = lags
            for place, lag in lags.items():
                facts.lost[place] = facts.lost.get(place, 0) + lag.lost
        if self._writes:
            _write(facts, progress.batchId, progress.numInputRows)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Record that a query has nothing left to read."""
        with self._lock:
            facts = self._queries.get(str(event.id))
            if facts is not None:
                facts.lags = {place: SourceLag(0, None, 0) for place in facts.lags}

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Record that a query has ended."""
        with self._lock:
            facts = self._queries.get(str(event.id))
            if facts is not None:
                facts.running = False
        if self._writes and facts is not None and event.exception:
            _log.error("query %s ended: %s", facts.name, cause_in(event.exception))

    # --- called by Prometheus ---------------------------------------------------------------------

    def collect(self) -> Iterator[Any]:
        """Return the metric families."""
        samples = (sample for query in self.queries() for sample in _samples(query))
        return families(samples, (*_QUERIES, _LAG_ENTRIES, _LAG_SECONDS, _LOST))


_QUERY, _SOURCE = ("query",), ("query", "source")

_QUERIES: Final[Mapping[Metric, Callable[[QueryFacts], float]]] = {
    gauge("headwater_query_running", "1 while a query runs.", _QUERY): lambda q: q.running,
    counter("headwater_query_rows", "Rows read.", _QUERY): lambda q: q.rows,
    counter("headwater_query_batches", "Batches completed.", _QUERY): lambda q: q.batches,
    gauge("headwater_query_batch_seconds", "Duration of the last batch.", _QUERY): (
        lambda q: q.batch_seconds
    ),
}
_LAG_ENTRIES: Final = gauge(
    "headwater_query_lag_entries", "Entries left to read after the last batch.", _SOURCE
)
_LAG_SECONDS: Final = gauge(
    "headwater_query_lag_seconds",
    "Age of the last entry read, while entries are left to read; otherwise 0.",
    _SOURCE,
)
_LOST: Final = counter(
    "headwater_query_lost_entries", "Entries removed before they were read.", _SOURCE
)


def _samples(query: QueryFacts) -> Iterator[MetricSample]:
    for metric, value in _QUERIES.items():
        yield MetricSample(metric, (query.name,), value(query))
    for place, lag in query.lags.items():
        if lag.entries is not None:
            yield MetricSample(_LAG_ENTRIES, (query.name, str(place)), lag.entries)
        yield MetricSample(_LAG_SECONDS, (query.name, str(place)), lag.seconds or 0.0)
    for place, count in query.lost.items():
        yield MetricSample(_LOST, (query.name, str(place)), count)


def _lag(source: Any, now: float) -> SourceLag | None:
    """Return the lag of a source in Spark's progress; None if the source is not Headwater's."""
    try:
        start, end, latest = (
            json.loads(text) if text else None
            for text in (source.startOffset, source.endOffset, source.latestOffset)
        )
        return lag_of(start, end, latest, now=now) if isinstance(end, dict) else None
    except (ValueError, AttributeError, TypeError, DeclarationError):
        return None


def _write(facts: QueryFacts, batch: int, rows: int) -> None:
    if rows:
        _log.info(
            "query %s: batch %d, %s rows in %.1f s%s",
            facts.name,
            batch,
            f"{rows:,}",
            facts.batch_seconds,
            "".join(
                f"; {lag.entries:,} entries behind ({lag.seconds or 0:,.1f} s)"
                for lag in facts.lags.values()
                if lag.entries
            ),
        )
    for lag in facts.lags.values():
        if lag.lost:
            _log.warning(
                "query %s: batch %d: %d entries were removed before they were read",
                facts.name,
                batch,
                lag.lost,
            )
