"""Results are published in one step with the acknowledgement; leases are renewed, or lost."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from headwater.errors import DeclarationError
from headwater.messages.keys import early_claims_key
from headwater.worker import App, Delivery
from headwater.worker.declare.statistics import Counters
from headwater.worker.running import Running
from tests.worker.apps import (
    Invoice,
    Order,
    Store,
    elapsed,
    eventually,
    invoices,
    orders,
    worker,
    working,
)

QUICK: dict[str, Any] = {"group": "g", "claim_after": "300ms"}

pytestmark = pytest.mark.slow


def bill_on_event(app: App) -> tuple[asyncio.Event, asyncio.Event]:
    """Declare a consumer whose handler waits. Returns an event that is set when the handler has begun, and
    one that lets it return."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    @app.consumer(orders, group="g", into=invoices)
    async def bill(order: Order) -> Invoice:
        begun.set()
        await go_on.wait()
        return Invoice(order.id)

    return begun, go_on


async def _pending_is(store: Store, count: int) -> bool:
    return len(await store.pending()) == count


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


async def test_each_result_in_a_list_is_published(store: Store) -> None:
    app = store.app()

    @app.consumer(orders, group="g", into=invoices)
    def bill(order: Order) -> list[Invoice]:
        return [Invoice(order.id), Invoice(order.id + 1)]

    async with working(app):
        await orders.send(Order(1))
        await eventually(store.settled)

    assert [one.order for one in await store.results()] == [1, 2]


async def test_a_worker_that_lost_its_lease_publishes_nothing(store: Store) -> None:
    # Given a running handler whose entry another consumer claims and acknowledges
    app = store.app()
    begun, go_on = bill_on_event(app)

    async with working(app) as running:
        await orders.send(Order(17))
        await begun.wait()
        (row,) = await store.pending()
        await store.look.xclaim("orders", "g", "other", 0, [row[0]])
        await store.look.xack("orders", "g", row[0])

        # When it returns its result, then nothing is published
        go_on.set()
        (loop,) = running.loops.values()
        await eventually(lambda: not loop.in_flight.owned)
    assert await store.results() == []


async def test_a_result_of_another_type_fails_the_delivery(store: Store) -> None:
    app = store.app()

    @app.consumer(orders, group="g", into=invoices, max_deliveries=1)
    async def bill(order: Order) -> Any:
        return order

    async with working(app):
        await orders.send(Order(17))
        (letter,) = await eventually(store.dead)
    assert letter.error.startswith("TypeError: ")
    assert (
        "returned a value of type Order, but stream 'invoices' has messages of type Invoice"
        in letter.error
    )
    assert await store.results() == []


async def test_results_that_the_store_refuses_are_retried(store: Store) -> None:
    # Given a key of another type at the name of the result stream
    app = store.app()
    tries = 0

    @app.consumer(orders, group="g", into=invoices, retry=None)
    async def bill(order: Order) -> Invoice:
        nonlocal tries
        tries += 1
        if tries == 3:
            await store.look.delete("invoices")
        return Invoice(order.id)

    await store.look.set("invoices", "not a stream")
    async with working(app):
        await orders.send(Order(17))
        await eventually(store.settled)
    assert [one.order for one in await store.results()] == [17]
    assert tries == 3


# --- leases ---------------------------------------------------------------------------------------


async def test_prefetched_entries_of_a_live_worker_are_not_claimed(store: Store) -> None:
    # FastStream's buffered entries become idle in the buffer, and another worker claims them.
    apps = [store.app(), store.app()]
    handled: list[tuple[int, int, int]] = []
    go_on = asyncio.Event()
    for number, app in enumerate(apps):

        @app.consumer(orders, **QUICK, concurrency=1, prefetch=20)
        async def bill(order: Order, delivery: Delivery, worker_number: int = number) -> None:
            if not go_on.is_set():
                await go_on.wait()
            handled.append((order.id, delivery.count, worker_number))

    async with app, working(apps[0]):
        await apps[0].send_many(orders, [Order(number) for number in range(10)])
        await eventually(lambda: _pending_is(store, 10))
        async with working(apps[1]):
            # When three times claim_after has passed
            await eventually(elapsed(0.9))
            go_on.set()
            await eventually(store.settled)
    assert sorted(handled) == [(number, 1, 0) for number in range(10)]


async def test_leases_are_renewed_while_a_handler_blocks_the_event_loop(store: Store) -> None:
    # Given a handler that blocks its event loop for three times claim_after
    app = store.app()
    handled = []

    @app.consumer(orders, **QUICK)
    async def bill(order: Order, delivery: Delivery) -> None:
        handled.append(delivery.count)
        time.sleep(0.9)  # noqa: ASYNC251  # blocks on purpose

    # When its worker runs in another thread, and a second worker looks for claimable entries
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

    # Then the second worker gets nothing
    assert handled == [1]
    assert await store.pending() == []


async def _handle_one(app: App) -> None:
    running = worker(app)
    running.start()
    (loop,) = running.loops.values()
    await eventually(lambda: loop.in_flight.owned)
    await eventually(lambda: not loop.in_flight.owned)
    await running.stop(5)


