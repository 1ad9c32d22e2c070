"""Embedded: the same store in the program itself, without a server."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import msgspec
import redis

import headwater
from headwater import App, Stream
from headwater.testing.server import server_process


class Order(msgspec.Struct):
    id: int


def test_a_client_of_an_embedded_store_is_a_redis_client() -> None:
    with headwater.connect("headwater://memory") as store:
        assert isinstance(store, redis.Redis)
        store.xadd("orders", {"item": "tea"})
        assert store.xlen("orders") == 1


async def test_a_store_has_an_asynchronous_client_too() -> None:
    async with headwater.aio.connect("headwater://memory/another-shop") as store:
        await store.xadd("orders", {"item": "tea"})
        assert await store.xlen("orders") == 1


def test_clients_of_one_name_share_a_store_also_in_several_threads() -> None:
    def add() -> None:
        with headwater.connect("headwater://memory/shared") as store:
            store.xadd("orders", {"item": "tea"})

    with headwater.connect("headwater://memory/shared") as store:
        thread = threading.Thread(target=add)
        thread.start()
        thread.join()
        assert store.xlen("orders") == 1


def test_a_blocked_read_gets_what_another_thread_adds() -> None:
    found: list[Any] = []

    def wait() -> None:
        with headwater.connect("headwater://memory/blocked") as store:
            found.append(store.xread({"orders": "0"}, block=0))

    with headwater.connect("headwater://memory/blocked") as store:
        thread = threading.Thread(target=wait)
        thread.start()
        store.xadd("orders", {"item": "tea"}, id="1-0")
        thread.join()
    assert found == [[[b"orders", [(b"1-0", {b"item": b"tea"})]]]]


def test_a_directory_is_served_or_embedded_by_turns(tmp_path: Path) -> None:
    with server_process("--dir", str(tmp_path / "shop")) as server:
        with redis.Redis.from_url(server.url) as client:
            client.xadd("orders", {"item": "tea"})

    with headwater.connect(f"headwater://{tmp_path}/shop") as store:
        assert store.xlen("orders") == 1


async def test_a_worker_runs_on_an_embedded_store(tmp_path: Path) -> None:
    app = App(f"headwater://{tmp_path}/shop")
    orders = Stream("orders", Order)

    async with app:
        await orders.send(Order(id=17))

    with headwater.connect(f"headwater://{tmp_path}/shop") as store:
        assert store.xlen("orders") == 1
