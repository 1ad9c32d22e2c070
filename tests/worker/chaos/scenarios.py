"""Scenarios for simulated workers: messages, and handlers that do what the messages say."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from headwater.worker import Again, App, Backoff, Batch, Dead, Delivery, Stream
from headwater.worker.store.clocks import Timers, sleep

MOST_DELIVERIES: Final = 4


class Order(msgspec.Struct):
    id: int
    do: str = ""
    key: str = ""


class Invoice(msgspec.Struct):
    order: int


orders: Stream[Order] = Stream("orders", Order)
invoices: Stream[Invoice] = Stream("invoices", Invoice)


class Kind(NamedTuple):
    """Expected effects of a message. ``runs`` is the number of its runs without an interruption."""

    runs: int = 1
    dead: bool = False


KINDS: Final = {
    "": Kind(),
    "yield": Kind(),
    "slow": Kind(),
    "fail once": Kind(runs=2),
    "again": Kind(runs=2),
    "raise once": Kind(runs=2),
    "dead": Kind(dead=True),
    "fail": Kind(runs=MOST_DELIVERIES, dead=True),
    "unreadable": Kind(runs=0, dead=True),
    "kill": Kind(dead=True),
}
"""In a batch, "raise once" fails the whole batch; the others fail only their own item."""


class Shape(StrEnum):
    """How a consumer is declared."""

    EACH = "each"
    BATCH = "batch"
    ORDER = "order"


class Scenario(NamedTuple):
    """Messages for a consumer of a given shape."""

    messages: Sequence[str]
    """What each message does. For an ordered consumer, its key comes first: ``a: fail once``."""
    shape: Shape = Shape.EACH
    size: int = 3
    """Size of a batch."""
    prefetch: int | None = None
    """The prefetch, or None for the default."""
    interval: str = "0s"
    """Time that passes after each message."""

    def order(self, number: int) -> Order:
        """The message of this number."""
        key, _colon, do = self.messages[number].rpartition(":")
        return Order(number, do.strip(), key)

    def kind(self, number: int) -> Kind:
        """Expected effects of a message. One that raises in a batch fails those that run with it."""
        kind = KINDS[self.order(number).do]
        failing = sum(one == "raise once" for one in self.messages)
        if self.shape is not Shape.BATCH or not kind.runs or self.messages[number] == "raise once":
            return kind
        return kind._replace(runs=kind.runs + failing)


def _batch(*messages: str, size: int = 3, prefetch: int | None = None) -> Scenario:
    return Scenario(messages, Shape.BATCH, size, prefetch)


def _order(*messages: str, interval: str = "0s") -> Scenario:
    return Scenario(messages, Shape.ORDER, interval=interval)


SCENARIOS: Final[dict[str, Scenario]] = {
    "results": Scenario(("", "yield", "yield", "")),
    "retries": Scenario(("fail once", "again", "yield")),
    "dead letters": Scenario(("dead", "unreadable", "fail", "")),
    "leases": Scenario(("slow", "slow", "")),
    "poison": Scenario(("", "kill", "yield", "again")),
    "all": Scenario(("", "again", "slow", "unreadable", "fail once", "dead", "yield", "fail")),
    "batches": _batch("", "yield", "", "yield", ""),
    "batches with retries": _batch("fail once", "", "again", "raise once", ""),
    "batches with dead letters": _batch("dead", "", "unreadable", "fail", "yield", size=4),
    "batches with poison": _batch("", "kill", "yield", "again"),
    "long batches": _batch("slow", "", "slow", "fail once", size=2),
    # The next worker has room for only a part of the second batch.
    "parted batches": _batch(*("slow", "slow", "", "slow", "slow", "", "slow", "slow"), prefetch=6),
    "keys": _order("a:", "b: yield", "a: yield", "b:", "a:"),
    "keys with retries": _order("a: fail once", "a:", "b: again", "b: yield", "a: again", "b:"),
    "keys with dead letters": _order("a: dead", "a:", "unreadable", "b: fail", "b: yield", "a:"),
    "keys with poison": _order("a:", "a: kill", "a: yield", "b: again"),
    "long keys": _order("a: slow", "a: slow", "b: slow", "a:"),
    "keys over time": _order(
        "a:", "a: slow", "b:", "a:", "b: again", "a:", "a:", "b:", interval="1s"
    ),
}


class Observer(Protocol):
    """Receives what handlers do."""

    clock: Timers

    def began(self, order: Order, delivery: Delivery) -> None:
        """A handler has begun this message."""

    def kill(self) -> None:
        """This message kills its process."""


def declare(app: App, scenario: Scenario, observer: Observer, *, into: bool) -> Callable[..., Any]:
    """Declare the scenario's consumer. Returns its handler."""
    options: dict[str, Any] = {} if scenario.prefetch is None else {"prefetch": scenario.prefetch}
    options |= {
        "group": "g",
        "claim_after": "3s",
        "lease": "1s",
        "concurrency": 2,
        "max_deliveries": MOST_DELIVERIES,
        "retry": Backoff("1s", jitter=0),
        "into": invoices if into else None,
    }
    if scenario.shape is Shape.BATCH:
        batch = app.batch(orders, **options, size=scenario.size, linger="50ms")
        return batch(_batch_handler(observer))
    if scenario.shape is Shape.ORDER:
        options["order_by"] = lambda order: order.key
    return app.consumer(orders, **options)(_handler(observer))


def _handler(observer: Observer) -> Callable[..., Awaitable[Invoice]]:
    async def handle(order: Order, delivery: Delivery) -> Invoice:
        observer.began(order, delivery)
        await _take_time(observer, order.do)
        match order.do:
            case "again" if delivery.count == 1:
                raise Again(after="2s")
            case "fail once" | "raise once" if delivery.count == 1:
                raise ValueError("as requested")
            case "fail":
                raise ValueError("as requested")
            case "dead":
                raise Dead("as requested")
        return Invoice(order.id)

    return handle


def _batch_handler(observer: Observer) -> Callable[..., Awaitable[list[Invoice]]]:
    async def load(rows: Batch[Order]) -> list[Invoice]:
        for order, delivery in zip(rows, rows.deliveries, strict=True):
            observer.began(order, delivery)
        handled, raises = [], False
        for index, order in enumerate(rows):
            first = rows.deliveries[index].count == 1
            await _take_time(observer, order.do)
            match order.do:
                case "again" if first:
                    rows.again(index, after="2s")
                case "fail once" if first:
                    rows.fail(index, "as requested")
                case "fail":
                    rows.fail(index, "as requested")
                case "dead":
                    rows.dead(index, "as requested")
                case _:
                    raises = raises or (order.do == "raise once" and first)
                    handled.append(Invoice(order.id))
        if raises:
            raise ValueError("as requested")
        return handled

    return load


async def _take_time(observer: Observer, do: str) -> None:
    if do == "yield":
        await asyncio.sleep(0)
    elif do == "slow":
        await sleep(observer.clock, 2.5)
    elif do == "kill":
        observer.kill()
        await asyncio.sleep(0)
