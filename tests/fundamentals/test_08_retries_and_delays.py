"""Retries and delays: what waits for its time waits in the store, not in a worker."""

from __future__ import annotations

import msgspec
import pytest

from headwater import Again, App, Backoff, Delivery, Stream


class Order(msgspec.Struct):
    id: int
    customer: str = "ann"


async def test_a_failed_message_is_retried_after_growing_delays() -> None:
    app = App("headwater://memory")
    orders = Stream("orders", Order)

    @app.consumer(orders, group="billing", retry=Backoff("1s", factor=10, jitter=0))
    async def bill(order: Order, delivery: Delivery) -> None:
        if delivery.count < 3:
            raise ConnectionError("the gateway is down")

    async with app.test() as t:
        await t.send(orders, Order(id=17))
        assert t.deliveries(bill) == [1]
        await t.advance("999ms")
        assert t.deliveries(bill) == [1]
        await t.advance("1ms")
        assert t.deliveries(bill) == [1, 2]
        await t.advance("9999ms")
        assert t.deliveries(bill) == [1, 2]
        await t.advance("1ms")
        assert t.deliveries(bill) == [1, 2, 3]
        assert t.pending(bill) == {}


async def test_a_handler_may_choose_the_delay_of_a_retry() -> None:
    app = App("headwater://memory")
    orders = Stream("orders", Order)

    @app.consumer(orders, group="billing")
    async def bill(order: Order, delivery: Delivery) -> None:
        if delivery.count == 1:
            raise Again(after="1m")

    async with app.test() as t:
        await t.send(orders, Order(id=17))
        await t.advance("59s")
        assert t.deliveries(bill) == [1]
        await t.advance("1s")
        assert t.deliveries(bill) == [1, 2]


@pytest.mark.slow
async def test_a_retry_survives_a_crash_of_the_worker() -> None:
    # The retry waits in the store, not in the worker.
    app = App("headwater://memory")
    orders = Stream("orders", Order)

    @app.consumer(orders, group="billing")
    async def bill(order: Order, delivery: Delivery) -> None:
        if delivery.count == 1:
            raise Again(after="1h")

    async with app.test() as t:
        await t.send(orders, Order(id=17))
        t.crash(bill)
        await t.advance("59m")
        assert t.deliveries(bill) == [1]
        await t.advance("1m")
        assert t.deliveries(bill) == [1, 2]


async def test_a_message_can_be_sent_for_later() -> None:
    app = App("headwater://memory")
    orders = Stream("orders", Order)
    seen = []

    @app.consumer(orders, group="billing")
    async def bill(order: Order) -> None:
        seen.append(order.id)

    async with app.test() as t:
        await orders.send(Order(id=17), after="10m")
        await t.advance("9m")
        assert seen == []
        await t.advance("1m")
        assert seen == [17]


async def test_a_message_that_waits_can_be_cancelled() -> None:
    app = App("headwater://memory")
    orders = Stream("orders", Order)
    seen = []

    @app.consumer(orders, group="billing")
    async def bill(order: Order) -> None:
        seen.append(order.id)

    async with app.test() as t:
        scheduled = await orders.send(Order(id=17), after="10m")
        assert await app.cancel(orders, scheduled.id)
        await t.advance("1h")
        assert seen == []
