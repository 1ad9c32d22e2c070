"""Middleware sees every delivery and every published message, and its errors affect neither."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from headwater.errors import DeclarationError, NotSent
from headwater.messages.keys import Pairs
from headwater.worker import Again, App, Dead, Delivery, Ending, Middleware
from headwater.worker.declare.middleware import Chain
from tests.worker.apps import Invoice, Order, Store, eventually, invoices, orders, working

Next = Callable[[], Awaitable[Any]]


class Log(Middleware):
    """Records every hook call as ``name``, hook and arguments."""

    def __init__(self, name: str = "log", calls: list[str] | None = None) -> None:
        self.name = name
        self.calls: list[str] = [] if calls is None else calls

    def record(self, *words: object) -> None:
        self.calls.append(" ".join(map(str, (self.name, *words))))

    def receive(self, delivery: Delivery) -> None:
        self.record("receive", delivery.count)

    async def handle(self, delivery: Delivery, message: Any, call_next: Next) -> Any:
        self.record("handle", message.id)
        try:
            result = await call_next()
        except BaseException as error:
            self.record("raised", type(error).__name__)
            raise
        self.record("returned", result)
        return result

    def before_settle(self, delivery: Delivery, ending: Ending) -> None:
        self.record("before settle", ending)

    def after_settle(self, delivery: Delivery, ending: Ending) -> None:
        self.record("after settle", ending)

    def before_publish(self, stream: str, fields: Pairs) -> None:
        self.record("before publish", stream, dict(fields))

    def after_publish(self, stream: str, ids: Sequence[str], error: BaseException | None) -> None:
        self.record("after publish", stream, len(ids), error)


def billing(app: App) -> Any:
    @app.consumer(orders, group="g", into=invoices, max_deliveries=2)
    async def bill(order: Order, delivery: Delivery) -> Invoice:
        if order.id == 2 and not delivery.redelivered:
            raise Again("1s")
        if order.id == 3:
            raise Dead("unknown")
        return Invoice(order.id)

    return bill


async def test_the_first_middleware_is_the_outermost() -> None:
    calls: list[str] = []
    app = App("headwater://memory", middleware=[Log("outer", calls)])
    app.use(Log("inner", calls))
    billing(app)
    async with app.test() as t:
        await t.add(orders, {"id": "1"})
    assert calls == [
        "outer receive 1",
        "inner receive 1",
        "outer handle 1",
        "inner handle 1",
        "inner returned Invoice(order=1)",
        "outer returned Invoice(order=1)",
        "outer before publish invoices {b'order': b'1'}",
        "inner before publish invoices {b'order': b'1'}",
        "outer before settle acknowledged",
        "inner before settle acknowledged",
        "inner after settle acknowledged",
        "outer after settle acknowledged",
        "inner after publish invoices 1 None",
        "outer after publish invoices 1 None",
    ]


async def test_middleware_sees_how_a_delivery_ends(store: Store) -> None:
    app, log = store.app(), Log()
    app.use(log)
    billing(app)
    async with working(app):
        pass  # `working` runs a worker without middleware
    assert log.calls == []
    async with app.test() as t:
        await t.send(orders, Order(2))
        await t.advance("1s")
        await t.send(orders, Order(3))
    endings = [one for one in log.calls if "settle" in one or "raised" in one]
    assert endings == [
        "log raised Again",
        "log before settle retried",
        "log after settle retried",
        "log before settle acknowledged",
        "log after settle acknowledged",
        "log raised Dead",
        "log before settle dead",
        "log after settle dead",
    ]


async def test_middleware_works_on_every_store(store: Store) -> None:
    log = Log()
    app = store.app(middleware=[log])
    billing(app)
    task = asyncio.create_task(app.run())
    try:
        await app.send(orders, Order(1))
        await eventually(lambda: "log after publish invoices 1 None" in log.calls)
    finally:
        app.stop()
        await task
    assert "log after settle acknowledged" in log.calls


@pytest.mark.parametrize("in_thread", [False, True])
async def test_middleware_wraps_handlers_in_threads(*, in_thread: bool) -> None:
    log = Log()
    app = App("headwater://memory", middleware=[log])

    def in_a_thread(order: Order) -> None:
        raise ValueError("no")

    async def in_the_loop(order: Order) -> None:
        raise ValueError("no")

    app.consumer(orders, group="g", max_deliveries=1)(in_a_thread if in_thread else in_the_loop)
    async with app.test() as t:
        await t.send(orders, Order(1))
        (letter,) = t.dead(orders)
    assert letter.error == "ValueError: no"
    assert "log raised ValueError" in log.calls


# --- what it raises -------------------------------------------------------------------------------

ERRORS = [ValueError("as requested"), SystemExit(0), asyncio.CancelledError(), StopIteration()]


class Failing(Middleware):
    """Raises ``error`` in every hook except `handle`."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def receive(self, delivery: Delivery) -> None:
        raise self.error

    def before_settle(self, delivery: Delivery, ending: Ending) -> None:
        raise self.error

    def after_settle(self, delivery: Delivery, ending: Ending) -> None:
        raise self.error

    def before_publish(self, stream: str, fields: Pairs) -> None:
        fields.append((b"id", b"999"))
        raise self.error

    def after_publish(self, stream: str, ids: Sequence[str], error: BaseException | None) -> None:
        raise self.error


