"""Entries that were trimmed or deleted before they were handled are counted and logged."""

from __future__ import annotations

import pytest

from headwater.worker import Again
from tests.worker.apps import Order, Store, eventually, orders, working

pytestmark = pytest.mark.slow


async def test_deleted_pending_entries_are_logged_and_counted(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    # Given three entries of an owner that stopped renewing, two of which are deleted
    app = store.app()
    handled = []

    @app.consumer(orders, group="g", claim_after="300ms")
    async def bill(order: Order) -> None:
        handled.append(order.id)

    await store.look.xgroup_create("orders", "g", "0", mkstream=True)
    for number in range(3):
        await store.look.xadd("orders", {"id": number})
    await store.look.xreadgroup("g", "gone", {"orders": ">"})
    first, _second, third = [row[0] for row in await store.pending()]
    await store.look.xdel("orders", first, third)
    await eventually(lambda: _claimable(store))

    # When a worker claims
    async with working(app) as running:
        (loop,) = running.loops.values()
        await eventually(lambda: loop.endings.telemetry.counters.gone_pending == 2)
        await eventually(store.settled)

    # Then it handles the remaining entry, and logs the others as lost
    assert handled == [1]
    assert "of orders lost: group g had them pending" in caplog.text
    assert first in caplog.text
    assert third in caplog.text


async def _claimable(store: Store) -> bool:
    return all(row[2] > 300 for row in await store.pending())


async def test_entries_trimmed_unread_are_logged_and_counted(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    # Given a group that has read two of ten entries, of which seven are trimmed
    app = store.app()
    handled = []

    @app.consumer(orders, group="g", claim_after="300ms")
    async def bill(order: Order) -> None:
        handled.append(order.id)

    await store.look.xgroup_create("orders", "g", "0", mkstream=True)
    for number in range(10):
        await store.look.xadd("orders", {"id": number})
    await store.look.xreadgroup("g", "gone", {"orders": ">"}, count=2)
    await store.look.xack("orders", "g", *(row[0] for row in await store.pending()))
    await store.look.xtrim("orders", maxlen=3, approximate=False)

    # When a worker reads
    async with working(app) as running:
        await eventually(store.settled)
        (loop,) = running.loops.values()

    # Then the five unread ones are counted, and the rest is handled
    assert loop.endings.telemetry.counters.gone_unread == 5
    assert sorted(handled) == [7, 8, 9]
    assert "5 entries of orders lost: trimmed or deleted before group g read them" in caplog.text


@pytest.mark.parametrize("store", ["redis-8.2"], indirect=True)
async def test_a_retry_of_a_trimmed_entry_is_logged(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    # Given a handler that trims the stream while it runs
    app = store.app()

    @app.consumer(orders, group="g", claim_after="300ms")
    async def bill(order: Order) -> None:
        await store.look.xtrim("orders", maxlen=0)
        raise Again(after="1m")

    # When it raises Again, then the loss is logged at once
    async with working(app) as running:
        (loop,) = running.loops.values()
        await orders.send(Order(17))
        await eventually(lambda: loop.endings.telemetry.counters.gone_pending == 1)
    assert "1 entry of orders lost" in caplog.text
