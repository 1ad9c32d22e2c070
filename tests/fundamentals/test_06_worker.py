"""The worker: typed handlers for the messages of a group, which a crash neither loses nor repeats unnoticed.

``app.test()`` runs the app with the real store, in memory, and a clock that only the test advances.
"""

from __future__ import annotations

import asyncio
import time

import msgspec
import pytest

from headwater import App, Delivery, Stream, Tick
from headwater.errors import DeclarationError, HeadwaterError


class Order(msgspec.Struct):
    id: int
    customer: str = "ann"


class Invoice(msgspec.Struct):
    order: int


async def test_a_handler_gets_typed_messages() -> None:
    app = App("headwater://memory")
    orders = Stream("orders", Order)
    seen = []

    @app.consumer(orders, group="billing")
    async def bill(order: Order) -> None:
        seen.append(order)

    async with app.test() as t:
        await t.send(orders, Order(id=17))

    assert seen == [Order(id=17)]


async def test_a_stream_has_one_codec_for_producers_and_consumers() -> None:
    # The default codec writes a field per attribute; codec="json" writes one JSON document.
    app = App("headwater://memory")
    plain = Stream("plain", Order)
    document = Stream("document", Order, codec="json")

    async with app.test() as t:
        await t.send(plain, Order(id=17))
        await t.send(document, Order(id=17))
        assert t.look.xrange("plain")[0][1] == {b"id": b"17", b"customer": b"ann"}  # type: ignore[index]
        assert t.look.xrange("document")[0][1] == {b"data": b'{"id":17,"customer":"ann"}'}  # type: ignore[index]


async def test_a_handler_gets_entries_of_any_producer() -> None:
    app = App("headwater://memory")
    orders = Stream("orders", Order)
    seen = []

    @app.consumer(orders, group="billing")
    async def bill(order: Order) -> None:
        seen.append(order)

    async with app.test() as t:
        await t.add(orders, {"id": "17", "customer": "bob", "colour": "red"})

    assert seen == [Order(id=17, customer="bob")]


async def test_each_group_sees_every_entry() -> None:
    app = App("headwater://memory")
    orders = Stream("orders", Order)
    seen = []

    @app.consumer(orders, group="billing")
    async def bill(order: Order) -> None:
        seen.append("bill")

    @app.consumer(orders, group="warehouse")
    async def pack(order: Order) -> None:
        seen.append("pack")

    async with app.test() as t:
        await t.send(orders, Order(id=17))

    assert sorted(seen) == ["bill", "pack"]


async def test_an_entry_is_acknowledged_after_its_handler_returned() -> None:
    app = App("headwater://memory")
    orders = Stream("orders", Order)
    go_on = asyncio.Event()

    @app.consumer(orders, group="billing")
    async def bill(order: Order) -> None:
        await go_on.wait()

    async with app.test() as t:
        (sent,) = await t.send(orders, Order(id=17))
        assert t.pending(bill) == {sent: 1}
        go_on.set()
        await t.settle()
        assert t.pending(bill) == {}


async def test_a_crash_loses_nothing_and_counts_as_a_delivery() -> None:
    app = App("headwater://memory")
    orders = Stream("orders", Order)
    first = asyncio.Event()

    @app.consumer(orders, group="billing", claim_after="30s")
    async def bill(order: Order, delivery: Delivery) -> None:
        if not delivery.redelivered:
            await first.wait()

    async with app.test() as t:
        await t.send(orders, Order(id=17))
        t.crash(bill)
        await t.advance("29s")
        assert t.deliveries(bill) == [1]
        await t.advance("2s")
        assert t.deliveries(bill) == [1, 2]
        assert t.pending(bill) == {}


@pytest.mark.slow
async def test_a_message_is_not_claimed_while_it_is_handled() -> None:
    # A live worker renews its leases, however long the handler takes.
    app = App("headwater://memory")
    orders = Stream("orders", Order)
    go_on = asyncio.Event()

    @app.consumer(orders, group="billing", claim_after="30s")
    async def bill(order: Order) -> None:
        await go_on.wait()

    async with app.test() as t:
        await t.send(orders, Order(id=17))
        await t.advance("1h")
        assert t.deliveries(bill) == [1]
        go_on.set()
        await t.settle()
        assert t.pending(bill) == {}


