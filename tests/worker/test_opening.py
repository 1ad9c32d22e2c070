"""Opening an app enables publishing; closing it does not break connections that others still use."""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import HeadwaterError
from headwater.worker import App
from tests.worker.apps import Order, Store, orders
from tests.worker.processes import ROOT

WAYS: list[dict[str, Any]] = [{}, {"dedupe": "order-1"}, {"after": "1h"}]


def open_files() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


def connections_of(app: App) -> tuple[object, object]:
    publisher = app._publisher  # inspects the clients that are still open
    return publisher._asynchronous, publisher._synchronous


@pytest.mark.slow
@pytest.mark.parametrize("options", WAYS, ids=lambda way: next(iter(way), "plain"))
async def test_an_app_can_be_opened_for_each_request(store: Store, options: dict[str, Any]) -> None:
    # Given requests that open and close the app while others are sending
    app = store.app()

    async def request(number: int) -> int:
        for _turn in range(number % 7):
            await asyncio.sleep(0)
        async with app:
            await app.send(orders, Order(number), **options)
            await app.send(orders, Order(number), **options)
        return number

    # Then each of them succeeds, and every connection is closed
    found = await asyncio.gather(*map(request, range(150)))
    assert found == [*range(150)]
    assert connections_of(app) == (None, None)


async def test_an_app_can_be_opened_in_each_thread(store: Store) -> None:
    app = store.app()

    def request(number: int) -> int:
        with app:
            app.publish(orders, Order(number))
            app.publish(orders, Order(number))
        return number

    def requests() -> list[int]:
        with ThreadPoolExecutor(10) as threads:
            return [*threads.map(request, range(100))]

    assert await asyncio.to_thread(requests) == [*range(100)]
    assert connections_of(app) == (None, None)


async def test_closing_an_app_waits_for_pending_sends(store: Store) -> None:
    app = store.app()
    async with app:
        sending = [
            asyncio.create_task(app.send(orders, Order(number), dedupe=f"order-{number}"))
            for number in range(50)
        ]
        await asyncio.sleep(0)
    assert connections_of(app) == (None, None)
    assert all(one.done() for one in sending)
    assert await store.look.xlen("orders") == 50


SCRIPT = """
import asyncio, sys
from headwater import App
from tests.worker.apps import Order, orders

app = App(sys.argv[1])
for number in range(3):
    asyncio.run(app.send(orders, Order(number)))
    asyncio.run(app.send(orders, Order(number), dedupe=f"order-{number}"))
"""


async def test_an_app_that_is_never_closed_publishes_from_successive_event_loops(
    store: Store,
) -> None:
    # In another process, because Python may warn at any time about what an ended loop left open
    ended = await asyncio.create_subprocess_exec(sys.executable, "-c", SCRIPT, store.url, cwd=ROOT)
    assert await ended.wait() == 0
    assert await store.look.xlen("orders") == 6


async def test_using_an_app_in_two_event_loops_at_once_raises(store: Store) -> None:
    app = store.app()
    async with app:
        await app.send(orders, Order(4))
        with pytest.raises(HeadwaterError, match="use one App for each event loop"):
            await asyncio.to_thread(asyncio.run, app.send(orders, Order(5)))
        await app.send(orders, Order(6))


@pytest.mark.slow
async def test_opening_and_closing_an_app_a_hundred_times_leaves_no_open_files(
    store: Store,
) -> None:
    app = store.app()
    async with app:
        await app.send(orders, Order(0))
    before = open_files()
    for number in range(100):
        async with app:
            await app.send(orders, Order(number))
        with app:
            await asyncio.to_thread(app.publish, orders, Order(number))
    assert open_files() <= before
