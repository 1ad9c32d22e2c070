"""Dead letters: what cannot be handled is set aside with its error, and can be replayed."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from headwater import App, Dead, Stream


class Order(msgspec.Struct):
    id: int
    customer: str = "ann"


async def test_a_rejected_message_becomes_a_dead_letter() -> None:
    app = App("headwater://memory")
    orders = Stream("orders", Order)

    @app.consumer(orders, group="billing")
    async def bill(order: Order) -> None:
        if order.customer == "nobody":
            raise Dead("unknown customer")

    async with app.test() as t:
        (sent,) = await t.send(orders, Order(id=17, customer="nobody"))
        (letter,) = t.dead(orders)

    assert letter.entry_id == sent
    assert letter.error.endswith("Dead: unknown customer")
    assert letter.fields == [(b"id", b"17"), (b"customer", b"nobody")]


async def test_an_entry_that_does_not_fit_its_type_becomes_a_dead_letter() -> None:
    app = App("headwater://memory")
    orders = Stream("orders", Order)
    seen = []

    @app.consumer(orders, group="billing")
    async def bill(order: Order) -> None:
        seen.append(order.id)

    async with app.test() as t:
        await t.add(orders, {"id": "seventeen"})
        await t.send(orders, Order(id=18))
        (letter,) = t.dead(orders)

    assert "field 'id' = 'seventeen' is not a valid int" in letter.error
    assert seen == [18]


async def test_a_message_that_always_fails_becomes_a_dead_letter_after_max_deliveries() -> None:
    app = App("headwater://memory")
    orders = Stream("orders", Order)

    @app.consumer(orders, group="billing", max_deliveries=3, retry=None)
    async def bill(order: Order) -> None:
        raise ValueError("no price")

    async with app.test() as t:
        await t.send(orders, Order(id=17))
        assert t.deliveries(bill) == [1, 2, 3]
        (letter,) = t.dead(orders)
    assert (letter.deliveries, letter.error) == (3, "ValueError: no price")


async def test_a_message_that_always_kills_its_worker_becomes_a_dead_letter() -> None:
    # Another message may have caused the first two deaths. From then on this one runs in quarantine,
    # where its process dies twice.
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

        # A process that is only silent may be heard of again: for three times claim_after the message waits.
        assert t.dead(orders) == []
        await t.advance("90s")
        assert t.deliveries(bill) == [1, 2, 3, 4]
        (letter,) = t.dead(orders)
    assert letter.deliveries == 4
    assert letter.error.startswith("Crashes: 2 processes died while running it alone")


async def test_a_poison_message_makes_no_other_message_a_dead_letter() -> None:
    # Given a message that kills its process, in flight together with others
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
        await t.advance("90s")
        (letter,) = t.dead(orders)
    assert (b"id", b"3") in letter.fields
    assert sorted(handled) == [0, 1, 2, 4, 5]


@pytest.mark.slow
async def test_a_suspected_message_that_hangs_stops_its_process_only_for_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Given two messages that were in flight when a process died, twice, and whose handlers hang
    app = App("headwater://memory")
    orders = Stream("orders", Order)
    go_on = asyncio.Event()
    handled = []

    @app.consumer(orders, group="billing", claim_after="30s")
    async def bill(order: Order) -> None:
        if order.id < 3:
            await go_on.wait()
        handled.append(order.id)

    async with app.test() as t:
        await t.send(orders, Order(id=1), Order(id=2))
        for _death in range(2):
            t.crash(bill)
            await t.advance("31s")

        # When the first has run alone for longer than claim_after, then other messages are handled
        await t.advance("31s")
        await t.send(orders, Order(id=3))
        await t.advance("31s")
        assert handled == [3]
        assert "has run alone for 30 s" in caplog.text

        # The second one cannot run alone. The log says so after the third failed attempt to drain.
        assert "must run alone" not in caplog.text
        await t.advance("20m")
        assert "must run alone" in caplog.text
        await t.send(orders, Order(id=4))
        await t.advance("31s")
        assert handled == [3, 4]

        go_on.set()
        await t.advance("20m")
        assert t.pending(bill) == {}
        assert t.dead(orders) == []
    assert sorted(handled) == [1, 2, 3, 4]
