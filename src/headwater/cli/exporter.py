"""``headwater exporter``: metrics of a store for Prometheus, for Headwater, Redis and Valkey.

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

log = logging.getLogger("headwater.metrics")


class StoreCollector:
    """The collector that prometheus_client calls. It reads the store at each scrape."""

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
        """Return an empty list, so that registering the collector does not scrape the store."""
        return []

    def collect(self) -> Iterator[Any]:
        """Return a family for each metric with samples; if the store cannot be read, only `UP`, which is 0."""
        from headwater.common.prometheus import MetricSample, families
        from headwater.operations.metrics import UP, samples

        try:
            found = self._ask(samples(self._pattern, consumers=self._consumers))
        except HeadwaterError as error:
            log.warning("%s", error)
            found = [MetricSample(UP, (), 0.0)]
        return families(found)


def _place(text: str) -> str:
    """Check an address and return it unchanged. Raises `HeadwaterError` if it is not HOST:PORT."""
    from headwater.common.addresses import host_and_port

    host_and_port(text, "address")
    return text


def exporter(
    *,
    listen: Annotated[
        str, Option(parser=_place, metavar="HOST:PORT", help="Address; port 0: any free port.")
    ] = "127.0.0.1:9121",
    streams: Annotated[str, Option(metavar="PATTERN", help="Pattern of the streams' names.")] = "*",
    consumers: Annotated[
        bool, Option("--consumers", help="Include metrics of each consumer.")
    ] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Serve metrics of a store for Prometheus.

    Runs until SIGTERM or SIGINT. /metrics covers the server, its streams and groups, and uses redis_exporter's names
    where they exist. /healthz answers 200 while this process works, /readyz while the store accepts what workers send.
    """
    from headwater.client.redaction import redacted
    from headwater.common.addresses import address_text, host_and_port
    from headwater.common.prometheus import serve
    from headwater.worker.observe.logs import configure_logging

    configure_logging()
    host, port = host_and_port(listen, "--listen")

    def ask(operation: Operation[Any]) -> Any:
        return query(url, operation)

    # A handler must not set a `threading.Event`: the signal may interrupt `wait`, which holds the lock of `set`.
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
    """Return whether a store can be used, and the document of ``/readyz``. ``silent`` is the document's status if the
    store does not answer."""
    from headwater.operations.readiness import readiness

    try:
        found = ask(readiness())
    except HeadwaterError as error:
        return False, {"status": silent, "problems": [str(error)]}
    status = "ready" if found.ready else "not ready"
    return found.ready, {"status": status, "problems": list(found.problems)}
