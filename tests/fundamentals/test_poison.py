"""Messages that kill their process, one concept a test."""

from __future__ import annotations

import asyncio

import msgspec

from headwater import App, Stream


class Order(msgspec.Struct):
    id: int


async def test_what_kills_its_worker_every_time_is_a_dead_letter_too() -> None:
    # The first two deaths may be a neighbour's fault. From then on it runs alone, and dies twice.
    app = App("headwater://memory")
    orders = Stream("orders", Order)
    forever = asyncio.Event()

    @app.consumer(orders, group="billing", claim_after="30s")
    async def bill(order: Order) -> None:
        await forever.wait()

    async with app.test() as t:
        await t.send(orders, Order(id=17))
        for _death in range(4):
            t.crash(bill)
            await t.advance("31s")
        assert t.deliveries(bill) == [1, 2, 3, 4]
        (letter,) = t.dead(orders)
    assert letter.deliveries == 4
    assert letter.error.startswith("Crashes: 2 processes died while they ran it alone")


async def test_a_poison_message_takes_no_neighbour_with_it() -> None:
    # Given a message that kills its process, among others that are in flight with it
    app = App("headwater://memory")
    orders = Stream("orders", Order)
    forever = asyncio.Event()
    handled = []

    @app.consumer(orders, group="billing", claim_after="30s", max_deliveries=2)
    async def bill(order: Order) -> None:
        if order.id == 3:
            await forever.wait()
        handled.append(order.id)

    async with app.test() as t:
        await t.send(orders, *(Order(id=number) for number in range(6)))
        for _death in range(4):
            t.crash(bill)
            await t.advance("31s")
        (letter,) = t.dead(orders)
    assert (b"id", b"3") in letter.fields
    assert sorted(handled) == [0, 1, 2, 4, 5]
