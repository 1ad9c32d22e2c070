"""A run's progress for Prometheus: ``headwater pipeline run --metrics 9108``.

Every scrape reads the current `Progress`; this module keeps no counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from headwater.common.prometheus import serve
from headwater.spark.pipeline.progress import Progress, TableProgress

Families = dict[str, tuple[str, Callable[[TableProgress], float]]]

_COUNTERS: Final[Families] = {
    "rows": ("Rows that were written.", lambda t: t.rows),
    "batches": ("Batches that were written.", lambda t: t.batches),
    "writing_seconds": ("Time spent writing.", lambda t: t.seconds),
    "rows_dropped": ("Rows that an expectation dropped.", lambda t: t.dropped),
    "rows_quarantined": ("Rows that an expectation quarantined.", lambda t: t.quarantined),
}

_GAUGES: Final[Families] = {
    "batch_rows": ("Rows of the last batch.", lambda t: t.batch_rows),
    "batch_seconds": ("Time that the last batch took.", lambda t: t.batch_seconds),
    "last_batch_timestamp_seconds": ("Unix time at which the last batch was written.", lambda t: t.at),
}


class Collector:
    """The collector that prometheus_client calls at each scrape."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def collect(self) -> Iterator[Any]:
        """Yield all families, from one reading of the progress."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        tables = self._progress.tables()
        streamed = [table for table in tables if table.mode != "complete"]
        for name, (words, value) in _COUNTERS.items():
            counter = CounterMetricFamily(f"headwater_pipeline_{name}", words, labels=["table"])
            for table in streamed:
                counter.add_metric([table.name], value(table))
            yield counter
        for name, (words, value) in _GAUGES.items():
            gauge = GaugeMetricFamily(f"headwater_pipeline_{name}", words, labels=["table"])
            for table in tables:
                gauge.add_metric([table.name], value(table))
            yield gauge
        held = GaugeMetricFamily(
            "headwater_pipeline_table_rows", "Rows of a table of mode complete.", labels=["table"]
        )
        for table in tables:
            if table.mode == "complete":
                held.add_metric([table.name], table.rows)
        yield held
        yield _violations(tables)
        yield from _lags(streamed)


def _violations(tables: list[TableProgress]) -> Any:
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(
        "headwater_pipeline_violations",
        "Rows since the run began that violate an expectation; of a complete table, its rows now.",
        labels=["table", "expectation"],
    )
    for table in tables:
        for expectation, count in table.violations.items():
            family.add_metric([table.name, expectation], count)
    return family


def _lags(tables: list[TableProgress]) -> Iterator[Any]:
    from prometheus_client.core import GaugeMetricFamily

    labels = ["table", "source", "stream"]
    entries = GaugeMetricFamily(
        "headwater_pipeline_lag_entries",
        "Entries left to read; rows if the source is a table, which has no stream.",
        labels=labels,
    )
    seconds = GaugeMetricFamily(
        "headwater_pipeline_lag_seconds",
        "Age of the oldest entry left to read; 0 if there is none.",
        labels=labels,
    )
    for table in tables:
        for lag in table.lags:
            if lag.entries is not None:
                entries.add_metric([table.name, lag.source, lag.stream or ""], lag.entries)
            seconds.add_metric([table.name, lag.source, lag.stream or ""], lag.seconds or 0.0)
    yield entries
    yield seconds


@contextmanager
def served(progress: Progress, *, port: int, host: str = "127.0.0.1") -> Iterator[int]:
    """Serve ``progress`` at ``http://host:port/metrics``; yield the port, which 0 lets the system choose.

    Raises `ListenError` if the port is not available, or prometheus-client is not installed.
    """
    found, end = serve(Collector(progress), port=port, host=host, option="--metrics", extra="spark")
    try:
        yield found
    finally:
        end()
