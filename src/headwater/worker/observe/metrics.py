"""Metrics of worker processes for Prometheus, served by ``headwater work --health`` at ``/metrics``.

Counters are the fields of `statistics.Counters`; gauges are `loop_delay` and fields of `ConsumerProgress`. The
help texts are the docstrings of the fields. A process that is started again begins at 0, as Prometheus expects.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from headwater.common.prometheus import Metric, MetricSample, counter, families, gauge
from headwater.errors import HeadwaterError
from headwater.worker.declare.statistics import ConsumerProgress, Counters, Statistics
from headwater.worker.observe.health import WorkerHealth

_NO_METRICS: Final = ("joined", "hung")
"""Fields of a progress report that are not metrics."""


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


def _texts(kind: type) -> dict[str, str]:
    """Return the fields of a class with their docstrings, in order."""
    (declared,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(declared, ast.ClassDef), "it is the source of a class"
    found: dict[str, str] = {}
    for field, text in pairwise(declared.body):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
            assert isinstance(field.target, ast.Name), "a field"
            found[field.target.id] = " ".join(ast.literal_eval(text.value).replace("`", "").split())
    return found


_GAUGES: Final = {
    **{name: text for name, text in _texts(ConsumerProgress).items() if name not in _NO_METRICS},
    "loop_delay": _texts(Statistics)["loop_delay"],
}

_UP: Final = gauge("headwater_worker_up", "1 if the process runs and makes progress.", ("worker",))

_METRICS: Final[Mapping[str, Metric]] = {
    name: kind(
        f"headwater_worker_{name}{'_seconds' if name.endswith(('_age', '_delay')) else ''}",
        text,
        ("worker", "stream", "group"),
    )
    for kind, texts in ((gauge, _GAUGES), (counter, _texts(Counters)))
    for name, text in texts.items()
}
"""The metric of each field."""


class _WorkerCollector:
    def __init__(self, workers: Sequence[WorkerHealth]) -> None:
        self._workers = workers

    def collect(self) -> Iterator[Any]:
        samples = (sample for one in self._workers for sample in _samples(one))
        return families(samples, (_UP, *_METRICS.values()))


def _samples(one: WorkerHealth) -> Iterator[MetricSample]:
    worker = str(one.worker)
    yield MetricSample(_UP, (worker,), one.pid is not None and not one.problems)
    for consumer in one.consumers:
        labels = (worker, str(consumer["stream"]), str(consumer["group"]))
        for name, metric in _METRICS.items():
            if name in consumer:
                yield MetricSample(metric, labels, float(consumer[name]))
