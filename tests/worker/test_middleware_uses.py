"""Uses of middleware: a retry policy, a report of slow handlers, tracing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from headwater.messages.keys import Pairs
from headwater.worker import Again, App, Delivery, Middleware
from tests.worker.apps import Invoice, Order, invoices, orders

Next = Callable[[], Awaitable[Any]]


class RetryOutages(Middleware):
    """A retry policy: outages of the gateway delay the message by a minute and do not count."""

    async def handle(self, delivery: Delivery, message: Any, call_next: Next) -> Any:
        try:
            return await call_next()
        except ConnectionError as error:
            raise Again("1m", counted=False) from error


async def test_a_retry_policy_as_middleware() -> None:
    app = App("headwater://memory", middleware=[RetryOutages()])
    tries: list[int] = []

    @app.consumer(orders, group="g", max_deliveries=1)
    async def bill(order: Order) -> None:
        tries.append(order.id)
        if len(tries) < 4:
            raise ConnectionError("the gateway is unreachable")

    async with app.test() as t:
        await t.send(orders, Order(1))
        await t.advance("2m")
        assert t.pending(bill)
        await t.advance("1m")
        assert t.pending(bill) == {}
        assert t.dead(orders) == []


class ReportSlow(Middleware):
    """Reports handlers while they run longer than a limit."""

    def __init__(self, call_later: Callable[[float, Callable[[], object]], Any]) -> None:
        self.call_later = call_later
        self.reported: list[str] = []

    async def handle(self, delivery: Delivery, message: Any, call_next: Next) -> Any:
        timer = self.call_later(10, lambda: self.reported.append(delivery.id))
        try:
            return await call_next()
        finally:
            timer.cancel()


async def test_a_report_of_slow_handlers_as_middleware() -> None:
    app = App("headwater://memory")
    t = app.test()
    slow = ReportSlow(t.clock.call_later)
    app.use(slow)
    go_on = asyncio.Event()

    @app.consumer(orders, group="g")
    async def bill(order: Order) -> None:
        if order.id == 1:
            await go_on.wait()

    async with t:
        hanging, _quick = await t.send(orders, Order(1), Order(2))
        await t.advance("9s")
        assert slow.reported == []
        await t.advance("1s")
        assert slow.reported == [hanging]
        go_on.set()


class Trace(Middleware):
    """Copies a trace id from the handled message to the messages published meanwhile."""

    def __init__(self) -> None:
        self.trace_id = b"none"

    async def handle(self, delivery: Delivery, message: Any, call_next: Next) -> Any:
        self.trace_id = dict(delivery.fields).get(b"traceparent", b"none")
        return await call_next()

    def before_publish(self, stream: str, fields: Pairs) -> None:
        fields.append((b"traceparent", self.trace_id))


async def test_tracing_as_middleware() -> None:
    app = App("headwater://memory", middleware=[Trace()])

    @app.consumer(orders, group="g", into=invoices)
    async def bill(order: Order) -> Invoice:
        return Invoice(order.id)

    async with app.test() as t:
        await t.add(orders, {"id": "1", "traceparent": "00-17"})
        ((_id, fields),) = t.look.xrange("invoices")  # type: ignore[misc]
    assert fields == {b"order": b"1", b"traceparent": b"00-17"}
