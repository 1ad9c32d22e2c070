"""A worker claims the entries of a dead one over few connections."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.worker.apps import Order, Store, eventually, orders, working

LEFT = 300


async def test_claiming_many_entries_opens_few_connections(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    # Given many entries of a consumer that stopped renewing them
    await store.look.xgroup_create("orders", "g", "0", mkstream=True)
    for number in range(LEFT):
        await store.look.xadd("orders", dict(orders.codec.encode(Order(number))))
    await store.look.xreadgroup("g", "dead", {"orders": ">"}, count=LEFT)

    # When a worker claims and settles them
    app = store.app()
    handled = []

    @app.consumer(orders, group="g", claim_after="100ms", prefetch=LEFT)
    async def handle(order: Order) -> None:
        handled.append(order.id)

    before = await _connections(store)
    with caplog.at_level(logging.WARNING, "headwater.worker"):
        async with working(app):
            await eventually(store.settled)

    # Then it has opened few connections, and logs no outage
    assert sorted(handled) == list(range(LEFT))
    assert await _connections(store) - before < 20
    assert not [one.message for one in caplog.records if "does not answer" in one.message]
    assert not await store.look.exists("{orders}:hw:poison:g")


async def _connections(store: Store) -> int:
    info: Any = await store.look.info("stats")
    return int(info["total_connections_received"])
