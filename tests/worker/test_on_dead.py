"""``@app.on_dead`` is called for each dead letter, at least once, and makes none itself."""

from __future__ import annotations

import asyncio
import logging
from typing import Annotated, Any

import pytest

from headwater.errors import DeclarationError
from headwater.messages import DeadLetter
from headwater.worker import App, Dead, Delivery, Stream, Use
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


def failing(app: App, **options: Any) -> None:
    """A consumer that can handle no order."""

    @app.consumer(orders, group="g", **options)
    async def bill(order: Order) -> None:
        raise Dead(f"unknown order {order.id}")


async def test_every_dead_letter_is_handed_to_on_dead_and_stays_in_its_stream(
    store: Store,
) -> None:
    app = store.app()
    failing(app)
    seen: list[DeadLetter] = []

    @app.on_dead(orders)
    async def alert(letter: DeadLetter) -> None:
        seen.append(letter)

    async with working(app):
        await app.send_many(orders, [Order(1), Order(2)])
        await eventually(lambda: store.settled("hw.on_dead", "{orders}.dead"))
        await eventually(lambda: len(seen) == 2)
    assert sorted(seen) == await store.dead()
    assert sorted(one.error for one in seen) == [
        "headwater.Dead: unknown order 1",
        "headwater.Dead: unknown order 2",
    ]


async def test_on_dead_survives_the_crash_of_its_worker(store: Store) -> None:
    # Given a worker that is killed while its on_dead handler runs
    app = store.app()
    failing(app)
    counts: list[int] = []
    hang = asyncio.Event()

    @app.on_dead(orders, claim_after="300ms")
    async def alert(letter: DeadLetter, delivery: Delivery) -> None:
        counts.append(delivery.count)
        if delivery.count == 1:
            await hang.wait()

    async with app:
        await app.send(orders, Order(1))
        first = worker(app)
        first.start()
        await eventually(lambda: counts)
        killed(first)
        # Then another worker calls it again
        async with working(app):
            await eventually(lambda: store.settled("hw.on_dead", "{orders}.dead"))
    assert counts == [1, 2]
    await buried(first)


def open_pager() -> str:
    return "pager"


@pytest.mark.parametrize("in_thread", [False, True])
async def test_on_dead_that_fails_is_tried_again_and_makes_no_dead_letters(
    caplog: pytest.LogCaptureFixture, *, in_thread: bool
) -> None:
    # Given an on_dead handler that always fails
    app = App("headwater://memory")
    failing(app)

    async def alert(
        letter: DeadLetter, delivery: Delivery, pager: Annotated[str, Use(open_pager)]
    ) -> None:
        raise ConnectionError(f"no {pager} for {letter.id}")

    def alert_in_thread(
        letter: DeadLetter, delivery: Delivery, pager: Annotated[str, Use(open_pager)]
    ) -> None:
        raise ConnectionError(f"no {pager} for {letter.id}")

    handler = alert_in_thread if in_thread else alert
    app.on_dead(orders, max_deliveries=3)(handler)

    async with app.test() as t:
        await t.send(orders, Order(1))
        await t.advance("1m")
        # Then it was tried as often as it may, with an error at the end
        assert t.deliveries(handler) == [1, 2, 3]
        (letter,) = t.dead(orders)
        assert t.pending(handler) == {}
        errors = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
        assert len(errors) == 1
        assert (
            f"gave up on dead letter {letter.id} of {{orders}}.dead (delivery 3 of 3)" in errors[0]
        )
        assert f"ConnectionError: no pager for {letter.id}" in errors[0]
        # and there are no dead letters of dead letters
        assert t.dead("{orders}.dead") == [letter]
        keys: Any = t.look.keys()
        assert not [key for key in keys if key.count(b".dead") > 1]


async def test_on_dead_that_raises_dead_gives_up_at_once() -> None:
    app = App("headwater://memory")
    failing(app)

    @app.on_dead(orders)
    async def alert(letter: DeadLetter) -> None:
        raise Dead("nobody cares")

    async with app.test() as t:
        await t.send(orders, Order(1))
        assert t.deliveries(alert) == [1]
        assert t.pending(alert) == {}
        assert len(t.dead(orders)) == 1


async def test_a_foreign_record_is_handed_on_as_far_as_it_can_be_read() -> None:
    app = App("headwater://memory")
    failing(app)
    seen: list[DeadLetter] = []

    @app.on_dead(orders)
    async def alert(letter: DeadLetter) -> None:
        seen.append(letter)

    async with app.test() as t:
        added = await t.add("{orders}.dead", {"a": b"\xff", "hw.deliveries": "many"})
    assert [(one.id, one.fields, one.deliveries) for one in seen] == [(added, [(b"a", b"\xff")], 0)]


async def test_on_dead_follows_the_dead_letter_stream_of_the_consumers() -> None:
    app = App("headwater://memory")
    failing(app, dead="graveyard")
    seen: list[str] = []

    @app.on_dead(orders)
    async def alert(letter: DeadLetter) -> None:
        seen.append(letter.stream)

    async with app.test() as t:
        await t.send(orders, Order(1))
    assert seen == ["orders"]


async def test_one_on_dead_may_serve_several_streams_by_the_name() -> None:
    app = App("headwater://memory")
    failing(app, dead="graveyard")
    others: Stream[Order] = Stream("others", Order)

    @app.consumer(others, group="g", dead="graveyard")
    async def load(order: Order) -> None:
        raise Dead("no")

    seen: list[str] = []

    @app.on_dead("graveyard")
    async def alert(letter: DeadLetter) -> None:
        seen.append(letter.stream)

    async with app.test() as t:
        await t.send(orders, Order(1))
        await t.send(others, Order(1))
    assert seen == ["orders", "others"]


def test_on_dead_that_would_miss_records_is_refused() -> None:
    async def alert(letter: DeadLetter) -> None: ...

    async def wrong(letter: Order) -> None: ...

    app = App("headwater://memory")
    for stream, options, handler, complaint in (
        (17, {}, alert, "expected a Stream, or the name of a dead-letter stream"),
        (orders, {"into": orders}, alert, "unknown option 'into'"),
        (orders, {}, wrong, "expects Order, its stream holds DeadLetter"),
    ):
        with pytest.raises(DeclarationError, match=complaint):
            app.on_dead(stream, **options)(handler)  # type: ignore[arg-type]

    # Given two groups with two dead-letter streams
    failing(app, dead="graveyard")

    @app.consumer(orders, group="h")
    async def load(order: Order) -> None: ...

    with pytest.raises(DeclarationError, match="several dead-letter streams"):
        app.on_dead(orders)

    # and on_dead before the consumer that says where
    early = App("headwater://memory")
    early.on_dead(orders)(alert)
    with pytest.raises(
        DeclarationError, match=r"declare on_dead after .*bill, or pass it the name"
    ):
        failing(early, dead="graveyard")
    with pytest.raises(DeclarationError, match=r"has the handler .*alert already"):
        early.on_dead(orders)(wrong_name)


async def wrong_name(letter: DeadLetter) -> None: ...
