"""Apps and stores for tests of the worker."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec
import pytest
import redis.asyncio
import redis.exceptions

from headwater.messages.dead import DeadLetter, parse_dead_letter
from headwater.messages.keys import dead_letter_stream
from headwater.worker import App, Backoff, Dead, Limit, Stream
from headwater.worker.running import Running, Surroundings
from headwater.worker.store.clocks import LoopClock
from headwater.worker.store.connections import Connections
from tests import waiting


class Order(msgspec.Struct):
    id: int


class Invoice(msgspec.Struct):
    order: int


orders: Stream[Order] = Stream("orders", Order)
invoices: Stream[Invoice] = Stream("invoices", Invoice)


def elapsed(seconds: float) -> Callable[[], bool]:
    """A condition for `eventually`: true after ``seconds`` of real time. For tests that depend on the
    store's clock."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


@dataclass
class Store:
    """An empty store, with a connection of the test for inspecting it."""

    name: str
    url: str
    look: redis.asyncio.Redis

    def app(self, **options: Any) -> App:
        return App(self.url, name="test", **options)

    async def pending(self, group: str = "g", stream: str = "orders") -> list[Any]:
        """Rows (id, consumer, idle time, delivery count) of the group's pending entries list."""
        try:
            rows: Any = await self.look.xpending_range(stream, group, "-", "+", 10_000)
        except redis.exceptions.ResponseError:
            return []  # no worker has created the group yet
        return [
            (
                row["message_id"].decode(),
                row["consumer"].decode(),
                row["time_since_delivered"],
                row["times_delivered"],
            )
            for row in rows
        ]

    async def dead(self, stream: str = "orders") -> list[DeadLetter]:
        records: Any = await self.look.xrange(dead_letter_stream(stream))
        return [
            parse_dead_letter(entry_id.decode(), [part for pair in fields.items() for part in pair])
            for entry_id, fields in records
        ]

    async def results(self, stream: Stream[Any] = invoices) -> list[Any]:
        entries: Any = await self.look.xrange(stream.name)
        return [stream.codec.decode(list(fields.items())) for _entry_id, fields in entries]

    async def consumers(self, group: str = "g", stream: str = "orders") -> list[str]:
        """Names of the group's consumers, without Headwater's internal ones."""
        found = await self.look.xinfo_consumers(stream, group)
        names = [one["name"].decode() for one in found]
        return [name for name in names if not name.startswith("hw.")]

    async def consumers_if_any(self, group: str = "g", stream: str = "orders") -> list[str]:
        """Like `consumers`, but empty while the group does not exist."""
        try:
            return await self.consumers(group, stream)
        except redis.exceptions.ResponseError:
            return []

    async def settled(self, group: str = "g", stream: str = "orders") -> bool:
        """Whether every entry was delivered and none is pending."""
        if not await self.look.exists(stream):
            return False
        info = await self.look.xinfo_stream(stream)
        return any(
            found["name"] == group.encode()
            and found["pending"] == 0
            and found["last-delivered-id"] == info["last-generated-id"]
            for found in await self.look.xinfo_groups(stream)
        )


eventually = waiting.in_time

one_store = pytest.mark.parametrize("store", ["headwater"], indirect=True)
"""For what does not depend on the store."""


def worker(app: App) -> Running:
    """A worker of this app in this process. Several of them act like several processes."""
    return Running(app.consumers, around=Surroundings(Connections(app.url), LoopClock(), Random(1)))


@asynccontextmanager
async def working(app: App, *, grace: float = 10.0) -> AsyncIterator[Running]:
    """Run a worker for the duration of the block."""
    running = worker(app)
    running.start()
    try:
        async with app:
            yield running
    finally:
        await running.stop(grace)


def killed(running: Running) -> None:
    """Drop all work of the worker without settling it, as SIGKILL would."""
    running.abandon()


async def buried(running: Running) -> None:
    """Close the connections of a worker that `killed` stopped."""
    await running.close()


async def work_in_every_way(store: Store) -> None:
    """Let workers settle, fail, retry, bury, delete, limit and order entries, and publish in every way. Returns when all is
    done."""
    app, ledger = store.app(), store.app()

    @app.consumer(
        orders,
        group="billing",
        into=invoices,
        delete=True,
        claim_after="200ms",
        retry=Backoff("1ms", ceiling="10ms"),
        max_deliveries=2,
        expires="1h",
        limit=[Limit(1_000, per="1s"), Limit(concurrent=1, by=lambda _order: "all")],
    )
    async def bill(order: Order) -> Invoice:
        if order.id == 2:
            raise ValueError("no price")
        if order.id == 3:
            raise Dead("never")
        return Invoice(order.id)

    @ledger.consumer(invoices, group="ledger", claim_after="100ms", order_by=lambda it: it.order)
    async def enter(invoice: Invoice) -> None: ...

    async def billed() -> bool:
        return {one.order for one in await store.results()} == {1, 4, 5}

    async def entered() -> bool:
        return not await store.pending("ledger", "invoices")

    async with working(app), working(ledger):
        await app.send_many(orders, [Order(1), Order(2), Order(3)])
        await app.send(orders, Order(4), dedupe="four")
        scheduled = await app.send(orders, Order(6), after="1h")
        await app.send(orders, Order(5), after="1ms")
        assert await scheduled.cancel()
        await eventually(billed)
        await eventually(lambda: store.settled("billing"))
        await eventually(entered)
        await eventually(elapsed(0.1))  # for a renewal of the reader key