@pytest.mark.parametrize("error", ERRORS, ids=repr)
async def test_a_hook_that_fails_is_logged_and_changes_nothing(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    app = App("headwater://memory", middleware=[Failing(error)])
    bill = billing(app)
    async with app.test() as t:
        await t.send(orders, Order(1))
        assert t.results(invoices) == [Invoice(1)]
        assert t.pending(bill) == {}
        caplog.clear()
        await t.add(orders, {"id": "2"})
        assert t.results(invoices) == [Invoice(1)]
        await t.advance("1s")
        assert t.results(invoices) == [Invoice(1), Invoice(2)]
    failed = [one for one in caplog.records if one.levelno == logging.ERROR]
    assert [one.getMessage().split(" ")[0] for one in failed] == [
        "Failing.receive",
        "Failing.before_settle",
        "Failing.after_settle",
        "Failing.receive",
        "Failing.before_publish",
        "Failing.before_settle",
        "Failing.after_settle",
        "Failing.after_publish",
    ]


class Changing(Middleware):
    """Applies ``change`` to the fields of each published message."""

    def __init__(self, change: Callable[[list[Any]], None]) -> None:
        self.change = change

    def before_publish(self, stream: str, fields: Pairs) -> None:
        self.change(fields)


@pytest.mark.parametrize(
    "change",
    [
        lambda fields: fields.clear(),
        lambda fields: fields.append("trace"),
        lambda fields: fields.append((b"trace", 17)),
        lambda fields: fields.append((b"trace", b"1", b"2")),
        lambda fields: fields.append(None),
    ],
    ids=["none left", "not a pair", "a number", "three", "None"],
)
async def test_invalid_fields_are_logged_and_restored(
    change: Callable[[list[Any]], None], caplog: pytest.LogCaptureFixture
) -> None:
    # Given a middleware that makes the fields of each message invalid
    app = App("headwater://memory", middleware=[Changing(change)])
    bill = billing(app)
    # When messages and results are published
    async with app.test() as t:
        await t.send(orders, Order(1))
        # Then their fields are unchanged, and the worker continues
        assert t.results(invoices) == [Invoice(1)]
        assert t.pending(bill) == {}
    failed = [one for one in caplog.records if one.levelno == logging.ERROR]
    assert all("Changing.before_publish" in one.getMessage() for one in failed)
    assert len(failed) == 2


async def test_fields_can_be_text() -> None:
    app = App("headwater://memory", middleware=[Changing(lambda it: it.append(("trace", "ä")))])
    async with app.test() as t:
        await t.send(orders, Order(1))
        entries: Any = t.look.xrange("orders")
        assert entries[0][1] == {b"id": b"1", b"trace": "ä".encode()}


class Refusing(Middleware):
    def __init__(self, error: BaseException) -> None:
        self.error: BaseException | None = error

    async def handle(self, delivery: Delivery, message: Any, call_next: Next) -> Any:
        if self.error is not None:
            raise self.error
        return await call_next()


@pytest.mark.parametrize("error", ERRORS, ids=repr)
async def test_an_error_of_handle_fails_the_delivery(error: BaseException) -> None:
    refusing = Refusing(error)
    app = App("headwater://memory", middleware=[refusing])
    bill = billing(app)
    async with app.test() as t:
        await t.send(orders, Order(1))
        assert t.results(invoices) == []
        assert list(t.pending(bill).values()) == [1]
        refusing.error = None
        await t.advance("2s")
        assert t.results(invoices) == [Invoice(1)]


class Cached(Middleware):
    """Returns a stored result for some messages without calling the handler."""

    async def handle(self, delivery: Delivery, message: Any, call_next: Next) -> Any:
        return Invoice(order=0) if message.id == 7 else await call_next()


async def test_a_middleware_can_return_a_result_without_calling_the_handler() -> None:
    app = App("headwater://memory", middleware=[Cached()])
    billing(app)
    async with app.test() as t:
        await t.send(orders, Order(7), Order(1))
        assert t.results(invoices) == [Invoice(0), Invoice(1)]


class SuppressesCancellation(Middleware):
    """Suppresses the cancellation at the timeout."""

    async def handle(self, delivery: Delivery, message: Any, call_next: Next) -> Any:
        try:
            return await call_next()
        except asyncio.CancelledError:
            return None


async def test_a_middleware_that_suppresses_a_cancellation_does_not_block_the_slot() -> None:
    # Given one slot, a handler that hangs, and a middleware that suppresses its timeout
    app = App("headwater://memory", middleware=[SuppressesCancellation()])
    handled: list[int] = []

    @app.consumer(orders, group="g", concurrency=1, timeout="1s")
    async def bill(order: Order) -> None:
        if order.id == 1:
            await asyncio.Event().wait()
        handled.append(order.id)

    # Then the next message is handled
    async with app.test() as t:
        await t.send(orders, Order(1), Order(2))
        await t.advance("1s")
        assert handled == [2]


# --- publishing -----------------------------------------------------------------------------------


async def test_middleware_sees_every_way_to_publish(store: Store) -> None:
    log = Log()
    app = store.app(middleware=[log])
    async with app:
        await app.send(orders, Order(1))
        await app.send_many(orders, [Order(2), Order(3)])
        await app.send(orders, Order(4), dedupe="four")
    with app:
        await asyncio.to_thread(app.publish, orders, Order(5))
        await asyncio.to_thread(app.publish, orders, Order(6), dedupe="six")
        await asyncio.to_thread(app.publish_many, orders, [Order(7)])
    counts = [one for one in log.calls if "after" in one]
    assert counts == [f"log after publish orders {n} None" for n in (1, 2, 1, 1, 1, 1)]
    assert len(log.calls) == 7 + 6


async def test_middleware_sees_the_error_of_a_message_that_was_not_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headwater.worker.publish.publishing.RECONNECT_SECONDS", 0.0)
    log = Log()
    app = App("redis://localhost:1", middleware=[log])
    async with app:
        with pytest.raises(NotSent):
            await app.send(orders, Order(1))
    assert log.calls[-1].startswith("log after publish orders 0 1 message for 'orders' could not")


# --- declarations ---------------------------------------------------------------------------------


class AsyncReceive(Middleware):
    async def receive(self, delivery: Delivery) -> None: ...  # type: ignore[override]


class PlainHandle(Middleware):
    def handle(self, delivery: Delivery, message: Any, call_next: Next) -> Any: ...


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        (Log, r"expected an instance: Log\(\)"),
        ("log", "expected a Middleware"),
        (AsyncReceive(), "AsyncReceive.receive must not be `async def`"),
        (PlainHandle(), "PlainHandle.handle must be `async def`"),
    ],
)
def test_invalid_middleware_is_refused(wrong: Any, complaint: str) -> None:
    with pytest.raises(DeclarationError, match=complaint):
        App("headwater://memory").use(wrong)


def test_hooks_that_are_not_overridden_are_not_called() -> None:
    chain = Chain([Middleware()])
    assert not any((chain.receive, chain.handle, chain.before_settle, chain.after_settle))