async def test_a_lost_lease_cancels_the_handler_and_drops_its_settlement(store: Store) -> None:
    # Given a running handler
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

        # When another consumer claims its entry
        (row,) = await store.pending()
        await store.look.xclaim("orders", "g", "other", 0, [row[0]], justid=True)

        # Then the handler is cancelled, and the worker neither settles nor publishes
        await eventually(lambda: ends)
        (loop,) = running.loops.values()
        await eventually(lambda: not loop.in_flight.owned)
        ((_id, owner, _idle, count),) = await store.pending()
        assert (owner, count) == ("other", 1)
        # And it counts that the entry was claimed while its handler ran
        await eventually(lambda: _counted_early(store, row[0]))
        await store.look.xack("orders", "g", row[0])
    assert ends == ["lost True"]
    assert await store.results() == []


async def test_the_first_finisher_settles_and_the_result_of_the_other_one_is_dropped(
    store: Store,
) -> None:
    # Given two workers with handlers in threads, and an entry that the second one claims from the first
    apps, begun, go_on = [store.app(), store.app()], [0, 0], [threading.Event(), threading.Event()]
    for number, app in enumerate(apps):

        @app.consumer(orders, **QUICK, into=invoices)
        def bill(order: Order, number: int = number) -> Invoice:
            begun[number] += 1
            go_on[number].wait(20)
            return Invoice(100 + number)

    async with working(apps[0]) as first:
        await orders.send(Order(17))
        await eventually(lambda: begun[0])
        (loop,) = first.loops.values()
        loop.admission.paused = True
        await loop.fetcher.quieten()
        ((entry_id, _owner, _idle, _count),) = await store.pending()
        await store.look.xclaim("orders", "g", "other", 0, [entry_id], idle=60_000, justid=True)
        async with working(apps[1]) as second:
            await eventually(lambda: begun[1])
            await eventually(lambda: not loop.in_flight.owned)

            # When the first finishes first, then it settles the entry with its result
            go_on[0].set()
            await eventually(store.settled)
            go_on[1].set()
            await eventually(lambda: counted(second).overtaken)
    assert begun == [1, 1]
    assert await store.results() == [Invoice(100)]
    # And the later result is dropped and counted
    assert (counted(first).handled, counted(first).overtaken) == (1, 0)
    assert (counted(second).handled, counted(second).lost) == (0, 1)


def counted(running: Running) -> Counters:
    (loop,) = running.loops.values()
    return loop.endings.telemetry.counters


async def test_an_entry_delivered_again_before_its_settlement_has_one_result(
    store: Store,
) -> None:
    # Given an entry whose handler has returned
    app = store.app()
    begun, go_on = bill_on_event(app)

    async with working(app) as running:
        await orders.send(Order(17))
        await begun.wait()
        (loop,) = running.loops.values()
        in_flight, result = loop.in_flight, [invoices.addition(Invoice(17))]
        (first,) = in_flight.owned.values()
        in_flight.acknowledge(first, result)

        # When it is delivered again before it is settled, and handled
        (again,) = in_flight.take([first.delivered])
        in_flight.acknowledge(again, result)

        # Then one of the results is published
        await eventually(store.settled)
        await eventually(lambda: not in_flight.owned)
        go_on.set()
    assert await store.results() == [Invoice(17)]


async def test_an_outdated_failed_renewal_does_not_end_the_delivery(store: Store) -> None:
    # Given a running handler whose worker owns its entry
    app = store.app()
    begun, go_on = bill_on_event(app)

    async with working(app) as running:
        await orders.send(Order(17))
        await begun.wait()

        # When an outdated renewal says that the lease is lost
        (loop,) = running.loops.values()
        loop.in_flight.lost([*loop.in_flight.owned.values()])
        await eventually(elapsed(0.2))

        # Then the delivery continues
        go_on.set()
        await eventually(store.settled)
    assert await store.results() == [Invoice(17)]


async def test_a_worker_continues_after_it_lost_a_lease(store: Store) -> None:
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
        await store.look.xclaim("orders", "g", "other", 0, [row[0]], justid=True)
        await store.look.xack("orders", "g", row[0])
        await orders.send_many([Order(2), Order(3)])
        await eventually(lambda: handled == [2, 3])


@pytest.mark.parametrize("claim_after", ["5s", "1m"])
async def test_a_second_value_of_claim_after_is_refused_at_the_start(
    store: Store, claim_after: str
) -> None:
    first, second = store.app(), store.app()
    first.consumer(orders, group="g", claim_after="30s")(lambda order: None)
    second.consumer(orders, group="g", claim_after=claim_after)(lambda order: None)
    async with working(first) as running:
        (loop,) = running.loops.values()
        await eventually(lambda: loop.fetcher.joined)
        with pytest.raises(
            DeclarationError, match="group 'g' of stream 'orders' claims after 30000"
        ):
            await second.run()


async def _counted_early(store: Store, entry_id: str) -> bool:
    counted: Any = await store.look.hgetall(early_claims_key("orders", "g"))
    return bool(counted == {entry_id.encode(): b"1"})