async def test_a_handler_is_cancelled_after_its_timeout() -> None:
    app = App("headwater://memory")
    orders = Stream("orders", Order)

    @app.consumer(orders, group="billing", timeout="60s", max_deliveries=1)
    async def bill(order: Order) -> None:
        await asyncio.Event().wait()

    async with app.test() as t:
        await t.send(orders, Order(id=17))
        await t.advance("59s")
        assert t.dead(orders) == []
        await t.advance("1s")
        (letter,) = t.dead(orders)
    assert letter.error == "TimeoutError: it ran longer than 60 s"


async def test_a_blocking_handler_runs_in_a_thread() -> None:
    app = App("headwater://memory")
    orders = Stream("orders", Order)
    invoices = Stream("invoices", Invoice)

    @app.consumer(orders, group="billing", into=invoices)
    def bill(order: Order) -> Invoice:
        time.sleep(0.01)
        return Invoice(order=order.id)

    async with app.test() as t:
        await t.send(orders, Order(id=1), Order(id=2))
        assert sorted(one.order for one in t.results(invoices)) == [1, 2]


async def test_prefetch_bounds_the_pending_messages() -> None:
    app = App("headwater://memory")
    orders = Stream("orders", Order)
    go_on = asyncio.Event()

    @app.consumer(orders, group="billing", concurrency=2, prefetch=4)
    async def bill(order: Order) -> None:
        await go_on.wait()

    async with app.test() as t:
        await t.send(orders, *(Order(id=number) for number in range(10)))
        assert len(t.deliveries(bill)) == 2
        assert len(t.pending(bill)) == 4
        go_on.set()
        await t.settle()
        assert len(t.deliveries(bill)) == 10


async def test_a_program_without_a_worker_can_publish() -> None:
    app = App("headwater://memory")
    orders = Stream("orders", Order)

    async with app:
        sent = await orders.send(Order(id=17))
        several = await orders.send_many([Order(id=18), Order(id=19)])

    assert sent < several[0] < several[1]


def test_a_program_without_an_event_loop_can_publish() -> None:
    app = App("headwater://memory")
    orders = Stream("orders", Order)

    with app:
        sent = orders.publish(Order(id=17))
        several = orders.publish_many([Order(id=18), Order(id=19)])

    assert sent < several[0] < several[1]


async def test_publishing_needs_an_open_app() -> None:
    with pytest.raises(HeadwaterError, match="no app is open to publish to 'orders'"):
        await Stream("orders", Order).send(Order(id=17))


async def test_many_messages_are_named_and_delayed_together() -> None:
    app = App("headwater://memory")
    orders = Stream("orders", Order)

    async with app:
        several = [Order(id=17), Order(id=18)]
        first = await orders.send_many(several, dedupe=lambda order: f"order-{order.id}")
        again = await orders.send_many(several, dedupe=["order-17", "order-18"])
        later = await orders.send_many(several, after="10m")

    assert first == again
    assert [one.stream for one in later] == ["orders", "orders"]


async def test_a_function_is_called_at_declared_times() -> None:
    app = App()
    called: list[str] = []

    @app.every("5m")
    async def sweep(tick: Tick) -> None:
        called.append(f"{tick.time:%H:%M}")

    async with app.test() as t:  # its clock begins at 22:13:20
        await t.advance("10m")

    assert called == ["22:15", "22:20"]


def test_a_mistake_in_a_declaration_is_reported_at_once() -> None:
    app = App("headwater://memory")
    orders = Stream("orders", Order)

    with pytest.raises(DeclarationError, match="must be shorter than claim_after"):
        app.consumer(orders, group="billing", claim_after="10s", lease="10s")(print_it)
    with pytest.raises(DeclarationError, match="unknown option 'prefech'"):
        app.consumer(orders, group="billing", prefech=10)(print_it)  # type: ignore[call-arg]


def print_it(order: Order) -> None:
    print(order)
