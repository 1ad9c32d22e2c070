"""``headwater serve --metrics HOST:PORT``: metrics and health of the server in this process.

    /metrics   the metrics of `headwater exporter`
    /healthz   200 while the event loop and the fsyncs of the journal make progress, and commands are answered
    /readyz    200 while, in addition, the data is loaded and writes are accepted

Rule. Separate threads answer these requests, so that a server that hangs is still reported.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from headwater.cli.exporter import StoreCollector, readiness_page
from headwater.client.sync.connect import connect
from headwater.common.addresses import address_text, host_and_port
from headwater.common.prometheus import serve
from headwater.errors import HeadwaterError
from headwater.groups.protocol.operation import Operation, run
from headwater.server.running import Server

log = logging.getLogger("headwater.metrics")

BEAT_SECONDS = 1.0

LATE_SECONDS = 10.0
"""Seconds after which an event loop that has not run is unhealthy. Commands take less time."""


class _Heartbeat:
    """Measures whether the event loop in which the object was created still runs."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._beat()

    def _beat(self) -> None:
        self._at = time.monotonic()
        self._timer = self._loop.call_later(BEAT_SECONDS, self._beat)

    @property
    def late(self) -> float:
        """Seconds since the last beat if they exceed `LATE_SECONDS`, otherwise 0."""
        age = time.monotonic() - self._at
        return age if age > LATE_SECONDS else 0.0

    def end(self) -> None:
        self._timer.cancel()


class _Pages:
    """The pages of one server."""

    def __init__(self, server: Server, heartbeat: _Heartbeat) -> None:
        self._server = server
        self._heartbeat = heartbeat
        self._client = connect(node=server.node)

    def ask(self, operation: Operation[Any]) -> Any:
        """Run an operation on the store. Raises `HeadwaterError` if the store stays locked for `LATE_SECONDS`."""
        lock = self._server.node.lock
        if not lock.acquire(timeout=LATE_SECONDS):
            raise HeadwaterError(f"the store has been busy for {LATE_SECONDS:g} s")
        lock.release()
        return run(self._client, operation)

    def healthy(self) -> tuple[bool, Mapping[str, object]]:
        """Return whether the event loop and the journal make progress, and the document of ``/healthz``."""
        if problems := list(self._problems()):
            return False, {"status": "late", "problems": problems}
        return True, {"status": "ok"}

    def _problems(self) -> Iterator[str]:
        node = self._server.node
        if late := self._heartbeat.late:
            yield f"the event loop is late by {late:.0f} s"
        if node.state.poisoned is not None:
            yield f"no command is answered until a restart: {node.state.poisoned}"
        elif node.journal is not None:
            late = node.journal.statistics().flusher_late_s
            if late > LATE_SECONDS:
                yield f"the journal has not been flushed to disk for {late:.0f} s"

    def ready(self) -> tuple[bool, Mapping[str, object]]:
        """Return whether the server is healthy and can be used, and the document of ``/readyz``."""
        well, document = self.healthy()
        return readiness_page(self.ask, "not ready") if well else (well, document)


@contextmanager
def metrics_served(server: Server) -> Iterator[None]:
    """Serve the metrics of a listening server within the block, at the address of its setting ``metrics``.

    Raises `ListenError` if the address cannot be used.
    """
    host, port = host_and_port(server.config.metrics, "metrics")
    heartbeat = _Heartbeat()
    pages = _Pages(server, heartbeat)
    found, end = serve(
        StoreCollector(pages.ask),
        port=port,
        host=host,
        option="metrics",
        pages={"/healthz": pages.healthy, "/readyz": pages.ready},
    )
    log.info("metrics at http://%s/metrics", address_text(host, found))
    try:
        yield
    finally:
        heartbeat.end()
        end()
