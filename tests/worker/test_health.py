"""``headwater work --health`` answers 200 while every worker makes progress, else 503 with the problems."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import sys
import urllib.request
from collections.abc import AsyncIterator, Callable
from dataclasses import fields
from typing import Any

import pytest
import redis.asyncio
from prometheus_client.parser import text_string_to_metric_families

from headwater.errors import HeadwaterError
from headwater.worker.declare.statistics import ConsumerProgress, ConsumerStatistics, Counters
from headwater.worker.observe import health
from headwater.worker.observe.health import Health, WorkerHealth, judged
from headwater.worker.observe.metrics import metrics_text
from headwater.worker.observe.supervisor_pipe import ReceivedReports, Reports, reported
from tests.worker import shop
from tests.worker.apps import eventually
from tests.worker.processes import WorkerProcess, supervised, workers_of

WELL = WorkerHealth(0, 1, [], [])


async def ask(port: int, request: bytes) -> tuple[str, dict[str, Any]]:
    """Send a request. Returns the status line and the body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    head, _blank, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return head.split(b"\r\n")[0].decode(), json.loads(body) if body else {}


GET = b"GET /healthz HTTP/1.1\r\nHost: here\r\n\r\n"


# --- the answers ----------------------------------------------------------------------------------


class Served:
    """A `Health` that listens, and the workers that it reports."""

    def __init__(self) -> None:
        self.workers = [WELL]
        self.health = Health("127.0.0.1:0", lambda: self.workers, metrics_text)

    @property
    def port(self) -> int:
        server = self.health._server
        assert server is not None
        port: int = server.sockets[0].getsockname()[1]
        return port

    async def metrics(self) -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        _head, _blank, text = (await reader.read()).decode().partition("\r\n\r\n")
        writer.close()
        return text


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    one = Served()
    await one.health.start()
    yield one
    one.health.close()


async def test_the_answer_is_200_while_no_worker_has_a_problem(served: Served) -> None:
    assert await ask(served.port, GET) == (
        "HTTP/1.1 200 OK",
        {
            "status": "ok",
            "workers": [{"worker": 0, "pid": 1, "problems": [], "consumers": []}],
        },
    )
    served.workers = [WELL, WELL._replace(worker=1, problems=["the reader of o/g is late"])]
    status, body = await ask(served.port, GET)
    assert status == "HTTP/1.1 503 Service Unavailable"
    assert body["status"] == "late"
    assert body["workers"][1]["problems"] == ["the reader of o/g is late"]


async def test_metrics_have_the_counters_of_every_consumer(served: Served) -> None:
    # Given a worker that has reported, and one that has ended
    consumer = {"stream": "orders", "group": "g", "running": 2, "handled": 17, "reader_age": 0.5}
    served.workers = [
        WELL._replace(consumers=[consumer]),
        WELL._replace(worker=1, pid=None, problems=["it has ended, and will be restarted"]),
    ]
    # When the metrics are read
    text = await served.metrics()
    # Then they have what was reported, and nothing else
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert samples == {
        ("headwater_worker_up", "0"): 1.0,
        ("headwater_worker_up", "1"): 0.0,
        ("headwater_worker_running", "g", "orders", "0"): 2.0,
        ("headwater_worker_reader_age_seconds", "g", "orders", "0"): 0.5,
        ("headwater_worker_handled_total", "g", "orders", "0"): 17.0,
    }


async def test_every_counter_of_a_worker_is_a_metric(served: Served) -> None:
    # Given a worker that reports all its counters
    counters = {one.name: number for number, one in enumerate(fields(Counters))}
    served.workers = [WELL._replace(consumers=[{"stream": "s", "group": "g", **counters}])]
    # When the metrics are read, then each is there, with the text of its documentation
    families = {one.name: one for one in text_string_to_metric_families(await served.metrics())}
    for name, value in counters.items():
        family = families[f"headwater_worker_{name}"]
        assert [sample.value for sample in family.samples] == [value]
        assert len(family.documentation) > 20
    lost = families["headwater_worker_gone_unread"]
    assert lost.documentation.startswith("Entries deleted or trimmed before the group read them")


