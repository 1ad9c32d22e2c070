"""A result is published in one step with the acknowledgement: once, or not at all."""

from __future__ import annotations

import asyncio

import msgspec

from headwater import App, Delivery, Stream


class Order(msgspec.Struct):
    id: int
    customer: str = "ann"


class Invoice(msgspec.Struct):
    order: int


async def test_a_result_is_published_in_one_step_with_the_acknowledgement() -> None:
    app = App("headwater://memory")
    orders = Stream("orders", Order)
    invoices = Stream("invoices", Invoice)

    @app.consumer(orders, group="billing", into=invoices)
    async def bill(order: Order) -> Invoice:
        return Invoice(order=order.id)

    async with app.test() as t:
        await t.send(orders, Order(id=1), Order(id=2))
        assert t.results(invoices) == [Invoice(order=1), Invoice(order=2)]


async def test_results_of_one_consumer_are_messages_of_the_next() -> None:
    app = App("headwater://memory")
    orders = Stream("orders", Order)
    invoices = Stream("invoices", Invoice)
    booked = []

    @app.consumer(orders, group="billing", into=invoices)
    async def bill(order: Order) -> Invoice:
        return Invoice(order=order.id)

    @app.consumer(invoices, group="books")
    async def book(invoice: Invoice) -> None:
        booked.append(invoice.order)

    async with app.test() as t:
        await t.send(orders, Order(id=17))

    assert booked == [17]


async def test_a_handler_may_have_several_results_or_none() -> None:
    app = App("headwater://memory")
    orders = Stream("orders", Order)
    invoices = Stream("invoices", Invoice)

    @app.consumer(orders, group="billing", into=invoices)
    async def bill(order: Order) -> list[Invoice] | None:
        return [Invoice(order=order.id)] * order.id if order.id else None

    async with app.test() as t:
        await t.send(orders, Order(id=0), Order(id=2))
        assert t.results(invoices) == [Invoice(order=2), Invoice(order=2)]
        assert t.pending(bill) == {}


async def test_a_delivery_that_fails_publishes_nothing() -> None:
    app = App("headwater://memory")
    orders = Stream("orders", Order)
    invoices = Stream("invoices", Invoice)

    @app.consumer(orders, group="billing", into=invoices, retry=None, max_deliveries=2)
    async def bill(order: Order) -> Invoice:
        raise ValueError("no price")

    async with app.test() as t:
        await t.send(orders, Order(id=17))
        assert t.deliveries(bill) == [1, 2]
        assert t.results(invoices) == []


async def test_a_crash_before_the_acknowledgement_leaves_no_result() -> None:
    app = App("headwater://memory")
    orders = Stream("orders", Order)
    invoices = Stream("invoices", Invoice)
    first = asyncio.Event()

    @app.consumer(orders, group="billing", into=invoices, claim_after="30s")
    async def bill(order: Order, delivery: Delivery) -> Invoice:
        if not delivery.redelivered:
            await first.wait()
        return Invoice(order=order.id)

    async with app.test() as t:
        await t.send(orders, Order(id=17))
        t.crash(bill)
        assert t.results(invoices) == []
        await t.advance("31s")
        assert t.results(invoices) == [Invoice(order=17)]
