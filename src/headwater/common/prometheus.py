"""Metrics for Prometheus: their definitions, the families for prometheus-client, and a server in this process."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from socketserver import ThreadingMixIn
from typing import Any, NamedTuple, TypeAlias
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from headwater.common.addresses import address_text
from headwater.common.names import printable
from headwater.errors import ListenError

log = logging.getLogger("headwater.metrics")

Page: TypeAlias = Callable[[], tuple[bool, Mapping[str, object]]]
"""Returns True if all is well (status 200, else 503), and the JSON document of the page."""

REQUEST_SECONDS = 10.0
"""Maximum time to wait for the next bytes of a client's request, in seconds."""


class Metric(NamedTuple):
    """A metric's name, type, description and labels."""

    name: str
    kind: str
    """``gauge`` or ``counter``. prometheus-client adds ``_total`` to the name of a counter that lacks it."""
    text: str
    labels: Sequence[str] = ()


class MetricSample(NamedTuple):
    """One value of a metric."""

    metric: Metric
    labels: Sequence[str]
    value: float


def gauge(name: str, text: str, labels: Sequence[str] = ()) -> Metric:
    """Define a metric that goes up and down."""
    return Metric(name, "gauge", text, labels)


def counter(name: str, text: str, labels: Sequence[str] = ()) -> Metric:
    """Define a metric that only grows."""
    return Metric(name, "counter", text, labels)


def families(samples: Iterable[MetricSample], metrics: Iterable[Metric] = ()) -> Iterator[Any]:
    """Yield the metric families of ``samples``, as a collector must. The families of ``metrics`` come first, in
    order, even without samples."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    by_metric: dict[Metric, list[MetricSample]] = {metric: [] for metric in metrics}
    for sample in samples:
        by_metric.setdefault(sample.metric, []).append(sample)
    for metric, its in by_metric.items():
        kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
        family = kind(metric.name, metric.text, labels=metric.labels)
        for sample in its:
            family.add_metric([*map(printable, sample.labels)], sample.value)
        yield family


def serve(
    collector: Any,
    *,
    port: int,
    host: str,
    option: str,
    extra: str = "metrics",
    pages: Mapping[str, Page] | None = None,
) -> tuple[int, Callable[[], None]]:
    """Serve the metrics of ``collector`` at ``http://host:port/metrics``, and ``pages`` by their paths. With port 0,
    the system chooses one. Return the port, and a function that ends the server.

    Raises `ListenError`, which names ``option``, if it cannot listen there or prometheus-client is missing.
    ``extra`` is the extra of Headwater that installs prometheus-client.
    """
    try:
        from prometheus_client import CollectorRegistry, make_wsgi_app
    except ImportError as error:
        raise ListenError(
            f"{option} needs prometheus-client ({error}): pip install 'headwater[{extra}]'"
        ) from error
    registry = CollectorRegistry()
    registry.register(collector)
    app = _with_pages(make_wsgi_app(registry), pages or {})
    try:
        server = make_server(host, port, app, _Server6 if ":" in host else _Server, _Handler)
    except OSError as error:
        raise ListenError(
            f"{option}: cannot listen at {address_text(host, port)}: {error.strerror}; name another address or port"
        ) from error
    thread = threading.Thread(target=server.serve_forever, name="headwater-metrics", daemon=True)
    thread.start()

    def end() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return int(server.server_port), end


class _Server(ThreadingMixIn, WSGIServer):
    """Server with one thread for each request, so that a slow client does not delay the others."""

    daemon_threads = True


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = REQUEST_SECONDS

    def log_message(self, format: str, *words: Any) -> None:
        """Log a request at DEBUG, because scrapes come every few seconds."""
        log.debug(format, *words)


def _with_pages(metrics: Any, pages: Mapping[str, Page]) -> Any:
    def app(environ: Mapping[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        page = pages.get(environ["PATH_INFO"])
        if page is None:
            answer: Iterable[bytes] = metrics(environ, start)
            return answer
        fine, document = page()
        status = "200 OK" if fine else "503 Service Unavailable"
        start(status, [("Content-Type", "application/json")])
        return [json.dumps(document).encode()]

    return app
