"""Other processes find the store of a directory that ``headwater work`` serves through the directory."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.client.sync.connect import connect
from headwater.worker import App
from headwater.worker.store import socket_file
from tests.processes import children, runs
from tests.worker import shop
from tests.worker.apps import eventually
from tests.worker.processes import supervised

pytestmark = pytest.mark.slow


async def test_other_processes_publish_through_the_server_of_a_directory(
    tmp_path: Path, run_headwater: Callable[..., str]
) -> None:
    # Given workers whose parent serves their directory
    url = f"headwater://{tmp_path}/data"
    app = App(url)
    with supervised(url, "--workers", "2", SHOP_MAX_DELIVERIES="2") as parent:
        await eventually(lambda: parent.log().count("reads orders as") == 2)

        # When another process publishes, with and without an event loop
        async with app:
            await app.send(shop.orders, shop.Order(1))
            await app.send(shop.orders, shop.Order(2, do="fail"))
        await asyncio.to_thread(_publish, app, shop.Order(3))

        # Then the workers handle its messages, and the command line uses the same store
        await eventually(lambda: run_headwater("dead", "list", "orders", "--url", url, apart=True))
        await eventually(
            lambda: (
                "0 pending, 0 unread"
                in run_headwater("pending", "list", "orders", "--url", url, apart=True)
            )
        )
        parent.signal(signal.SIGTERM)
        assert parent.wait() == 0

    # And afterwards this process opens the directory itself
    await asyncio.to_thread(_publish, app, shop.Order(4))
    with connect(url) as store:
        assert store.xlen("orders") == 4
        assert store.xlen("invoices") == 2


def _publish(app: App, order: shop.Order) -> None:
    with app:
        app.publish(shop.orders, order)


async def test_an_open_app_continues_when_its_directory_is_no_longer_served(tmp_path: Path) -> None:
    # Given an app that publishes through workers, which then stop
    url = f"headwater://{tmp_path}/data"
    app = App(url)
    async with app:
        with supervised(url) as parent:
            await eventually(lambda: "reads orders as" in parent.log())
            await app.send(shop.orders, shop.Order(1))
            parent.signal(signal.SIGTERM)
            assert parent.wait() == 0

        # Then it publishes into the directory itself, and no message is lost
        await app.send(shop.orders, shop.Order(2))
    with connect(url) as store:
        assert store.xlen("orders") == 2


async def test_a_directory_whose_server_was_killed_can_be_opened(tmp_path: Path) -> None:
    # Given a file with the socket of a server that was killed
    url = f"headwater://{tmp_path}/data"
    with supervised(url) as parent:
        await eventually(lambda: "reads orders as" in parent.log())
        processes = children(parent.pid)
        for pid in [parent.pid, *processes]:
            os.kill(pid, signal.SIGKILL)
        await eventually(lambda: not any(runs(pid) for pid in processes))
    assert (tmp_path / "data" / socket_file.NAME).exists()

    # Then the directory is opened as if the file did not exist
    async with App(url) as app:
        assert await app.send(shop.orders, shop.Order(1))
