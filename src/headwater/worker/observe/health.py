"""Reports over HTTP whether every worker makes progress: ``headwater work --health 127.0.0.1:9100``.

    GET /healthz ──▶ 200 {"status": "ok",   "workers": [...]}
                     503 {"status": "late", "workers": [...]}
                     503 {"status": "hung", "workers": [...]}
    GET /metrics ──▶ 200 metrics for Prometheus (`metrics`)

Rule 1. A worker is healthy while its reader, its settler and its lease renewer finish their rounds in time. A
        process that runs without making progress is not healthy.
Rule 2. A handler may run for any time, and the response shows its age. But a consumer whose handlers all hang
        (`SlowHandlers.hung`) is not healthy.
Rule 3. The size and the duration of a request are limited, and so is the number of clients.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from headwater.common.addresses import address_text, host_and_port
from headwater.errors import HeadwaterError
from headwater.worker.observe.supervisor_pipe import ReceivedReports

log = logging.getLogger("headwater.worker")

PATH = "/healthz"
METRICS_PATH = "/metrics"

SILENT_SECONDS = 10.0
"""Seconds without a report after which a worker's event loop counts as blocked. A worker reports every second."""

REQUEST_SECONDS = 5.0
REQUEST_BYTES = 8_192
MOST_CLIENTS = 64


class WorkerHealth(NamedTuple):
    """The health of one worker process. ``problems`` is empty if it is healthy."""

    worker: int
    pid: int | None
    problems: Sequence[str]
    consumers: Sequence[dict[str, Any]]


def judged(
    worker: int, pid: int | None, reports: ReceivedReports | None, *, now: float
) -> WorkerHealth:
    """Return the health of a worker process at ``now``, in seconds of the monotonic clock."""
    if pid is None or reports is None:
        return WorkerHealth(worker, None, ["it has ended, and will be restarted"], [])
    consumers = [reports.progress[number] for number in sorted(reports.progress)]
    problems = []
    silent = now - reports.heard_at
    if not consumers:
        problems.append("it is starting")
    elif silent > SILENT_SECONDS:
        why = reports.silence or "its event loop is blocked"
        problems.append(f"it has not reported for {silent:.0f} s: {why}")
    for one in consumers:
        name = f"{one['stream']}/{one['group']}"
        if not one["joined"]:
            problems.append(f"{name} has not joined its group yet")
        problems += [f"the {part} of {name} is late" for part in one["late"]]
        if one["hung"]:
            problems.append(f"hung: {name}: {one['hung']}")
    return WorkerHealth(worker, pid, problems, consumers)


def _hung(workers: Sequence[WorkerHealth]) -> bool:
    return any(one["hung"] for worker in workers for one in worker.consumers)


class Health:
    """Answers HTTP requests with the health of the workers, which ``look`` returns, or with the text that
    ``metrics`` makes of this health. ``metrics`` may raise `HeadwaterError`."""

    def __init__(
        self,
        address: str,
        look: Callable[[], Sequence[WorkerHealth]],
        metrics: Callable[[Sequence[WorkerHealth]], bytes],
    ) -> None:
        self._host, self._port = host_and_port(address, "--health")
        self._look = look
        self._text = metrics
        self._clients = 0
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen. Raises `HeadwaterError` if the address cannot be used."""
        try:
            self._server = await asyncio.start_server(
                self._serve, self._host, self._port, limit=REQUEST_BYTES
            )
        except OSError as error:
            raise HeadwaterError(
                f"--health {self._host}:{self._port}: cannot listen there: {error.strerror}"
            ) from error
        host, port = self._server.sockets[0].getsockname()[:2]
        log.info("health at http://%s%s", address_text(host, port), PATH)

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients += 1
        try:
            if self._clients <= MOST_CLIENTS:
                async with asyncio.timeout(REQUEST_SECONDS):
                    writer.write(self._answer(await _request_line(reader)))
                    await writer.drain()
        except (TimeoutError, OSError, ValueError, EOFError):
            pass  # a client that does not send a request, or does not read the response
        finally:
            self._clients -= 1
            writer.close()

    def _answer(self, request: bytes) -> bytes:
        method, _space, rest = request.partition(b" ")
        body: dict[str, Any]
        target = rest.partition(b" ")[0].partition(b"?")[0]
        if method not in {b"GET", b"HEAD"}:
            status, body = "405 Method Not Allowed", {"error": "expected GET"}
        elif target == METRICS_PATH.encode():
            return self._metrics(head=method == b"HEAD")
        elif target != PATH.encode():
            status, body = "404 Not Found", {"error": f"expected {PATH} or {METRICS_PATH}"}
        else:
            workers = self._look()
            well = bool(workers) and not any(one.problems for one in workers)
            status = "200 OK" if well else "503 Service Unavailable"
            body = {
                "status": "ok" if well else "hung" if _hung(workers) else "late",
                "workers": [one._asdict() for one in workers],
            }
        content = json.dumps(body).encode() + b"\n"
        return _response(status, "application/json", content, head=method == b"HEAD")

    def _metrics(self, *, head: bool) -> bytes:
        try:
            text = self._text(self._look())
        except HeadwaterError as error:
            content = json.dumps({"error": str(error)}).encode() + b"\n"
            return _response("501 Not Implemented", "application/json", content, head=head)
        kind = "text/plain; version=0.0.4; charset=utf-8"
        return _response("200 OK", kind, text, head=head)


def _response(status: str, kind: str, content: bytes, *, head: bool) -> bytes:
    words = (
        f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {len(content)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return words.encode() + (b"" if head else content)


async def _request_line(reader: asyncio.StreamReader) -> bytes:
    """Read a whole request and return its first line. Raises `ValueError` if it is too long."""
    head = await reader.readuntil(b"\r\n\r\n")
    return head.partition(b"\r\n")[0]
