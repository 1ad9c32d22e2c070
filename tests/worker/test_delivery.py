"""At least once; new and claimed in one loop; results in one step; leases."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import msgspec
import pytest

from headwater.errors import DeclarationError
from headwater.worker import App, Delivery, Stream
from tests.worker.apps import (
    Invoice,
    Order,
    Store,
    buried,
    elapsed,
    eventually,
    invoices,
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
    # Given a worker that holds an entry, running, and others, buffered, and is killed
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
        await eventually(lambda: _held(store, 5))
        killed(first)

        # When another works, then each is handled, in its second delivery
        async with working(app):
            await eventually(store.settled)
    assert sorted(deliveries[1:]) == [(number, 2) for number in range(5)]
    await buried(first)


async def _held(store: Store, count: int) -> bool:
    return len(await store.pending()) == count


async def test_order_123_of_faststreams_claiming_example_is_handled_in_the_first_second_by_one_worker(
    store: Store,
) -> None:
    # FastStream's claiming subscriber (min_idle_time) never reads new entries, so its own example
    # never handles the message it publishes.
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


async def test_entries_are_claimed_on_a_silent_stream_too(store: Store) -> None:
    # taskiq-redis claims only after new traffic has come.
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


async def test_plain_entries_of_any_producer_are_read(store: Store) -> None:
    app = store.app()
    handled = []

    @app.consumer(orders, group="g")
    async def bill(order: Order, delivery: Delivery) -> None:
        handled.append((order.id, delivery.fields))

    async with working(app):
        await store.look.xadd("orders", {"id": "17", "note": "by hand"})
        await eventually(store.settled)

    assert handled == [(17, [(b"id", b"17"), (b"note", b"by hand")])]


async def test_a_new_group_begins_with_what_the_stream_holds(store: Store) -> None:
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


async def test_sync_handlers_run_in_threads_and_at_the_same_time(store: Store) -> None:
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


async def test_concurrency_and_prefetch_are_bounds(store: Store) -> None:
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
        await eventually(lambda: _held(store, 5))
        held = len(await store.pending())
        go_on.set()
        await eventually(store.settled)
    assert held == 5
    assert most == 2


# --- results --------------------------------------------------------------------------------------


async def test_a_result_is_published_in_one_step_with_the_acknowledgement(store: Store) -> None:
    app = store.app()

    @app.consumer(orders, group="g", into=invoices)
    async def bill(order: Order) -> Invoice | None:
        return Invoice(order.id) if order.id != 2 else None

    async with working(app):
        await orders.send_many([Order(1), Order(2), Order(3)])
        await eventually(store.settled)

    assert sorted(one.order for one in await store.results()) == [1, 3]


async def test_each_of_a_list_of_results_is_published(store: Store) -> None:
    app = store.app()

    @app.consumer(orders, group="g", into=invoices)
    def bill(order: Order) -> list[Invoice]:
        return [Invoice(order.id), Invoice(order.id + 1)]

    async with working(app):
        await orders.send(Order(1))
        await eventually(store.settled)

    assert [one.order for one in await store.results()] == [1, 2]


async def test_a_worker_that_lost_its_entry_publishes_nothing(store: Store) -> None:
    # Given a handler that does not see that another takes its entry and handles it
    app = store.app()
    held, go_on = asyncio.Event(), asyncio.Event()

    @app.consumer(orders, group="g", into=invoices)
    async def bill(order: Order) -> Invoice:
        held.set()
        await go_on.wait()
        return Invoice(order.id)

    async with working(app) as running:
        await orders.send(Order(17))
        await held.wait()
        (row,) = await store.pending()
        await store.look.xclaim("orders", "g", "thief", 0, [row[0]])
        await store.look.xack("orders", "g", row[0])

        # When it returns its result, then nothing is published
        go_on.set()
        (loop,) = running.loops.values()
        await eventually(lambda: not loop.custody.held)
    assert await store.results() == []


async def test_a_result_of_another_type_is_the_handlers_failure(store: Store) -> None:
    app = store.app()

    @app.consumer(orders, group="g", into=invoices, max_deliveries=1)
    async def bill(order: Order) -> Any:
        return order

    async with working(app):
        await orders.send(Order(17))
        (letter,) = await eventually(store.dead)
    assert letter.error.startswith("TypeError: ")
    assert "returned a Order, 'invoices' holds Invoice" in letter.error
    assert await store.results() == []


async def test_results_that_their_stream_does_not_take_are_tried_again(store: Store) -> None:
    # Given a key of another type where the results belong
    app = store.app()
    tries = 0

    @app.consumer(orders, group="g", into=invoices, retry=None)
    async def bill(order: Order) -> Invoice:
        nonlocal tries
        tries += 1
        if tries == 3:
            await store.look.delete("invoices")
        return Invoice(order.id)

    await store.look.set("invoices", "no stream")
    async with working(app):
        await orders.send(Order(17))
        await eventually(store.settled)
    assert [one.order for one in await store.results()] == [17]
    assert tries == 3


# --- leases ---------------------------------------------------------------------------------------


async def test_buffered_entries_of_a_healthy_worker_are_not_taken_from_it(store: Store) -> None:
    # FastStream's buffered entries grow old in the buffer, and another worker claims them.
    apps = [store.app(), store.app()]
    handled: list[tuple[int, int, int]] = []
    go_on = asyncio.Event()
    for number, app in enumerate(apps):

        @app.consumer(orders, **QUICK, concurrency=1, prefetch=20)
        async def bill(order: Order, delivery: Delivery, who: int = number) -> None:
            if not go_on.is_set():
                await go_on.wait()
            handled.append((order.id, delivery.count, who))

    async with app, working(apps[0]):
        await apps[0].send_many(orders, [Order(number) for number in range(10)])
        await eventually(lambda: _held(store, 10))
        async with working(apps[1]):
            # When three times claim_after has passed
            await eventually(elapsed(0.9))
            go_on.set()
            await eventually(store.settled)
    assert sorted(handled) == [(number, 1, 0) for number in range(10)]


async def test_a_handler_that_blocks_the_event_loop_keeps_its_lease(store: Store) -> None:
    # Given a handler that blocks its event loop for three times claim_after
    app = store.app()
    handled = []

    @app.consumer(orders, **QUICK)
    async def bill(order: Order, delivery: Delivery) -> None:
        handled.append(delivery.count)
        time.sleep(0.9)  # noqa: ASYNC251  # the mistake it is about

    # When it runs in a thread of its own and another worker looks for what it can claim
    def blocking_worker() -> None:
        asyncio.run(_handle_one(app))

    async with app:
        await orders.send(Order(17))
    other = store.app()
    other.consumer(orders, **QUICK)(lambda order: handled.append(-1))
    thread = threading.Thread(target=blocking_worker)
    thread.start()
    await eventually(lambda: handled)
    async with working(other):
        await eventually(lambda: not thread.is_alive())

    # Then the other one got nothing
    assert handled == [1]
    assert await store.pending() == []


async def _handle_one(app: App) -> None:
    running = worker(app)
    running.start()
    (loop,) = running.loops.values()
    await eventually(lambda: loop.custody.held)
    await eventually(lambda: not loop.custody.held)
    await running.stop(5)


async def test_a_lost_lease_cancels_the_handler_and_drops_its_settlement(store: Store) -> None:
    # Given a handler that runs
    app = store.app()
    ends: list[str] = []
    running_now = asyncio.Event()

    @app.consumer(orders, **QUICK, into=invoices)
    async def bill(order: Order, delivery: Delivery) -> Invoice:
        running_now.set()
        try:
            await asyncio.Event().wait()
        finally:
            ends.append(f"lost {delivery.lost}")
        return Invoice(order.id)

    async with working(app) as running:
        await orders.send(Order(17))
        await running_now.wait()

        # When another takes its entry
        (row,) = await store.pending()
        await store.look.xclaim("orders", "g", "thief", 0, [row[0]], justid=True)

        # Then the handler is cancelled, and nothing becomes of it
        await eventually(lambda: ends)
        (loop,) = running.loops.values()
        await eventually(lambda: not loop.custody.held)
        ((_id, owner, _idle, count),) = await store.pending()
        assert (owner, count) == ("thief", 1)
        await store.look.xack("orders", "g", row[0])
    assert ends == ["lost True"]
    assert await store.results() == []


async def test_a_worker_goes_on_after_it_lost_an_entry(store: Store) -> None:
    app = store.app()
    handled = []
    first = asyncio.Event()

    @app.consumer(orders, **QUICK, concurrency=1)
    async def bill(order: Order) -> None:
        if order.id == 1:
            first.set()
            await asyncio.Event().wait()
        handled.append(order.id)

    async with working(app):
        await orders.send(Order(1))
        await first.wait()
        (row,) = await store.pending()
        await store.look.xclaim("orders", "g", "thief", 0, [row[0]], justid=True)
        await store.look.xack("orders", "g", row[0])
        await orders.send_many([Order(2), Order(3)])
        await eventually(lambda: handled == [2, 3])


@pytest.mark.parametrize("claim_after", ["5s", "1m"])
async def test_a_second_value_of_claim_after_is_refused_at_start(
    store: Store, claim_after: str
) -> None:
    first, second = store.app(), store.app()
    first.consumer(orders, group="g", claim_after="30s")(lambda order: None)
    second.consumer(orders, group="g", claim_after=claim_after)(lambda order: None)
    async with working(first) as running:
        (loop,) = running.loops.values()
        await eventually(lambda: loop.reading.joined)
        with pytest.raises(
            DeclarationError, match="group 'g' of stream 'orders' claims after 30000"
        ):
            await second.run()
