"""Workers deliver at least once, and read new and claimed entries in one loop."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import msgspec

from headwater.worker import Delivery, Stream
from tests.worker.apps import (
    Order,
    Store,
    buried,
    eventually,
    killed,
    orders,
    worker,
    working,
)


class Placed(msgspec.Struct):
    order_id: str


QUICK: dict[str, Any] = {"group": "g", "claim_after": "300ms"}


async def test_an_entry_is_acknowledged_only_after_its_handler_returned(store: Store) -> None:
    # Given a handler that waits
    app = store.app()
    began, go_on = asyncio.Event(), asyncio.Event()

    @app.consumer(orders, group="g")
    async def bill(order: Order) -> None:
        began.set()
        await go_on.wait()

    async with working(app):
        # When it has begun, then the entry is pending; when it has returned, it is not
        await orders.send(Order(17))
        await began.wait()
        assert len(await store.pending()) == 1
        go_on.set()
        await eventually(store.settled)


async def test_a_killed_worker_loses_nothing_and_its_crash_counts_as_a_delivery(
    store: Store,
) -> None:
    # Given a killed worker with one running entry and others buffered
    app = store.app()
    deliveries: list[tuple[int, int]] = []
    hang = asyncio.Event()

    @app.consumer(orders, **QUICK, concurrency=1, prefetch=8)
    async def bill(order: Order, delivery: Delivery) -> None:
        deliveries.append((order.id, delivery.count))
        if delivery.count == 1:
            await hang.wait()

    async with app:
        await orders.send_many([Order(number) for number in range(5)])
        first = worker(app)
        first.start()
        await eventually(lambda: deliveries)
        await eventually(lambda: _pending_is(store, 5))
        killed(first)

        # When another worker runs, then it handles each entry, at the second delivery
        async with working(app):
            await eventually(store.settled)
    assert sorted(deliveries[1:]) == [(number, 2) for number in range(5)]
    await buried(first)


async def _pending_is(store: Store, count: int) -> bool:
    return len(await store.pending()) == count


async def test_the_claiming_example_of_faststream_is_handled_within_a_second_by_one_worker(
    store: Store,
) -> None:
    # FastStream's claiming subscriber (min_idle_time) does not read new entries, so its own example
    # never handles the message that it publishes.
    apps = [store.app(), store.app()]
    handled: list[tuple[str, float]] = []

    placed: Stream[Placed] = Stream("orders-stream", Placed)
    for app in apps:

        @app.consumer(placed, group="order-processors", claim_after="10s")
        async def process(order: Placed) -> None:
            handled.append((order.order_id, time.monotonic()))

    async with working(apps[0]), working(apps[1]):
        sent = time.monotonic()
        await apps[0].send(placed, Placed(order_id="order-123"))
        await eventually(lambda: handled)
        await eventually(lambda: store.settled("order-processors", "orders-stream"))
    assert [(name, at - sent < 1) for name, at in handled] == [("order-123", True)]


async def test_entries_are_claimed_when_no_new_ones_arrive(store: Store) -> None:
    # taskiq-redis claims only after new entries have arrived.
    app = store.app()
    handled = []

    @app.consumer(orders, **QUICK)
    async def bill(order: Order, delivery: Delivery) -> None:
        handled.append((order.id, delivery.count))

    await store.look.xgroup_create("orders", "g", "0", mkstream=True)
    await store.look.xadd("orders", {"id": "17"})
    await store.look.xreadgroup("g", "gone", {"orders": ">"})

    async with working(app):
        await eventually(store.settled)

    assert handled == [(17, 2)]


async def test_entries_that_another_producer_added_are_read(store: Store) -> None:
    app = store.app()
    handled = []

    @app.consumer(orders, group="g")
    async def bill(order: Order, delivery: Delivery) -> None:
        handled.append((order.id, delivery.fields))

    async with working(app):
        await store.look.xadd("orders", {"id": "17", "note": "by hand"})
        await eventually(store.settled)

    assert handled == [(17, [(b"id", b"17"), (b"note", b"by hand")])]


async def test_a_new_group_begins_with_the_oldest_entry(store: Store) -> None:
    app = store.app()
    handled = []

    @app.consumer(orders, group="g")
    async def bill(order: Order) -> None:
        handled.append(order.id)

    async with app:
        await orders.send(Order(1))
        async with working(app):
            await orders.send(Order(2))
            await eventually(lambda: len(handled) == 2)
    assert handled == [1, 2]


async def test_sync_handlers_run_concurrently_in_threads(store: Store) -> None:
    app = store.app()
    together = threading.Barrier(3, timeout=20)
    names = set()

    @app.consumer(orders, group="g", concurrency=3)
    def bill(order: Order) -> None:
        names.add(threading.current_thread().name)
        together.wait()

    async with working(app):
        await orders.send_many([Order(number) for number in range(3)])
        await eventually(store.settled)
    assert len(names) == 3
    assert threading.current_thread().name not in names


async def test_concurrency_limits_running_handlers_and_prefetch_entries_in_flight(
    store: Store,
) -> None:
    app = store.app()
    running, most = 0, 0
    go_on = asyncio.Event()

    @app.consumer(orders, group="g", concurrency=2, prefetch=5)
    async def bill(order: Order) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await go_on.wait()
        running -= 1

    async with working(app):
        await orders.send_many([Order(number) for number in range(50)])
        await eventually(lambda: running == 2)
        await eventually(lambda: _pending_is(store, 5))
        held = len(await store.pending())
        go_on.set()
        await eventually(store.settled)
    assert held == 5
    assert most == 2
