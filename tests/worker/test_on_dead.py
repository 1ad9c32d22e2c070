"""``@app.on_dead`` is called for each dead letter, at least once, and creates no dead letters itself."""

from __future__ import annotations

import asyncio
import logging
from typing import Annotated, Any

import pytest

from headwater.errors import DeclarationError
from headwater.messages.dead import DeadLetter
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
    """Add a consumer that rejects every order."""

    @app.consumer(orders, group="g", **options)
    async def bill(order: Order) -> None:
        raise Dead(f"unknown order {order.id}")


async def test_on_dead_gets_every_dead_letter_and_leaves_it_in_its_stream(
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


async def test_on_dead_is_called_again_after_its_worker_crashed(store: Store) -> None:
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
        # When another worker runs, then it calls the handler again
        async with working(app):
            await eventually(lambda: store.settled("hw.on_dead", "{orders}.dead"))
    assert counts == [1, 2]
    await buried(first)


def open_pager() -> str:
    return "pager"


@pytest.mark.parametrize("in_thread", [False, True])
async def test_a_failing_on_dead_handler_is_retried_and_creates_no_dead_letters(
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
        # Then it was retried max_deliveries times, and the last failure is logged as an error
        assert t.deliveries(handler) == [1, 2, 3]
        (letter,) = t.dead(orders)
        assert t.pending(handler) == {}
        errors = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
        assert len(errors) == 1
        assert (
            f"gave up on dead letter {letter.id} of {{orders}}.dead (delivery 3 of 3)" in errors[0]
        )
        assert f"ConnectionError: no pager for {letter.id}" in errors[0]
        # And there are no dead letters of dead letters
        assert t.dead("{orders}.dead") == [letter]
        keys: Any = t.look.keys()
        assert not [key for key in keys if key.count(b".dead") > 1]


async def test_an_on_dead_handler_that_raises_dead_is_not_retried() -> None:
    app = App("headwater://memory")
    failing(app)

    @app.on_dead(orders)
    async def alert(letter: DeadLetter) -> None:
        raise Dead("ignored")

    async with app.test() as t:
        await t.send(orders, Order(1))
        assert t.deliveries(alert) == [1]
        assert t.pending(alert) == {}
        assert len(t.dead(orders)) == 1


async def test_on_dead_gets_what_can_be_parsed_of_a_record_by_another_program() -> None:
    app = App("headwater://memory")
    failing(app)
    seen: list[DeadLetter] = []

    @app.on_dead(orders)
    async def alert(letter: DeadLetter) -> None:
        seen.append(letter)

    async with app.test() as t:
        added = await t.add("{orders}.dead", {"a": b"\xff", "hw.deliveries": "many"})
    assert [(one.id, one.fields, one.deliveries) for one in seen] == [(added, [(b"a", b"\xff")], 0)]


async def test_on_dead_reads_the_dead_letter_stream_of_the_consumers() -> None:
    app = App("headwater://memory")
    failing(app, dead="dead-letters")
    seen: list[str] = []

    @app.on_dead(orders)
    async def alert(letter: DeadLetter) -> None:
        seen.append(letter.stream)

    async with app.test() as t:
        await t.send(orders, Order(1))
    assert seen == ["orders"]


async def test_one_on_dead_handler_can_serve_several_streams() -> None:
    app = App("headwater://memory")
    failing(app, dead="dead-letters")
    others: Stream[Order] = Stream("others", Order)

    @app.consumer(others, group="g", dead="dead-letters")
    async def load(order: Order) -> None:
        raise Dead("no")

    seen: list[str] = []

    @app.on_dead("dead-letters")
    async def alert(letter: DeadLetter) -> None:
        seen.append(letter.stream)

    async with app.test() as t:
        await t.send(orders, Order(1))
        await t.send(others, Order(1))
    assert sorted(seen) == ["orders", "others"]


def test_declarations_of_on_dead_that_would_miss_dead_letters_are_refused() -> None:
    async def alert(letter: DeadLetter) -> None: ...

    async def wrong(letter: Order) -> None: ...

    app = App("headwater://memory")
    for stream, options, handler, complaint in (
        (17, {}, alert, "expected a Stream, or the name of a dead-letter stream"),
        (orders, {"into": orders}, alert, "unknown option 'into'"),
        (orders, {}, wrong, "expects Order, but its stream holds DeadLetter"),
    ):
        with pytest.raises(DeclarationError, match=complaint):
            app.on_dead(stream, **options)(handler)  # type: ignore[arg-type]

    # Given two groups with two dead-letter streams
    failing(app, dead="dead-letters")

    @app.consumer(orders, group="h")
    async def load(order: Order) -> None: ...

    with pytest.raises(DeclarationError, match="several dead-letter streams"):
        app.on_dead(orders)

    # And on_dead before the consumer that names its dead-letter stream
    early = App("headwater://memory")
    early.on_dead(orders)(alert)
    with pytest.raises(
        DeclarationError, match=r"declare on_dead after .*bill, or pass it the name"
    ):
        failing(early, dead="dead-letters")
    with pytest.raises(DeclarationError, match=r"has the handler .*alert already"):
        early.on_dead(orders)(wrong_name)


async def wrong_name(letter: DeadLetter) -> None: ...
