"""An embedded store keeps its data over restarts, all ways to end a process, and forks."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis

import headwater
from headwater.client.embedded_opening import node_of
from headwater.client.handles import _open as open_stores
from headwater.config.config import Config
from headwater.errors import (
    ConfigError,
    JournalDamaged,
    StoreClosed,
    StoreInUse,
    StoreUnusable,
)
from headwater.journal.format.names import file_name
from headwater.server.opening import open_node
from headwater.testing.server import server_process

pytestmark = pytest.mark.slow


def in_a_process(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a fresh interpreter."""
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"headwater://{tmp_path}/new/data"


# --- durability -------------------------------------------------------------------------------------


@pytest.mark.parametrize("appendfsync", ["always", "everysec", "no"])
def test_a_reopened_store_has_all_data(url: str, appendfsync: str) -> None:
    # Given entries, a group and a pending delivery
    with headwater.connect(f"{url}?appendfsync={appendfsync}", decode_responses=True) as client:
        ids = [client.xadd("orders", {"n": number}) for number in range(100)]
        client.xgroup_create("orders", "ops", id="0")
        client.xreadgroup("ops", "bill", {"orders": ">"}, count=3)
        client.set("word", "tea")
        assert node_of(client).services.config.appendfsync == appendfsync
    # When the store is closed and opened again
    with headwater.connect(url, decode_responses=True) as client:
        # Then everything is there
        assert [entry_id for entry_id, _ in client.xrange("orders")] == ids
        assert client.xpending("orders", "ops")["pending"] == 3
        assert client.get("word") == "tea"


async def test_a_reopened_store_has_all_data_in_asyncio(url: str) -> None:
    async with headwater.aio.connect(url) as client:
        await client.xadd("orders", {"item": "tea"}, id="1-1")
    async with headwater.aio.connect(url) as client:
        assert await client.xrange("orders") == [(b"1-1", {b"item": b"tea"})]


def test_closing_is_clean(url: str, tmp_path: Path) -> None:
    # Given a store that was used and closed
    with headwater.connect(url) as client:
        client.xadd("orders", {"item": "tea"})
    # When it is opened, then recovery cuts nothing and reports nothing
    node = open_node(Config(dir=f"{tmp_path}/new/data"))
    assert node.journal is not None
    assert (node.journal.recovery.cuts, node.journal.recovery.notes) == ([], [])
    node.close()


def test_a_server_can_open_a_programs_directory(url: str, tmp_path: Path) -> None:
    with headwater.connect(url) as client:
        client.xadd("orders", {"item": "tea"}, id="1-1")
    with (
        server_process("--dir", f"{tmp_path}/new/data") as server,
        headwater.connect(server.url) as client,
    ):
        assert client.xlen("orders") == 1


@pytest.mark.parametrize(
    "end", ["", "client.close()", "del client", "import gc; client.me = client; del client"]
)
def test_a_program_may_end_without_closing(url: str, tmp_path: Path, end: str) -> None:
    # Given a program that adds an entry and ends, with or without closing the store
    program = f"""
import sys, headwater
client = headwater.connect(sys.argv[1])
client.xadd("orders", {{"item": "tea"}})
{end}
"""
    done = in_a_process(program, url)
    assert (done.returncode, done.stderr) == (0, "")
    # Then the entry is there, and the journal was ended cleanly
    node = open_node(Config(dir=f"{tmp_path}/new/data"))
    assert node.journal is not None
    assert (node.journal.recovery.cuts, node.journal.recovery.notes) == ([], [])
    node.close()
    with headwater.connect(url) as client:
        assert client.xlen("orders") == 1


def test_a_program_may_end_while_a_thread_waits(url: str) -> None:
    program = """
import sys, threading, headwater
from headwater.client.embedded_opening import node_of
client = headwater.connect(sys.argv[1])
client.xadd("orders", {"item": "tea"})
reader = threading.Thread(target=client.xread, args=({"orders": "$"},), kwargs={"block": 0})
reader.daemon = True
reader.start()
while not node_of(client).blocked.waiting.count: pass
"""
    done = in_a_process(program, url)
    assert done.returncode == 0
    with headwater.connect(url) as client:
        assert client.xlen("orders") == 1


