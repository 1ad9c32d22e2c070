"""While ``headwater work`` serves a directory, other processes find its store through the directory."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.client.sync.connect import connect
from headwater.worker import App, socket_file
from tests.processes import children, runs
from tests.worker import shop
from tests.worker.apps import eventually
from tests.worker.processes import supervised

pytestmark = pytest.mark.slow


async def test_a_served_directory_takes_messages_from_other_processes(
    tmp_path: Path, run_headwater: Callable[..., str]
) -> None:
    # Given workers whose parent serves their directory
    url = f"headwater://{tmp_path}/data"
    app = App(url)
    with supervised(url, "--workers", "2", SHOP_MAX_DELIVERIES="2") as parent:
        await eventually(lambda: parent.said().count("reads orders as") == 2)

        # When another process publishes, with and without an event loop
        async with app:
            await app.send(shop.orders, shop.Order(1))
            await app.send(shop.orders, shop.Order(2, do="fail"))
        await asyncio.to_thread(_publish, app, shop.Order(3))

        # Then the workers handle it, and the command line sees the same store
        await eventually(lambda: run_headwater("dead", "list", "orders", "--url", url, apart=True))
        await eventually(
            lambda: (
                "0 pending, 0 unread"
                in run_headwater("pending", "orders", "--url", url, apart=True)
            )
        )
        parent.signal(signal.SIGTERM)
        assert parent.wait() == 0

    # And afterwards the directory is opened in this process again
    await asyncio.to_thread(_publish, app, shop.Order(4))
    with connect(url) as store:
        assert store.xlen("orders") == 4
        assert store.xlen("invoices") == 2


def _publish(app: App, order: shop.Order) -> None:
    with app:
        app.publish(shop.orders, order)


async def test_an_open_app_follows_its_directory(tmp_path: Path) -> None:
    # Given an app that publishes through workers that stop
    url = f"headwater://{tmp_path}/data"
    app = App(url)
    async with app:
        with supervised(url) as parent:
            await eventually(lambda: "reads orders as" in parent.said())
            await app.send(shop.orders, shop.Order(1))
            parent.signal(signal.SIGTERM)
            assert parent.wait() == 0

        # Then it publishes into the directory itself, and nothing was lost
        await app.send(shop.orders, shop.Order(2))
    with connect(url) as store:
        assert store.xlen("orders") == 2


async def test_a_directory_whose_server_was_killed_is_opened(tmp_path: Path) -> None:
    # Given a file that names the socket of a server that was killed
    url = f"headwater://{tmp_path}/data"
    with supervised(url) as parent:
        await eventually(lambda: "reads orders as" in parent.said())
        everyone = children(parent.pid)
        for pid in [parent.pid, *everyone]:
            os.kill(pid, signal.SIGKILL)
        await eventually(lambda: not any(runs(pid) for pid in everyone))
    assert (tmp_path / "data" / socket_file.NAME).exists()

    # Then the directory is opened as if the file was not there
    async with App(url) as app:
        assert await app.send(shop.orders, shop.Order(1))
