"""``headwater exporter``: metrics of a store for Prometheus, whichever server it is.

headwater exporter --url redis://store:6379 --listen 127.0.0.1:9121
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterator, Mapping
from queue import SimpleQueue
from typing import TYPE_CHECKING, Annotated, Any

from headwater.cli.command import Option
from headwater.cli.query import DEFAULT_URL, Url, query
from headwater.errors import HeadwaterError

if TYPE_CHECKING:
    from headwater.groups.protocol.operation import Operation
    from headwater.operations.metrics import MetricSample

log = logging.getLogger("headwater.metrics")


class StoreCollector:
    """The collector that prometheus_client calls at each scrape. It reads the store at each of them."""

    def __init__(
        self,
        ask: Callable[[Operation[Any]], Any],
        pattern: str = "*",
        *,
        consumers: bool = False,
    ) -> None:
        self._ask = ask
        self._pattern = pattern
        self._consumers = consumers

    def describe(self) -> list[Any]:
        """Return nothing, so that no scrape takes place at the start."""
        return []

    def collect(self) -> Iterator[Any]:
        """Yield one family for each metric that the store has samples of."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        from headwater.common.names import printable
        from headwater.operations.metrics import UP, MetricSample, samples

        try:
            found = self._ask(samples(self._pattern, consumers=self._consumers))
        except HeadwaterError as error:
            log.warning("%s", error)
            found = [MetricSample(UP, (), 0.0)]
        by_metric: dict[Any, list[MetricSample]] = {}
        for sample in found:
            by_metric.setdefault(sample.metric, []).append(sample)
        for metric, its in by_metric.items():
            kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = kind(metric.name, metric.text, labels=metric.labels)
            for sample in its:
                family.add_metric([*map(printable, sample.labels)], sample.value)
            yield family


def _place(text: str) -> str:
    """Check an address. Raises `HeadwaterError`."""
    from headwater.common.addresses import host_and_port

    host_and_port(text, "address")
    return text


def exporter(
    *,
    listen: Annotated[
        str, Option(parser=_place, metavar="HOST:PORT", help="Where to listen; port 0: a free one.")
    ] = "127.0.0.1:9121",
    streams: Annotated[str, Option(metavar="PATTERN", help="Streams whose names match.")] = "*",
    consumers: Annotated[
        bool, Option("--consumers", help="Also metrics of each consumer.")
    ] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Serve metrics of a store for Prometheus.

    Ends at SIGTERM or SIGINT. /metrics has the server, its streams and groups, under redis_exporter's names where it has them.
    /healthz answers 200 while this process works; /readyz while the store takes what workers send.
    """
    from headwater.client.redaction import redacted
    from headwater.common.addresses import address_text, host_and_port
    from headwater.common.prometheus import serve
    from headwater.worker.observe.logs import configure_logging

    configure_logging()
    host, port = host_and_port(listen, "--listen")

    def ask(operation: Operation[Any]) -> Any:
        return query(url, operation)

    # A handler must not set a `threading.Event`: `wait`, which the signal may interrupt, holds its lock.
    signals: SimpleQueue[int] = SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda which, _frame: signals.put(which))
    pages = {
        "/healthz": lambda: (True, {"status": "ok"}),
        "/readyz": lambda: readiness_page(ask, "unreachable"),
    }
    found, end = serve(
        StoreCollector(ask, streams, consumers=consumers),
        port=port,
        host=host,
        option="--listen",
        pages=pages,
    )
    print(f"metrics of {redacted(url)} at http://{address_text(host, found)}/metrics", flush=True)
    signals.get()
    end()


def readiness_page(
    ask: Callable[[Operation[Any]], Any], silent: str
) -> tuple[bool, Mapping[str, object]]:
    """Return whether a store can be used, and the answer of ``/readyz``; ``silent`` is its status if the store does
    not answer."""
    from headwater.operations.readiness import readiness

    try:
        found = ask(readiness())
    except HeadwaterError as error:
        return False, {"status": silent, "problems": [str(error)]}
    status = "ready" if found.ready else "not ready"
    return found.ready, {"status": status, "problems": list(found.problems)}
