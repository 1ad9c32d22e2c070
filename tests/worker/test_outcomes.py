"""Outcomes of handlers: each settles the delivery and leaves the handler slot usable."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headwater.groups.settling.settling import How
from headwater.messages.keys import delays_key
from headwater.worker import Again, Backoff, Delivery
from tests.worker.apps import Invoice, Order, Store, eventually, invoices, orders, working
from tests.worker.core import Core

Handler = Callable[[Order], Any]


async def bill(order: Order) -> Invoice:
    await asyncio.sleep(0)
    return Invoice(order.id)


def decorated(handler: Callable[..., Any]) -> Handler:
    # Without functools.wraps, so that inspection does not reveal the wrapped function
    def wrapper(order: Order) -> Any:
        return handler(order)

    return wrapper


def returns_a_coroutine(order: Order) -> Any:
    return bill(order)


class Biller:
    def __call__(self, order: Order) -> Any:
        return bill(order)


async def rated(rate: float, order: Order) -> Invoice:
    return await bill(order)


HIDDEN_ASYNC: dict[str, Handler] = {
    "decorated": decorated(bill),
    "lambda": lambda order: bill(order),  # noqa: PLW0108  # hides that `bill` is async
    "partial of a lambda": functools.partial(lambda rate, one: rated(rate, one), 1.5),  # noqa: PLW0108
    "callable object": Biller(),
    "def that returns a coroutine": returns_a_coroutine,
}


@pytest.mark.parametrize("shape", HIDDEN_ASYNC)
async def test_a_coroutine_that_a_handler_returns_is_awaited_before_the_acknowledgement(
    store: Store, shape: str
) -> None:
    # Given a handler that looks synchronous and returns a coroutine
    app = store.app()
    app.consumer(orders, group="g", into=invoices)(HIDDEN_ASYNC[shape])

    # When a message arrives
    async with working(app):
        await orders.send(Order(17))
        await eventually(store.settled)

    # Then the coroutine ran, and its result is published
    assert await store.results() == [Invoice(17)]


async def test_returning_a_generator_fails_the_delivery(store: Store) -> None:
    # Given a handler behind a decorator that hides that it is a generator
    app = store.app()

    def steps(order: Order) -> Iterator[int]:
        yield order.id

    app.consumer(orders, group="g", max_deliveries=1)(decorated(steps))

    # When a message arrives, then its delivery fails
    async with working(app):
        await orders.send(Order(17))
        (letter,) = await eventually(store.dead)
    assert "returned a generator, which is never run" in letter.error


async def test_a_cancelled_error_raised_in_a_handler_fails_only_its_delivery(
    store: Store,
) -> None:
    # Given one handler slot, and a handler that awaits a cancelled task
    app = store.app()
    handled = []

    @app.consumer(orders, group="g", concurrency=1, max_deliveries=2, retry=None)
    async def wait(order: Order) -> None:
        if order.id == 1:
            task = asyncio.create_task(asyncio.sleep(60))
            task.cancel()
            await task
        handled.append(order.id)

    # When its message and another one arrive
    async with working(app):
        await orders.send_many([Order(1), Order(2)])
        await eventually(store.settled)

    # Then the first is a dead letter and the second is handled
    (letter,) = await store.dead()
    assert "CancelledError" in letter.error
    assert handled == [2]


async def test_a_handler_that_cancels_its_own_task_fails_only_its_delivery(
    store: Store,
) -> None:
    app = store.app()
    handled = []

    @app.consumer(orders, group="g", concurrency=1, max_deliveries=1)
    async def cancel(order: Order) -> None:
        if order.id == 1:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()  # returns before the cancellation is delivered
            return
        if order.id == 2:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(60)
        handled.append(order.id)

    async with working(app):
        await orders.send_many([Order(1), Order(2), Order(3), Order(4)])
        await eventually(store.settled)

    (letter,) = await store.dead()
    assert (b"id", b"2") in letter.fields
    assert handled == [3, 4]


async def test_stop_iteration_in_a_sync_handler_fails_only_its_delivery(
    store: Store,
) -> None:
    app = store.app()
    handled = []

    @app.consumer(orders, group="g", concurrency=1, max_deliveries=2, retry=None)
    def take(order: Order) -> None:
        if order.id == 1:
            next(iter([]))
        handled.append(order.id)

    async with working(app):
        await orders.send_many([Order(1), Order(2)])
        await eventually(store.settled)

    (letter,) = await store.dead()
    assert letter.error.startswith("StopIteration")
    assert handled == [2]


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit])
async def test_system_exit_in_a_handler_fails_only_its_delivery(
    store: Store, error: type[BaseException]
) -> None:
    app = store.app()
    handled = []

    @app.consumer(orders, group="g", concurrency=1, max_deliveries=2, retry=None)
    async def leave(order: Order) -> None:
        if order.id == 1:
            raise error
        handled.append(order.id)

    async with working(app):
        await orders.send_many([Order(1), Order(2)])
        await eventually(store.settled)

    (letter,) = await store.dead()
    assert letter.error.startswith(error.__name__)
    assert (letter.deliveries, handled) == (2, [2])


async def test_again_with_counted_false_does_not_use_up_an_attempt(store: Store) -> None:
    # Given a handler that raises Again more often than max_deliveries
    app = store.app()
    counts = []

    @app.consumer(orders, group="g", claim_after="300ms", max_deliveries=2)
    async def wait(order: Order, delivery: Delivery) -> None:
        counts.append(delivery.count)
        if len(counts) < 4:
            raise Again(after="20ms", counted=False)

    async with working(app):
        await orders.send(Order(17))
        await eventually(store.settled)

    # Then every delivery has count 1, and there is no dead letter
    assert counts == [1, 1, 1, 1]
    assert await store.dead() == []


def test_an_entry_delayed_without_counting_is_delivered_when_due_with_the_same_count(
    core: Core,
) -> None:
    # Given an entry that is delayed without counting the delivery
    core.client.xadd("s", {"v": "x"})
    (first,) = core.read()
    assert core.settle(first, How.SILENT, delay_ms=40_000).done
    other = core.another("two")

    # When it is not due, no consumer gets it; when it is due, it is delivered with the same count
    assert other.read() == []
    if core.advance is not None:
        core.advance(40)
    else:
        core.client.zadd(delays_key("s", "g"), {first.id: 1})
    (again,) = other.read()
    assert (again.delivery_count, again.from_silent) == (1, False)


async def test_a_failure_is_logged_with_its_delivery_count_and_retry_delay(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    app = store.app()

    @app.consumer(orders, group="g", max_deliveries=3, retry=Backoff("10ms", factor=3, jitter=0))
    async def bill(order: Order, delivery: Delivery) -> None:
        if delivery.count < 3:
            raise ConnectionError("the gateway is down")

    caplog.set_level(logging.INFO, "headwater.worker")
    async with working(app):
        sent = await orders.send(Order(17))
        await eventually(store.settled)

    error = "ConnectionError: the gateway is down"
    warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert [line.partition("bill ")[2] for line in warnings if "failed on" in line] == [
        f"failed on {sent} of orders (delivery {count} of 3), again in {delay} ms: {error}"
        for count, delay in ((1, 10), (2, 30))
    ]
