"""Headwater's worker as it is measured: ``python -m benchmarks.worker.ours URL MESSAGES plain|into|batch|many``.

One process with a handler that only counts. Entries that are not settled at the end are an error.
"""

from __future__ import annotations

import asyncio
import os
import sys

import msgspec
import redis

from benchmarks.worker.raw import fill
from benchmarks.worker.tally import BATCH, GROUP, RESULTS, STREAM, Tally
from headwater.worker import App, Batch, Stream
from headwater.worker.process.main import freeze_program, work


class Order(msgspec.Struct):
    id: int
    customer: str
    amount: float
    note: str


class Invoice(msgspec.Struct):
    order: int


orders: Stream[Order] = Stream(STREAM, Order, codec="json")
invoices: Stream[Invoice] = Stream(RESULTS, Invoice, codec="json")

CLAIM_AFTER = os.environ.get("BENCH_CLAIM_AFTER", "30s")


def _plain(app: App, tally: Tally) -> None:
    @app.consumer(orders, group=GROUP, claim_after=CLAIM_AFTER, prefetch=2 * BATCH)
    async def handle(order: Order) -> None:
        if tally.add():
            app.stop()


def _into(app: App, tally: Tally) -> None:
    @app.consumer(orders, group=GROUP, claim_after=CLAIM_AFTER, prefetch=2 * BATCH, into=invoices)
    async def handle(order: Order) -> Invoice:
        if tally.add():
            app.stop()
        return Invoice(order.id)


def _batch(app: App, tally: Tally) -> None:
    @app.batch(
        orders, group=GROUP, claim_after=CLAIM_AFTER, size=BATCH, linger="5ms", prefetch=4 * BATCH
    )
    async def handle(rows: Batch[Order]) -> None:
        if tally.add(len(rows)):
            app.stop()


def _many(app: App, tally: Tally) -> None:
    """One busy stream of 200."""
    _plain(app, tally)
    for number in range(199):

        @app.consumer(Stream(f"idle-{number}", Order), group=GROUP, claim_after=CLAIM_AFTER)
        async def handle(order: Order) -> None: ...


KINDS = {"plain": _plain, "batch": _batch, "into": _into, "many": _many}


def unsettled(url: str, messages: int, *, into: bool) -> str:
    """Return what is wrong in the store after the work; empty if nothing is."""
    with redis.Redis.from_url(url) as client:
        pending = client.xpending(STREAM, GROUP)["pending"]
        results = client.xlen(RESULTS)
    if pending:
        return f"{pending} of {messages} entries are not settled"
    if into and results != messages:
        return f"{results} results of {messages} messages"
    return ""


def main() -> None:
    """Add the messages, handle them, report."""
    url, messages, kind = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    fill(url, messages)
    app, tally = App(url, name="bench"), Tally(messages)
    KINDS[kind](app, tally)
    freeze_program()  # as `headwater work` does
    asyncio.run(work(app, until_eof=False))
    wrong = unsettled(url, messages, into=kind == "into")
    if wrong:
        sys.exit(wrong)
    tally.report()


if __name__ == "__main__":
    main()
