"""What simulated workers are given to do: messages, and the handlers that do what these say."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from headwater.worker import Again, App, Backoff, Batch, Dead, Delivery, Stream
from headwater.worker.clocks import Timers, sleep

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
    """What a message has its handler do. ``runs`` are its runs without an interruption."""

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
"""In a batch "raise once" fails all of it, the others fail their own item."""


class Shape(StrEnum):
    """How a consumer is declared."""

    EACH = "each"
    BATCH = "batch"
    ORDER = "order"


class Scenario(NamedTuple):
    """Messages for a consumer of this shape."""

    messages: Sequence[str]
    """What each is to do; for an ordered consumer with its key before it: ``a: fail once``."""
    shape: Shape = Shape.EACH
    size: int = 3
    """Of a batch."""
    prefetch: int | None = None
    """Unless it is the usual one."""
    apart: str = "0s"
    """How much time passes after each message."""

    def order(self, number: int) -> Order:
        """The message of this number."""
        key, _colon, do = self.messages[number].rpartition(":")
        return Order(number, do.strip(), key)

    def kind(self, number: int) -> Kind:
        """What comes of it. One that raises in a batch fails those that run with it."""
        kind = KINDS[self.order(number).do]
        failing = sum(one == "raise once" for one in self.messages)
        if self.shape is not Shape.BATCH or not kind.runs or self.messages[number] == "raise once":
            return kind
        return kind._replace(runs=kind.runs + failing)


def _batch(*messages: str, size: int = 3, prefetch: int | None = None) -> Scenario:
    return Scenario(messages, Shape.BATCH, size, prefetch)


def _order(*messages: str, apart: str = "0s") -> Scenario:
    return Scenario(messages, Shape.ORDER, apart=apart)


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
    # Who takes over has room for a part of the second batch.
    "parted batches": _batch(*("slow", "slow", "", "slow", "slow", "", "slow", "slow"), prefetch=6),
    "keys": _order("a:", "b: yield", "a: yield", "b:", "a:"),
    "keys with retries": _order("a: fail once", "a:", "b: again", "b: yield", "a: again", "b:"),
    "keys with dead letters": _order("a: dead", "a:", "unreadable", "b: fail", "b: yield", "a:"),
    "keys with poison": _order("a:", "a: kill", "a: yield", "b: again"),
    "long keys": _order("a: slow", "a: slow", "b: slow", "a:"),
    "keys over time": _order("a:", "a: slow", "b:", "a:", "b: again", "a:", "a:", "b:", apart="1s"),
}


class Watching(Protocol):
    """Who is told what handlers do."""

    clock: Timers

    def began(self, order: Order, delivery: Delivery) -> None:
        """A handler has this message now."""

    def kill(self) -> None:
        """This message kills its process."""


def declare(app: App, scenario: Scenario, watching: Watching, *, into: bool) -> Callable[..., Any]:
    """Declare the scenario's consumer; its handler."""
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
        return batch(_batch_handler(watching))
    if scenario.shape is Shape.ORDER:
        options["order_by"] = lambda order: order.key
    return app.consumer(orders, **options)(_handler(watching))


def _handler(watching: Watching) -> Callable[..., Awaitable[Invoice]]:
    async def handle(order: Order, delivery: Delivery) -> Invoice:
        watching.began(order, delivery)
        await _take_time(watching, order.do)
        match order.do:
            case "again" if delivery.count == 1:
                raise Again(after="2s")
            case "fail once" | "raise once" if delivery.count == 1:
                raise ValueError("as it was told")
            case "fail":
                raise ValueError("as it was told")
            case "dead":
                raise Dead("as it was told")
        return Invoice(order.id)

    return handle


def _batch_handler(watching: Watching) -> Callable[..., Awaitable[list[Invoice]]]:
    async def load(rows: Batch[Order]) -> list[Invoice]:
        for order, delivery in zip(rows, rows.deliveries, strict=True):
            watching.began(order, delivery)
        handled, raises = [], False
        for index, order in enumerate(rows):
            first = rows.deliveries[index].count == 1
            await _take_time(watching, order.do)
            match order.do:
                case "again" if first:
                    rows.again(index, after="2s")
                case "fail once" if first:
                    rows.fail(index, "as it was told")
                case "fail":
                    rows.fail(index, "as it was told")
                case "dead":
                    rows.dead(index, "as it was told")
                case _:
                    raises = raises or (order.do == "raise once" and first)
                    handled.append(Invoice(order.id))
        if raises:
            raise ValueError("as it was told")
        return handled

    return load


async def _take_time(watching: Watching, do: str) -> None:
    if do == "yield":
        await asyncio.sleep(0)
    elif do == "slow":
        await sleep(watching.clock, 2.5)
    elif do == "kill":
        watching.kill()
        await asyncio.sleep(0)
