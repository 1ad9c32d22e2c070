"""Messages that are due at once, and `send_many` with its options: ``python -m benchmarks.worker.delayed URL MESSAGES KIND``.

    due                   messages that are due in the same millisecond; a worker publishes and handles them. Measured
                          by their ids: from the due time to the last one
    plain|after|dedupe    one call of ``send_many``, without options and with one

Each measurement is a process of its own, on the client's core.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from typing import Any, Final

import redis

from benchmarks.rows import OURS, OWN_VALUE, REDIS, Row, Target
from benchmarks.selection import Selection
from benchmarks.stores import WITH_REDIS, Store
from benchmarks.stores import measured as running
from benchmarks.worker.ours import Order, orders
from benchmarks.worker.subjects import Sample, measured, url
from benchmarks.worker.tally import GROUP, STREAM, Tally
from headwater.worker import App

SECTION: Final = "worker delayed"

SEND: Final = "send_many"
"""The series of the call without options, to which the others are compared."""

LEAD_SECONDS: Final = 4.0
"""How long before they are due the messages are scheduled; the worker has read all of them by then."""

DUE: Final = {
    OURS: Target(20_000, 40_000, by=OWN_VALUE),
    REDIS: Target(10_000, 40_000, by=OWN_VALUE),
}

OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "plain": {},
    "after": {"after": "1h"},
    "dedupe": {"dedupe": lambda order: f"order-{order.id}"},
}


def rows(selection: Selection, messages: int) -> Iterator[Row]:
    """Yield the rows on both stores."""
    with running(WITH_REDIS) as stores:
        for store in stores:
            name = f"due at once on {store.name}"
            if selection.wants(name):
                row = Row(SECTION, name, "/s", against=SEND, target=DUE[store.name])
                for _ in range(selection.rounds):
                    _add(row, SEND, _measured(store, messages, "plain"))
                    _add(row, OURS, _measured(store, messages, "due"))
                yield row
            for option in ("after", "dedupe"):
                name = f"send_many {option}= on {store.name}"
                if selection.wants(name):
                    row = Row(SECTION, name, "/s", against=SEND, target=Target(0.7, 1.0))
                    for _ in range(selection.rounds):
                        _add(row, SEND, _measured(store, messages, "plain"))
                        _add(row, OURS, _measured(store, messages, option))
                    yield row


def _measured(store: Store, messages: int, kind: str) -> Sample:
    words = [sys.executable, "-m", "benchmarks.worker.delayed", url(store), str(messages), kind]
    return measured(words, store)


def _add(row: Row, name: str, sample: Sample) -> None:
    row.of(name).add(sample.rate, cpu_us=sample.cpu_us)


def _orders(count: int) -> list[Order]:
    return [Order(n, f"c-{n % 100_000:05}", n % 997 + 0.25, "." * 13) for n in range(count)]


async def _send(app: App, tally: Tally, options: dict[str, Any]) -> None:
    many = _orders(tally.messages)
    async with app:
        await app.send(orders, many[0])  # connects
        began = time.perf_counter(), time.process_time()
        tally.handled = len(await app.send_many(orders, many, **options))
        tally.took(time.perf_counter() - began[0], time.process_time() - began[1])


async def _due(app: App, tally: Tally) -> None:
    """Schedule the messages and run a worker. The tally has the time from the due time to the last one's id."""
    handled = Tally(tally.messages)

    @app.consumer(orders, group=GROUP, prefetch=1_000)
    async def handle(order: Order) -> None:
        if handled.add():
            app.stop()

    due = time.time() + LEAD_SECONDS
    async with app:
        for first in range(0, tally.messages, 1_000):
            part = _orders(tally.messages)[first : first + 1_000]
            await app.send_many(
                orders, part, after=f"{max(0, round((due - time.time()) * 1000))}ms"
            )
    began = time.process_time()
    await app.run()
    async with redis.asyncio.Redis.from_url(app.url) as client:
        last: Any = await client.xrevrange(STREAM, count=1)
    seconds = int(last[0][0].partition(b"-")[0]) / 1000 - due
    tally.handled = handled.handled
    tally.took(seconds, time.process_time() - began)


def main() -> None:
    """Measure, report."""
    address, messages, kind = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    app, tally = App(address, name="bench"), Tally(messages)
    asyncio.run(_due(app, tally) if kind == "due" else _send(app, tally, OPTIONS[kind]))
    tally.report()


if __name__ == "__main__":
    main()
