"""`headwater serve --metrics` serves metrics, and says whether the server works, also when its event loop hangs."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from headwater.testing.server import ServerFailed, ServerProcess, server_process
from tests.waiting import eventually

pytestmark = pytest.mark.slow


@pytest.fixture
def server() -> Iterator[ServerProcess]:
    with server_process("--metrics", "127.0.0.1:0", "--enable-debug-command", "local") as found:
        yield found


def page(server: ServerProcess, path: str) -> tuple[int, str]:
    match = re.search(r"metrics at (http://\S+)/metrics", server.log())
    assert match
    try:
        with urllib.request.urlopen(f"{match[1]}{path}", timeout=30) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_the_server_serves_its_own_metrics_without_a_password(server: ServerProcess) -> None:
    # Given a server whose clients need a password
    with redis.Redis.from_url(server.url) as client:
        client.xadd("s", {"n": 1})
        client.xgroup_create("s", "g", "0")
        client.config_set("requirepass", "secret")
    # Then its metrics have the streams, and what only Headwater has
    status, text = page(server, "/metrics")
    assert status == 200
    assert 'redis_stream_length{db="db0",stream="s"} 1.0' in text
    assert 'headwater_group_unread{db="db0",group="g",stream="s"} 1.0' in text
    assert "headwater_journal_files 1.0" in text
    assert page(server, "/readyz") == (200, '{"status": "ready", "problems": []}')
    assert page(server, "/healthz")[0] == 200


def test_a_server_that_refuses_writes_is_healthy_and_not_ready(server: ServerProcess) -> None:
    with redis.Redis.from_url(server.url) as client:
        client.config_set("maxmemory", 1)
        status, text = page(server, "/readyz")
        assert (status, page(server, "/healthz")[0]) == (503, 200)
        assert json.loads(text)["problems"][0].startswith("OOM")
        client.config_set("maxmemory", 0)
        assert page(server, "/readyz")[0] == 200


@pytest.mark.slice
def test_a_hanging_event_loop_is_reported_within_its_bound(
    server: ServerProcess,
) -> None:
    # Given a command that blocks the event loop for longer than it may be late
    with redis.Redis.from_url(server.url, socket_timeout=60) as client:
        hanging = threading.Thread(target=client.execute_command, args=("DEBUG", "SLEEP", 14))
        hanging.start()
        try:
            # Then the server is reported as not healthy, and as healthy afterwards
            late = eventually(lambda: page(server, "/healthz")[0] == 503, "the loop is late")
        finally:
            hanging.join()
        assert late
    assert eventually(lambda: page(server, "/healthz")[0] == 200, "the loop runs again")


@pytest.mark.slice
def test_a_disk_that_hangs_is_reported_within_its_bound(tmp_path: Path) -> None:
    # Given a server on a disk whose fsyncs can hang
    library, hanging = tmp_path / "hanging_disk.so", tmp_path / "hanging"
    source = Path(__file__).with_name("hanging_disk.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    environment = {"LD_PRELOAD": str(library), "HANGING_DISK": str(hanging)}
    with (
        server_process("--metrics", "127.0.0.1:0", environment=environment) as server,
        redis.Redis.from_url(server.url) as client,
    ):
        assert page(server, "/healthz")[0] == 200

        # When they hang after a write, then the server is reported as not healthy
        hanging.touch()
        try:
            client.xadd("s", {"n": 1})
            late = eventually(lambda: page(server, "/healthz")[0] == 503, "the flusher is late")
            _status, text = page(server, "/healthz")
        finally:
            hanging.unlink()
        assert late
        assert json.loads(text)["problems"][0].startswith("the journal has not been flushed")

        # And as healthy when the disk works again
        assert eventually(lambda: page(server, "/healthz")[0] == 200, "the flusher runs again")


def test_a_mistyped_or_used_address_is_an_error() -> None:
    with (
        pytest.raises(ServerFailed, match="'x' is not HOST:PORT"),
        server_process("--metrics", "x"),
    ):
        pass
    with (
        server_process("--metrics", "127.0.0.1:0") as first,
        pytest.raises(ServerFailed, match="cannot listen at"),
        server_process("--metrics", _address(first)),
    ):
        pass


def _address(server: ServerProcess) -> str:
    match = re.search(r"metrics at http://(\S+)/metrics", server.log())
    assert match
    return match[1]
