"""A store in this process keeps what it was given: over restarts, ends of every kind, and forks."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

import headwater
from headwater.client.connect import node_of
from headwater.client.doors import _open as open_stores
from headwater.errors import (
    ConfigError,
    ForkedStore,
    JournalDamaged,
    StoreClosed,
    StoreInUse,
    StoreUnusable,
)
from headwater.journal.recovery import file_name
from headwater.server.config import Config
from headwater.server.opening import open_node
from headwater.testing.server import server_process


def in_a_process(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a fresh interpreter."""
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def in_a_fork(action: Callable[[], Any]) -> str:
    """What ``action`` returns or raises in a child, in words."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = repr(action())
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    said = os.read(reader, 1 << 16).decode()
    os.close(reader)
    assert os.waitpid(child, 0)[1] == 0
    return said


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"headwater://{tmp_path}/new/data"


# --- what is kept -----------------------------------------------------------------------------------


@pytest.mark.parametrize("appendfsync", ["always", "everysec", "no"])
def test_a_store_opened_again_holds_everything(url: str, appendfsync: str) -> None:
    # Given entries, a group and a pending delivery
    with headwater.connect(f"{url}?appendfsync={appendfsync}", decode_responses=True) as client:
        ids = [client.xadd("orders", {"n": number}) for number in range(100)]
        client.xgroup_create("orders", "ops", id="0")
        client.xreadgroup("ops", "bill", {"orders": ">"}, count=3)
        client.set("word", "tea")
        assert node_of(client).config.appendfsync == appendfsync
    # When the store is closed and opened again
    with headwater.connect(url, decode_responses=True) as client:
        # Then everything is there
        assert [entry_id for entry_id, _ in client.xrange("orders")] == ids
        assert client.xpending("orders", "ops")["pending"] == 3
        assert client.get("word") == "tea"


async def test_asyncio_keeps_as_well(url: str) -> None:
    async with headwater.aio.connect(url) as client:
        await client.xadd("orders", {"item": "tea"}, id="1-1")
    async with headwater.aio.connect(url) as client:
        assert await client.xrange("orders") == [(b"1-1", {b"item": b"tea"})]


def test_closing_is_clean(url: str, tmp_path: Path) -> None:
    # Given a store that was used and closed
    with headwater.connect(url) as client:
        client.xadd("orders", {"item": "tea"})
    # When it is opened, then recovery has nothing to cut and nothing to say
    node = open_node(Config(dir=f"{tmp_path}/new/data"))
    assert node.journal is not None
    assert (node.journal.recovery.cuts, node.journal.recovery.notes) == ([], [])
    node.close()


def test_a_server_goes_on_where_a_program_ended(url: str, tmp_path: Path) -> None:
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
    # Given a program that adds and ends, having closed the store or not
    program = f"""
import sys, headwater
client = headwater.connect(sys.argv[1])
client.xadd("orders", {{"item": "tea"}})
{end}
"""
    done = in_a_process(program, url)
    assert (done.returncode, done.stderr) == (0, "")
    # Then the entry is there, and the journal had its clean end
    node = open_node(Config(dir=f"{tmp_path}/new/data"))
    assert node.journal is not None
    assert (node.journal.recovery.cuts, node.journal.recovery.notes) == ([], [])
    node.close()
    with headwater.connect(url) as client:
        assert client.xlen("orders") == 1


def test_a_program_may_end_while_a_thread_waits(url: str) -> None:
    program = """
import sys, threading, headwater
from headwater.client.connect import node_of
client = headwater.connect(sys.argv[1])
client.xadd("orders", {"item": "tea"})
reader = threading.Thread(target=client.xread, args=({"orders": "$"},), kwargs={"block": 0})
reader.daemon = True
reader.start()
while not node_of(client).waiting.count: pass
"""
    done = in_a_process(program, url)
    assert done.returncode == 0
    with headwater.connect(url) as client:
        assert client.xlen("orders") == 1


def test_a_killed_program_has_lost_nothing_it_was_told_is_kept(url: str) -> None:
    program = """
import os, signal, sys, headwater
client = headwater.connect(sys.argv[1] + "?appendfsync=always")
for number in range(100): client.xadd("orders", {"n": number})
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert in_a_process(program, url).returncode == -signal.SIGKILL
    with headwater.connect(url) as client:
        assert client.xlen("orders") == 100


# --- who uses it ------------------------------------------------------------------------------------


def test_clients_of_one_process_share_the_store(url: str, tmp_path: Path) -> None:
    # Given two clients of a directory, named in two ways
    first = headwater.connect(url)
    second = headwater.connect(f"headwater://{tmp_path}/new/../new/data/")
    assert node_of(first) is node_of(second)
    # When one is closed, the other goes on
    first.xadd("orders", {"item": "tea"})
    first.close()
    assert second.xlen("orders") == 1
    # When both are, another process may have it
    second.close()
    assert (
        in_a_process("import sys, headwater; headwater.connect(sys.argv[1])", url).returncode == 0
    )


async def test_sync_and_asyncio_share_the_store(url: str) -> None:
    with headwater.connect(url) as client:
        async with headwater.aio.connect(url) as other:
            client.xadd("orders", {"item": "tea"})
            assert await other.xlen("orders") == 1


