"""`headwater exporter` serves the metrics of any store, and says whether the store takes what workers send."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from headwater.cli.exporter import StoreCollector
from headwater.cli.query import query
from headwater.common.prometheus import serve
from headwater.errors import ListenError
from headwater.operations.metrics import GROUPS, TABLE
from tests.waiting import eventually
from tests.worker.core import Core

pytestmark = pytest.mark.slow

Get = Callable[[str], tuple[int, str]]


@pytest.fixture
def get(url: str) -> Iterator[Get]:
    """Runs an exporter of the store; the function returns the status and the text of a page."""
    command = [sys.executable, "-m", "headwater.cli.main", "exporter", "--listen", "127.0.0.1:0"]
    command += ["--consumers", "--url", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip().rpartition(" ")[2].removesuffix("/metrics")

        def page(path: str) -> tuple[int, str]:
            try:
                with urllib.request.urlopen(f"{address}{path}", timeout=20) as reply:
                    return reply.status, reply.read().decode()
            except urllib.error.HTTPError as error:
                return error.code, error.read().decode()

        yield page
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def values(text: str) -> dict[tuple[str, ...], float]:
    """The samples of a scrape: name and labels, without the database → value."""
    return {
        (
            sample.name,
            *(value for name, value in sorted(sample.labels.items()) if name != "db"),
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_groups_and_streams_have_their_metrics(core: Core, get: Get) -> None:
    # Given a group with an entry of an hour ago that is pending, one that is unread, and a dead letter
    old = int(time.time() * 1000) - 3_600_000
    for n in range(2):
        core.client.xadd("s", {"v": n}, id=f"{old}-{n}")
    core.read(1)
    core.client.xadd("{s}.dead", {"v": 1})
    # When it is scraped
    status, text = get("/metrics")
    found = values(text)
    # Then
    assert status == 200
    assert found["redis_up",] == 1
    assert found["redis_stream_length", "s"] == 2
    assert found["redis_stream_group_messages_pending", "g", "s"] == 1
    assert found["redis_stream_group_lag", "g", "s"] == 1
    assert found["headwater_group_unread", "g", "s"] == 1
    assert 3_600 <= found["headwater_group_lag_seconds", "g", "s"] < 3_700
    assert 3_600 <= found["headwater_group_oldest_pending_seconds", "g", "s"] < 3_700
    assert found["headwater_dead_letters", "s"] == 1
    assert found["redis_stream_group_consumer_messages_pending", "one", "g", "s"] == 1
    assert 0 <= found["redis_stream_group_consumer_idle_seconds", "one", "g", "s"] < 60
    assert found["redis_memory_used_bytes",] > 0
    assert found["redis_commands_processed_total",] > 0
    assert {name for name, *_labels in found} <= {one.name for one in TABLE}
    assert {one.name for one in GROUPS} <= {name for name, *_labels in found}


def test_readiness_follows_the_store(core: Core, get: Get) -> None:
    # Given a store that works
    assert get("/healthz") == (200, '{"status": "ok"}')
    assert get("/readyz") == (200, '{"status": "ready", "problems": []}')
    # When it has no memory left
    core.client.xadd("s", {"v": "x" * 1_000})
    core.client.config_set("maxmemory", 1)
    # Then it is not ready, and the answer says why
    try:
        status, text = get("/readyz")
    finally:
        core.client.config_set("maxmemory", 0)
    assert status == 503
    assert json.loads(text)["problems"][0].startswith("OOM: the server uses ")
    assert eventually(lambda: get("/readyz")[0] == 200)


def test_metrics_of_consumers_need_the_flag(core: Core, url: str) -> None:
    core.client.xadd("s", {"v": 1})
    core.read(1)
    found = StoreCollector(lambda operation: query(url, operation)).collect()
    assert not [one.name for one in found if "consumer_" in one.name]


def test_an_address_of_ipv6_is_named_in_an_error() -> None:
    with pytest.raises(ListenError, match=r"--listen: cannot listen at \[::2\]:9121: "):
        serve(CollectorRegistry(), port=9121, host="::2", option="--listen")


def test_an_address_of_ipv6_is_served() -> None:
    port, end = serve(
        CollectorRegistry(), port=0, host="::1", option="--listen", pages={"/x": lambda: (True, {})}
    )
    try:
        with urllib.request.urlopen(f"http://[::1]:{port}/x", timeout=20) as reply:
            assert reply.read() == b"{}"
    finally:
        end()


def test_a_store_that_is_away_is_down(get: Get, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (family,) = StoreCollector(lambda operation: query("redis://127.0.0.1:1", operation)).collect()
    assert [(one.name, one.value) for one in family.samples] == [("redis_up", 0.0)]
