"""After a fork the child has no store: using it raises `ForkedStore`, and the parent's is unaffected."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

import headwater
from headwater.client.embedded_opening import node_of
from headwater.errors import (
    ForkedStore,
)


def in_a_fork(action: Callable[[], Any], fork: Callable[[], int] = os.fork) -> str:
    """Return as text what ``action`` returns or raises in a forked child."""
    reader, writer = os.pipe()
    child = fork()
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


def test_a_forked_child_gets_a_clear_error_and_the_parent_continues(url: str) -> None:
    # Given clients that have been used
    client = headwater.connect(url, decode_responses=True)
    single = headwater.connect(url, single_connection_client=True)
    client.xadd("orders", {"item": "tea"})
    pipeline = client.pipeline()
    pipeline.xlen("orders")
    # When a child uses them, in any way
    for use in (
        lambda: client.xlen("orders"),
        pipeline.execute,
        lambda: client.xread({"orders": "$"}, block=0),
        lambda: single.xlen("orders"),
    ):
        said = in_a_fork(use)
        # Then it gets the error
        assert said.startswith("ForkedStore"), said
        assert f"opened by process {os.getpid()}" in said
    # Then the parent still has its store
    assert client.xadd("orders", {"item": "milk"})
    assert client.xlen("orders") == 2
    single.close()
    client.close()


def test_a_child_forked_in_c_writes_nothing(url: str) -> None:
    # Given an application server that forks its workers in C, without Python's fork handlers
    client = headwater.connect(url, decode_responses=True)
    client.xadd("orders", {"item": "tea"})
    fork = ctypes.PyDLL(None).fork
    # When a worker uses its parent's store
    said = in_a_fork(lambda: client.xadd("orders", {"item": "milk"}), fork)
    # Then it gets the error before it writes to the parent's journal
    assert said.startswith("ForkedStore"), said
    assert client.xlen("orders") == 1
    assert client.xadd("orders", {"item": "milk"})
    client.close()


def test_a_forked_child_may_close_its_client_without_affecting_the_store(url: str) -> None:
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
        # In the child, this thread would hold the lock too, so another thread acquires it.
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
    # When the child uses the store, then it gets the error
    try:
        said = in_a_fork(lambda: client.xlen("orders"))
    finally:
        done.set()
        holder.join()
    assert said.startswith("ForkedStore")
    client.close()


def test_a_child_can_open_the_directory_after_the_parent_has_closed_it(url: str) -> None:
    client = headwater.connect(url)
    client.xadd("orders", {"item": "tea"})

    def open_it() -> int:
        with headwater.connect(url) as mine:
            return int(mine.xlen("orders"))

    assert in_a_fork(open_it).startswith("StoreInUse")
    client.close()
    assert in_a_fork(open_it) == "1"


def test_forked_store_is_not_a_redis_error() -> None:
    assert not issubclass(ForkedStore, redis.RedisError)
