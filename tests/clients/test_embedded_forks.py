"""After a fork the child has no store, is told so, and leaves the parent's alone."""

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
    """What ``action`` returns or raises in a child, in words."""
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


def test_a_child_forked_behind_pythons_back_writes_nothing(url: str) -> None:
    # Given a server of applications that forks its workers in C and tells Python nothing
    client = headwater.connect(url, decode_responses=True)
    client.xadd("orders", {"item": "tea"})
    fork = ctypes.PyDLL(None).fork
    # When a worker uses the store of the process that it was forked from
    said = in_a_fork(lambda: client.xadd("orders", {"item": "milk"}), fork)
    # Then it is told before it has written over what the others write
    assert said.startswith("ForkedStore"), said
    assert client.xlen("orders") == 1
    assert client.xadd("orders", {"item": "milk"})
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
