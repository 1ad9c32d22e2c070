"""Metrics of worker processes for Prometheus, served by ``headwater work --health`` at ``/metrics``.

Counters are those of `statistics.Counters`. A process that is started again begins at 0, as Prometheus expects.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from headwater.errors import HeadwaterError
from headwater.worker.health import WorkerHealth

_GAUGES: Final = {
    "running": "Handlers that run.",
    "owned": "Entries that the process owns: running, waiting for a handler, or being settled.",
    "oldest_handler_age": "Seconds that the oldest running handler has been running.",
    "reader_age": "Seconds since the last read that the store answered.",
    "settler_age": "Seconds that settlements have been waiting for the store.",
    "renewer_age": "Seconds since all leases were renewed.",
    "loop_delay": "Seconds that the event loop took lately to run what was ready.",
}
"""Gauges of a consumer, by their names in a progress report."""

_COUNTERS: Final = {
    "received": "Entries read, new and claimed.",
    "claimed": "Entries read that another consumer had owned, or that were delayed.",
    "handled": "Deliveries that were acknowledged after their handler returned.",
    "failed": "Handlers that raised, or ran longer than their timeout.",
    "retried": "Deliveries after which the entry is delivered again.",
    "dead": "Deliveries that ended as dead letters.",
    "expired": "Entries that no worker started within their expires.",
    "limited": "Deliveries given back uncounted, because the entry has to wait for a limit.",
    "handed_back": "Deliveries given back uncounted.",
    "lost": "Deliveries whose entry another worker owned before they were settled.",
    "overtaken": "Handlers that returned after another worker had settled the entry.",
    "published": "Results of handlers that were added to their stream.",
}
"""Counters of a consumer, by their names in a progress report."""

_LABELS = ("worker", "stream", "group")


def metrics_text(workers: Sequence[WorkerHealth]) -> bytes:
    """Return the metrics in Prometheus's text format.

    Raises `HeadwaterError` if prometheus-client is not installed.
    """
    try:
        from prometheus_client import CollectorRegistry, generate_latest
    except ImportError as error:
        raise HeadwaterError(
            f"/metrics needs prometheus-client ({error}): pip install 'headwater[metrics]'"
        ) from error
    registry = CollectorRegistry()
    registry.register(_WorkerCollector(workers))
    text: bytes = generate_latest(registry)
    return text


class _WorkerCollector:
    def __init__(self, workers: Sequence[WorkerHealth]) -> None:
        self._workers = workers

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        up = GaugeMetricFamily(
            "headwater_worker_up", "1 if the process runs and makes progress.", labels=["worker"]
        )
        for one in self._workers:
            up.add_metric([str(one.worker)], float(one.pid is not None and not one.problems))
        yield up
        for kind, family_of in ((_GAUGES, GaugeMetricFamily), (_COUNTERS, CounterMetricFamily)):
            for name, text in kind.items():
                metric = f"{name}_seconds" if name.endswith(("_age", "_delay")) else name
                family = family_of(f"headwater_worker_{metric}", text, labels=_LABELS)
                for labels, value in self._samples(name):
                    family.add_metric(labels, value)
                yield family

    def _samples(self, name: str) -> Iterator[tuple[list[str], float]]:
        for one in self._workers:
            for consumer in one.consumers:
                if name in consumer:
                    labels = [str(one.worker), str(consumer["stream"]), str(consumer["group"])]
                    yield labels, float(consumer[name])