def test_a_killed_program_loses_no_acknowledged_entry(url: str) -> None:
    program = """
import os, signal, sys, headwater
client = headwater.connect(sys.argv[1] + "?appendfsync=always")
for number in range(100): client.xadd("orders", {"n": number})
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert in_a_process(program, url).returncode == -signal.SIGKILL
    with headwater.connect(url) as client:
        assert client.xlen("orders") == 100


# --- sharing ----------------------------------------------------------------------------------------


def test_clients_of_one_process_share_the_store(url: str, tmp_path: Path) -> None:
    # Given two clients of a directory, with different paths
    first = headwater.connect(url)
    second = headwater.connect(f"headwater://{tmp_path}/new/../new/data/")
    assert node_of(first) is node_of(second)
    # When one is closed, the other continues
    first.xadd("orders", {"item": "tea"})
    first.close()
    assert second.xlen("orders") == 1
    # When both are, another process can open the directory
    second.close()
    assert (
        in_a_process("import sys, headwater; headwater.connect(sys.argv[1])", url).returncode == 0
    )


async def test_sync_and_asyncio_share_the_store(url: str) -> None:
    with headwater.connect(url) as client:
        async with headwater.aio.connect(url) as other:
            client.xadd("orders", {"item": "tea"})
            assert await other.xlen("orders") == 1


def test_a_directory_in_use_by_another_process_is_refused(url: str, tmp_path: Path) -> None:
    with headwater.connect(url) as client:
        client.ping()
        program = "import sys, headwater; headwater.connect(sys.argv[1])"
        said = in_a_process(program, url).stderr
        assert "StoreInUse" in said
        assert f"in use by process {os.getpid()}" in said
        assert f"headwater serve --dir {tmp_path}/new/data" in said


def test_a_directory_in_use_by_a_server_is_refused() -> None:
    with (
        server_process() as server,
        pytest.raises(StoreInUse, match=f"in use by process {server.pid}.*headwater serve --dir"),
    ):
        headwater.connect(f"headwater://{server.data}")


def test_a_directory_that_was_refused_is_not_in_use(url: str, tmp_path: Path) -> None:
    # Given a journal that is damaged in the middle
    with headwater.connect(url) as client:
        for number in range(100):
            client.xadd("orders", {"n": number})
    journal = tmp_path / "new/data" / file_name(1)
    with journal.open("r+b") as file:
        file.seek(2000)
        (right,) = file.read(1)
        file.seek(2000)
        file.write(bytes([right ^ 1]))
    # When it is opened twice, then it is refused as damaged both times, not as in use
    for _ in range(2):
        with pytest.raises(JournalDamaged, match=journal.name):
            headwater.connect(url)
    # When it is repaired, then it opens
    with journal.open("r+b") as file:
        file.seek(2000)
        file.write(bytes([right]))
    with headwater.connect(url) as client:
        assert client.xlen("orders") == 100


def test_a_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreUnusable, match="file"):
        headwater.connect(f"headwater://{tmp_path}/file")


def test_settings_that_differ_from_the_open_stores_are_refused(url: str) -> None:
    with headwater.connect(f"{url}?appendfsync=always") as client:
        with pytest.raises(ConfigError, match="open in this process with appendfsync always"):
            headwater.connect(f"{url}?appendfsync=no")
        with headwater.connect(url) as other:
            assert node_of(other) is node_of(client)
    assert open_stores == set()


def test_a_closed_client_raises_store_closed(url: str) -> None:
    client = headwater.connect(url)
    client.xadd("orders", {"item": "tea"})
    client.close()
    client.close()
    with pytest.raises(StoreClosed, match="was closed"):
        client.xlen("orders")


async def test_a_closed_asyncio_client_raises_store_closed(url: str) -> None:
    client = headwater.aio.connect(url)
    await client.xadd("orders", {"item": "tea"})
    await client.aclose()
    await client.aclose()
    with pytest.raises(StoreClosed, match="was closed"):
        await client.xlen("orders")


def test_shutdown_of_an_embedded_store_is_refused(url: str) -> None:
    with headwater.connect(url) as client:
        with pytest.raises(redis.ResponseError, match="close the client instead"):
            client.shutdown()
        assert client.ping()


def test_garbage_collected_clients_close_their_store(url: str) -> None:
    client = headwater.connect(url)
    client.xadd("orders", {"item": "tea"})
    cycle: Any = [client]
    cycle.append(cycle)
    del client, cycle
    gc.collect()
    assert open_stores == set()
    with headwater.connect(url) as client:
        assert client.xlen("orders") == 1


# --- memory -----------------------------------------------------------------------------------------


def test_a_store_in_memory_is_private() -> None:
    with (
        headwater.connect("headwater://memory") as first,
        headwater.connect("headwater://memory") as second,
    ):
        first.xadd("orders", {"item": "tea"})
        assert second.exists("orders") == 0


@pytest.mark.parametrize("url", ["headwater://memory/shop", "headwater://memory?name=shop"])
def test_a_store_in_memory_is_shared_by_name(url: str) -> None:
    with headwater.connect(url) as first:
        first.xadd("orders", {"item": "tea"})
        with headwater.connect("headwater://memory/shop") as second:
            assert second.xlen("orders") == 1
    with headwater.connect(url) as third:
        assert third.exists("orders") == 0


def test_disconnecting_the_pool_keeps_a_store_in_memory() -> None:
    with headwater.connect("headwater://memory") as client:
        client.xadd("orders", {"item": "tea"})
        client.connection_pool.disconnect()
        assert client.xlen("orders") == 1