def test_a_directory_that_another_process_holds_is_refused(url: str, tmp_path: Path) -> None:
    with headwater.connect(url) as client:
        client.ping()
        program = "import sys, headwater; headwater.connect(sys.argv[1])"
        said = in_a_process(program, url).stderr
        assert "StoreInUse" in said
        assert f"in use by process {os.getpid()}" in said
        assert f"headwater serve --dir {tmp_path}/new/data" in said


def test_a_directory_that_a_server_holds_is_refused() -> None:
    with (
        server_process() as server,
        pytest.raises(StoreInUse, match=f"in use by process {server.pid}.*headwater serve --dir"),
    ):
        headwater.connect(f"headwater://{server.data}")


def test_a_directory_that_was_refused_is_let_go(url: str, tmp_path: Path) -> None:
    # Given a journal with a damaged place in its middle
    with headwater.connect(url) as client:
        for number in range(100):
            client.xadd("orders", {"n": number})
    journal = tmp_path / "new/data" / file_name(1)
    with journal.open("r+b") as file:
        file.seek(2000)
        (right,) = file.read(1)
        file.seek(2000)
        file.write(bytes([right ^ 1]))
    # When it is opened, then it is refused, and again, not as a store in use
    for _ in range(2):
        with pytest.raises(JournalDamaged, match=journal.name):
            headwater.connect(url)
    # When it is whole again, then it opens
    with journal.open("r+b") as file:
        file.seek(2000)
        file.write(bytes([right]))
    with headwater.connect(url) as client:
        assert client.xlen("orders") == 100


def test_a_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreUnusable, match="file"):
        headwater.connect(f"headwater://{tmp_path}/file")


def test_other_settings_than_those_in_force_are_refused(url: str) -> None:
    with headwater.connect(f"{url}?appendfsync=always") as client:
        with pytest.raises(ConfigError, match="open in this process with appendfsync always"):
            headwater.connect(f"{url}?appendfsync=no")
        with headwater.connect(url) as other:
            assert node_of(other) is node_of(client)
    assert open_stores == set()


def test_a_closed_client_says_so(url: str) -> None:
    client = headwater.connect(url)
    client.xadd("orders", {"item": "tea"})
    client.close()
    client.close()
    with pytest.raises(StoreClosed, match="was closed"):
        client.xlen("orders")


async def test_a_closed_asyncio_client_says_so(url: str) -> None:
    client = headwater.aio.connect(url)
    await client.xadd("orders", {"item": "tea"})
    await client.aclose()
    await client.aclose()
    with pytest.raises(StoreClosed, match="was closed"):
        await client.xlen("orders")


def test_a_store_in_this_process_is_not_shut_down_but_closed(url: str) -> None:
    with headwater.connect(url) as client:
        with pytest.raises(redis.ResponseError, match="close the client instead"):
            client.shutdown()
        assert client.ping()


def test_clients_that_are_forgotten_close_their_store(url: str) -> None:
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


def test_a_store_in_memory_is_the_clients_own() -> None:
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


# --- after a fork -----------------------------------------------------------------------------------


def test_a_forked_child_gets_a_clear_error_and_the_parent_goes_on(url: str) -> None:
    # Given a client that has been used
    client = headwater.connect(url, decode_responses=True)
    single = headwater.connect(url, single_connection_client=True)
    client.xadd("orders", {"item": "tea"})
    pipeline = client.pipeline()
    pipeline.xlen("orders")
    # When a child uses it, in any way
    for use in (
        lambda: client.xlen("orders"),
        pipeline.execute,
        lambda: client.xread({"orders": "$"}, block=0),
        lambda: single.xlen("orders"),
    ):
        said = in_a_fork(use)
        # Then it is told, by name
        assert said.startswith("ForkedStore"), said
        assert f"opened by process {os.getpid()}" in said
    # Then the parent still has its store
    assert client.xadd("orders", {"item": "milk"})
    assert client.xlen("orders") == 2
    single.close()
    client.close()


def test_a_forked_child_may_close_and_end_without_touching_the_store(url: str) -> None:
    client = headwater.connect(url)
    client.xadd("orders", {"item": "tea"})
    assert in_a_fork(client.close) == "None"
    assert client.xlen("orders") == 1
    client.close()
    with headwater.connect(url) as client:
        assert client.xlen("orders") == 1


def test_a_child_forked_in_the_middle_of_a_turn_does_not_hang(url: str) -> None:
    # Given a store whose lock is held by another thread at the moment of the fork
    client = headwater.connect(url)
    client.ping()
    held = node_of(client).lock
    held.acquire()
    try:
        # A lock that this thread holds, the child's thread would hold too: let another take it.
        taken, done = threading.Event(), threading.Event()

        def hold() -> None:
            with held:
                taken.set()
                done.wait()

        holder = threading.Thread(target=hold)
        holder.start()
    finally:
        held.release()
    taken.wait()
    # When the child uses the store, then it is told
    try:
        said = in_a_fork(lambda: client.xlen("orders"))
    finally:
        done.set()
        holder.join()
    assert said.startswith("ForkedStore")
    client.close()


def test_a_child_opens_the_directory_when_the_parent_has_let_it_go(url: str) -> None:
    client = headwater.connect(url)
    client.xadd("orders", {"item": "tea"})

    def open_it() -> int:
        with headwater.connect(url) as mine:
            return int(mine.xlen("orders"))

    assert in_a_fork(open_it).startswith("StoreInUse")
    client.close()
    assert in_a_fork(open_it) == "1"


def test_a_forked_error_is_headwaters_and_no_redis_error() -> None:
    assert not issubclass(ForkedStore, redis.RedisError)