async def test_metrics_without_their_package_name_the_extra(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    status, body = await ask(served.port, b"GET /metrics HTTP/1.1\r\n\r\n")
    assert status == "HTTP/1.1 501 Not Implemented"
    assert "pip install 'headwater[metrics]'" in body["error"]


async def test_other_requests_are_refused(served: Served) -> None:
    for request, expected in (
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 404 Not Found"),
        (b"POST /healthz HTTP/1.1\r\n\r\n", "HTTP/1.1 405 Method Not Allowed"),
        (b"\r\n\r\n", "HTTP/1.1 405 Method Not Allowed"),
        (b"HEAD /healthz?a=b HTTP/1.0\r\n\r\n", "HTTP/1.1 200 OK"),
    ):
        assert (await ask(served.port, request))[0] == expected


async def test_the_size_of_a_request_is_limited(served: Served) -> None:
    with pytest.raises((ConnectionError, json.JSONDecodeError)):
        status, _body = await ask(served.port, b"GET /" + b"x" * 100_000 + b"\r\n\r\n")
        assert status == ""
        raise ConnectionError
    assert (await ask(served.port, GET))[0] == "HTTP/1.1 200 OK"


async def test_clients_that_send_nothing_are_disconnected(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given as many silent clients as it accepts
    monkeypatch.setattr(health, "REQUEST_SECONDS", 0.2)
    silent = [
        await asyncio.open_connection("127.0.0.1", served.port) for _ in range(health.MOST_CLIENTS)
    ]
    # Then one more is disconnected at once, and the silent ones after a timeout
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    assert await reader.read() == b""
    writer.close()
    for reader, writer in silent:
        assert await reader.read() == b""
        writer.close()
    assert (await ask(served.port, GET))[0] == "HTTP/1.1 200 OK"


async def test_an_invalid_or_used_address_is_an_error() -> None:
    for wrong in ("9100", ":9100", "here:", "here:port", "here:99999"):
        with pytest.raises(HeadwaterError, match="is not HOST:PORT"):
            Health(wrong, list, metrics_text)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(HeadwaterError, match=f"127.0.0.1:{port}: cannot listen there"):
            await Health(f"127.0.0.1:{port}", list, metrics_text).start()


# --- how a worker is judged -----------------------------------------------------------------------


@pytest.fixture
def received() -> Any:
    one = ReceivedReports()
    yield one
    one.close()


def report(received: ReceivedReports, *, late: list[str], joined: bool = True) -> None:
    reports = Reports(received.writer)
    progress = ConsumerProgress(0.5, 0, 1.5, 3600, 1, 1, joined)
    reports.progress(0, ConsumerStatistics("bill", "orders", "g", Counters(), progress, late))
    received.close_writer()
    assert received.read() is False


def test_a_worker_that_reports_in_time_has_no_problem(received: ReceivedReports) -> None:
    report(received, late=[])
    found = judged(0, 17, received, now=received.heard_at + 1)
    assert found.problems == []
    assert found.consumers[0]["oldest_handler_age"] == 3600


def test_a_worker_that_is_late_silent_starting_or_dead_has_a_problem(
    received: ReceivedReports,
) -> None:
    assert judged(0, 17, received, now=received.heard_at).problems == ["it is starting"]
    assert "it has ended" in judged(0, None, None, now=0).problems[0]
    report(received, late=["settler"])
    late = judged(0, 17, received, now=received.heard_at + 1)
    assert late.problems == ["the settler of orders/g is late"]
    silent = judged(0, 17, received, now=received.heard_at + 60)
    assert "it has not reported for 60 s" in silent.problems[0]


def test_a_worker_that_waits_for_its_store_has_a_problem(received: ReceivedReports) -> None:
    report(received, late=[], joined=False)
    waiting = judged(0, 17, received, now=received.heard_at)
    assert waiting.problems == ["orders/g has not joined its group yet"]


def test_a_report_with_long_names_is_one_atomic_write_to_the_pipe(
    received: ReceivedReports,
) -> None:
    reports = Reports(received.writer)
    name = "\N{PILE OF POO}" * 10_000
    progress = ConsumerProgress(1e9, 1e9, 1e9, 1e9, 10**6, 10**6)
    late = ["reader", "settler", "lease renewer"]
    reports.progress(0, ConsumerStatistics(name, name, name, Counters(), progress, late))
    os.write(received.writer, b'not ours\n["progress"]\n[]\n17\n')
    reports.settled()
    received.close_writer()
    received.read()
    assert len(received.progress) == 1
    assert received.settled


@pytest.mark.parametrize(
    "name", ["orders", "caf\udce9", "x" * 100_000], ids=["short", "not UTF-8", "long"]
)
def test_the_supervisor_hears_of_groups_whatever_their_names(
    received: ReceivedReports, name: str
) -> None:
    # Given a worker that has joined a group, and handed back a suspected poison message
    reports = Reports(received.writer)
    reports.joined(name, "g")
    reports.suspect(name, "g")
    received.close_writer()
    received.read()
    assert received.joined == {(reported(name), "g")}

    # When the supervisor reports the group to the quarantine process
    quarantine = Reports()
    for group in received.suspected:
        quarantine.heard(json.dumps(group).encode() + b"\n")

    # Then that process finds its consumer
    assert quarantine.suspected_in == {(reported(name), reported("g"))}


# --- processes ------------------------------------------------------------------------------------


async def port_of(parent: WorkerProcess) -> int:
    found = await eventually(lambda: re.search(r"health at http://127.0.0.1:(\d+)", parent.log()))
    return int(found[1])


@pytest.fixture
def url(store_url: Callable[[str], str]) -> str:
    """The address of a store. One kind is enough, because health checks do not use it."""
    return store_url("headwater")


@pytest.mark.slow
async def test_health_is_503_until_every_worker_reads_and_while_one_is_dead(url: str) -> None:
    with supervised(url, "--workers", "2", "--health", "127.0.0.1:0") as parent:
        port = await port_of(parent)
        assert await status(port) == "503"
        await eventually(lambda: _is(port, "200"))
        text = await asyncio.to_thread(_page, f"http://127.0.0.1:{port}/metrics")
        assert 'headwater_worker_up{worker="1"} 1.0' in text
        os.kill(workers_of(parent.pid)[1], signal.SIGKILL)
        await eventually(lambda: _is(port, "503"))
        await eventually(lambda: _is(port, "200"))
        parent.signal(signal.SIGTERM)
        parent.wait()


@pytest.mark.slow
async def test_health_reports_a_suspended_worker_and_accepts_a_long_handler(
    url: str,
) -> None:
    with supervised(url, "--health", "127.0.0.1:0", SHOP_CLAIM_AFTER="60s") as parent:
        # Given a worker with a handler that hangs, which is not a problem
        port = await port_of(parent)
        fields: Any = dict(shop.orders.codec.encode(shop.Order(1, do="hang")))
        async with redis.asyncio.Redis.from_url(url) as look:
            await look.xadd("orders", fields)
        await eventually(lambda: _running(port))
        assert await status(port) == "200"

        # When the whole process is suspended, then health reports it
        (worker,) = workers_of(parent.pid)
        os.kill(worker, signal.SIGSTOP)
        await eventually(lambda: _is(port, "503"))
        os.kill(worker, signal.SIGCONT)
        await eventually(lambda: _is(port, "200"))

        parent.signal(signal.SIGTERM)
        await eventually(lambda: "for 1 running bill" in parent.log())
        parent.signal(signal.SIGTERM)
        parent.wait()


async def status(port: int) -> str:
    line, _body = await ask(port, GET)
    return line.split()[1]


async def _is(port: int, expected: str) -> bool:
    return await status(port) == expected


async def _running(port: int) -> bool:
    _line, body = await ask(port, GET)
    consumers = [one for worker in body["workers"] for one in worker["consumers"]]
    return any(one["running"] == 1 and one["oldest_handler_age"] > 0 for one in consumers)


@pytest.mark.slow
async def test_an_address_in_use_ends_headwater_work(url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with supervised(url, "--health", f"127.0.0.1:{port}") as parent:
            assert parent.wait() == 1
            assert f"headwater: --health 127.0.0.1:{port}: cannot listen there" in parent.log()


def _page(address: str) -> str:
    with urllib.request.urlopen(address, timeout=20) as reply:
        text: str = reply.read().decode()
        return text
