"""A run's progress for Prometheus: ``headwater pipeline run --metrics 9108``.

Every scrape reads the current `Progress`; this module keeps no counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

from headwater.common.prometheus import Metric, MetricSample, counter, families, gauge, serve
from headwater.spark.pipeline.progress import Progress, TableProgress

_TABLE, _LAG = ("table",), ("table", "source", "stream")

_Values: TypeAlias = Mapping[Metric, Callable[[TableProgress], float]]

_STREAMED: Final[_Values] = {
    counter("headwater_pipeline_rows", "Rows that were written.", _TABLE): lambda t: t.rows,
    counter("headwater_pipeline_batches", "Batches that were written.", _TABLE): (
        lambda t: t.batches
    ),
    counter("headwater_pipeline_writing_seconds", "Time spent writing.", _TABLE): (
        lambda t: t.seconds
    ),
    counter(
        "headwater_pipeline_rows_dropped", "Rows that an expectation dropped.", _TABLE
    ): lambda t: t.dropped,
    counter(
        "headwater_pipeline_rows_quarantined", "Rows that an expectation quarantined.", _TABLE
    ): lambda t: t.quarantined,
}
"""Metrics of tables of mode append or update."""

_EVERY: Final[_Values] = {
    gauge("headwater_pipeline_batch_rows", "Rows of the last batch.", _TABLE): (
        lambda t: t.batch_rows
    ),
    gauge("headwater_pipeline_batch_seconds", "Time that the last batch took.", _TABLE): (
        lambda t: t.batch_seconds
    ),
    gauge(
        "headwater_pipeline_last_batch_timestamp_seconds",
        "Unix time at which the last batch was written.",
        _TABLE,
    ): lambda t: t.at,
}

_COMPLETE: Final[_Values] = {
    gauge("headwater_pipeline_table_rows", "Rows of a table of mode complete.", _TABLE): (
        lambda t: t.rows
    ),
}

_VIOLATIONS: Final = gauge(
    "headwater_pipeline_violations",
    "Rows since the run began that violate an expectation; for a complete table, rows of its last rebuild.",
    ("table", "expectation"),
)
_LAG_ENTRIES: Final = gauge(
    "headwater_pipeline_lag_entries",
    "Entries left to read; rows if the source is a table, which has no stream.",
    _LAG,
)
_LAG_SECONDS: Final = gauge(
    "headwater_pipeline_lag_seconds",
    "Age of the oldest entry left to read; 0 if no entry is left.",
    _LAG,
)


class Collector:
    """The collector that prometheus_client calls at each scrape."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def collect(self) -> Iterator[Any]:
        """Return all metric families, from one snapshot of the progress."""
        several = _VIOLATIONS, _LAG_ENTRIES, _LAG_SECONDS
        return families(
            (sample for table in self._progress.tables() for sample in _samples(table)),
            (*_STREAMED, *_EVERY, *_COMPLETE, *several),
        )


def _samples(table: TableProgress) -> Iterator[MetricSample]:
    own = _COMPLETE if table.mode == "complete" else _STREAMED
    for metric, value in (*own.items(), *_EVERY.items()):
        yield MetricSample(metric, (table.name,), value(table))
    for expectation, count in table.violations.items():
        yield MetricSample(_VIOLATIONS, (table.name, expectation), count)
    for lag in () if own is _COMPLETE else table.lags:
        labels = (table.name, lag.source, lag.stream or "")
        if lag.entries is not None:
            yield MetricSample(_LAG_ENTRIES, labels, lag.entries)
        yield MetricSample(_LAG_SECONDS, labels, lag.seconds or 0.0)


@contextmanager
def served(progress: Progress, *, port: int, host: str = "127.0.0.1") -> Iterator[int]:
    """Serve ``progress`` at ``http://host:port/metrics``; with port 0 the system chooses one. Yield the port.

    Raises `ListenError` if the port is not available, or prometheus-client is not installed.
    """
    found, end = serve(Collector(progress), port=port, host=host, option="--metrics", extra="spark")
    try:
        yield found
    finally:
        end()
