"""A flow of messages through workers, and the checks at its end."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import redis.exceptions

from headwater.client.aio.connect import connect
from headwater.errors import HeadwaterError
from headwater.worker import App, Stream
from tests.worker.apps import Invoice, Order, Store, eventually, working

orders: Stream[Order] = Stream("orders", Order)
near: Stream[Invoice] = Stream("{orders}.invoices", Invoice)
far: Stream[Invoice] = Stream("invoices", Invoice)
"""In another slot than ``orders``."""

BATCHES = {None: 60, 1: 20}
"""Messages sent at a time, without and with waiting for a replica."""
PAUSE_SECONDS = 0.015
"""Between two batches."""


@dataclass
class Flow:
    """The messages that were sent and handled."""

    app: App
    into: Stream[Invoice]
    wait: int | None
    sent: set[int] = field(default_factory=set)
    """Messages that the store has confirmed; with ``wait``, a replica too."""
    handled: Counter[int] = field(default_factory=Counter)
    number: int = 0
    stream = orders.name

    def summary(self) -> str:
        """The line to print."""
        repeats = sum(self.handled.values()) - len(self.handled)
        return (
            f"results in {self.into.name}, {len(self.sent)} of {self.number} confirmed, "
            f"{len(self.handled)} handled, {repeats} runs more"
        )

    async def more(self, count: int) -> None:
        """Wait until ``count`` more messages were sent and ``count`` more were handled."""
        sent, handled = len(self.sent), len(self.handled)
        await eventually(lambda: len(self.sent) >= sent + count, "messages are sent")
        await eventually(lambda: len(self.handled) >= handled + count, "messages are handled")

    async def publish_unsure(self) -> None:
        """Send messages without waiting for a replica, until cancelled."""
        while True:
            numbers = range(self.number, self.number + BATCHES[1])
            self.number += BATCHES[1]
            with suppress(HeadwaterError, redis.exceptions.RedisError):
                await self.app.send_many(orders, [Order(id=n) for n in numbers])
            await asyncio.sleep(PAUSE_SECONDS)

    async def publish(self) -> None:
        """Send until cancelled. A refused or uncertain message is not sent again."""
        while True:
            numbers = range(self.number, self.number + BATCHES[self.wait])
            self.number += BATCHES[self.wait]
            if self.wait is None:
                await self._try(numbers)
            else:
                await asyncio.gather(*(self._try(range(n, n + 1)) for n in numbers))
            await asyncio.sleep(PAUSE_SECONDS)

    async def _try(self, numbers: range) -> None:
        try:
            if self.wait is None:
                await self.app.send_many(orders, [Order(id=n) for n in numbers])
            else:
                await self.app.send(orders, Order(id=numbers[0]), wait=self.wait)
        except (HeadwaterError, redis.exceptions.RedisError):
            return
        self.sent.update(numbers)


@asynccontextmanager
async def flowing(
    name: str, url: str, *, into: Stream[Invoice] = near, wait: int | None = None
) -> AsyncIterator[Flow]:
    """Messages flow while the block runs. At its end all confirmed messages must be handled and settled."""
    app = App(url, name="test")
    flow = Flow(app, into, wait)

    @app.consumer(
        orders,
        group="g",
        into=into,
        lease="900ms",
        claim_after="3s",
        concurrency=64,
        prefetch=512,
        max_deliveries=100,
    )
    async def bill(order: Order) -> Invoice:
        flow.handled[order.id] += 1
        await asyncio.sleep(0)
        return Invoice(order=order.id)

    async with working(app), working(app):
        publishing = [asyncio.create_task(flow.publish())]
        if wait is not None:
            publishing.append(asyncio.create_task(flow.publish_unsure()))
        try:
            await flow.more(500)
            yield flow
        finally:
            for task in publishing:
                task.cancel()
            await asyncio.wait(publishing)
        await eventually(lambda: flow.handled.keys() >= flow.sent, "all that was sent is handled")
        async with connect(url) as look:
            store = Store(name, url, look)
            await eventually(store.settled)
            results = Counter(one.order for one in await store.results(into))
    assert results.keys() >= flow.sent
    if into is near:
        # Publishing and settling are one step, so a lost primary loses both together.
        assert [n for n, count in results.items() if count > 1] == []
