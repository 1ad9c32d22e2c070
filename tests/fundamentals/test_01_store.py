"""The store: what was answered is kept, in a directory or in memory, by a server or in this process."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

import headwater
from headwater.errors import StoreInUse
from headwater.testing.server import server_process


def test_a_store_is_a_directory() -> None:
    # A store in memory is like one in a directory, and ends with its last client.
    with headwater.connect("headwater://memory") as store:
        store.set("greeting", "hello")
        assert store.get("greeting") == b"hello"


def test_what_was_answered_is_there_after_a_restart(tmp_path: Path) -> None:
    url = f"headwater://{tmp_path}/shop"
    with headwater.connect(url) as store:
        first = store.xadd("orders", {"item": "tea"})

    with headwater.connect(url) as store:
        assert store.xrange("orders") == [(first, {b"item": b"tea"})]


def test_a_killed_server_loses_nothing_that_it_answered(tmp_path: Path) -> None:
    with server_process("--dir", str(tmp_path / "shop"), "--appendfsync", "always") as server:
        with redis.Redis.from_url(server.url) as client:
            ids = [client.xadd("orders", {"number": number}) for number in range(100)]
        server.kill()

    with headwater.connect(f"headwater://{tmp_path}/shop") as store:
        assert [entry for entry, _fields in store.xrange("orders")] == ids


def test_one_process_opens_a_directory_at_a_time(tmp_path: Path) -> None:
    url = f"headwater://{tmp_path}/shop"
    with (
        server_process("--dir", str(tmp_path / "shop")),
        pytest.raises(StoreInUse, match="is in use"),
    ):
        headwater.connect(url).ping()


def test_a_transaction_is_kept_as_a_whole() -> None:
    with headwater.connect("headwater://memory") as store:
        with store.pipeline(transaction=True) as together:
            together.xadd("orders", {"item": "tea"})
            together.incr("orders sold")
            together.execute()
        assert (store.xlen("orders"), store.get("orders sold")) == (1, b"1")
