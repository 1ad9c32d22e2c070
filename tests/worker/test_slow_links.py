"""Deadlines count silence: large results and large entries take the time that their link needs, and delay no others."""

from __future__ import annotations

import asyncio
import logging

import msgspec
import pytest

from headwater.worker import App, Stream
from tests.worker.apps import Order, Store, eventually, orders, working
from tests.worker.proxy import proxy

pytestmark = pytest.mark.slow


class Report(msgspec.Struct):
    order: int
    text: str = ""


reports: Stream[Report] = Stream("reports", Report)

LARGE = 0
"""The number of the order with a large report."""
SIZE = 1_500_000
RATE = 700_000
"""So the report takes twice the deadline of the connections, which is at least a second."""


def reporting(url: str) -> App:
    """An app whose handlers wait until there are six of them, and return together."""
    app = App(url, name="reporter")
    together = asyncio.Barrier(6)

    @app.consumer(orders, group="g", into=reports, claim_after="3s")
    async def report(order: Order) -> Report:
        await together.wait()
        return Report(order.id, "x" * SIZE if order.id == LARGE else "")

    return app


async def test_a_large_result_over_a_slow_link_is_sent_once_and_delays_no_other(
    any_store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    # Given a worker with a link on which a large result takes longer than a deadline and than a lease
    async with proxy(any_store.url) as link:
        async with working(reporting(link.url), grace=20) as running:
            (loop,) = running.loops.values()
            await eventually(lambda: loop.flow.joined)
            link.rate = RATE
            before = link.requests

            # When six handlers return together, one of them with the large result
            await any_store.look.xadd("orders", {"id": str(LARGE)})
            for number in range(1, 6):
                await any_store.look.xadd("orders", {"id": str(number)})
            await eventually(any_store.settled)
            sent = link.requests - before

    # Then the others are settled first, and each result is there once
    found = [one.order for one in await any_store.results(reports)]
    assert sorted(found) == [0, 1, 2, 3, 4, 5]
    assert found[-1] == LARGE
    # And the large one was sent once, while the leases were renewed
    assert sent < 1.2 * SIZE
    counters = loop.telemetry.counters
    assert (counters.handled, counters.lost, counters.overtaken) == (6, 0, 0)
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]
