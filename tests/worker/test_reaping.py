"""Workers remove the consumers that crashed workers left in their group."""

from __future__ import annotations

from headwater.worker import App, Stream
from tests.worker.apps import Order

orders: Stream[Order] = Stream("orders", Order)

HOUR = 3_600.0


async def test_a_worker_removes_consumers_that_were_not_seen_for_a_day() -> None:
    # Given a worker, and the consumer of a crashed worker
    app = App("headwater://memory")

    @app.consumer(orders, group="g", claim_after="300d")
    async def handle(order: Order) -> None: ...

    async with app.test() as t:
        t.look.xgroup_createconsumer("orders", "g", "empty")
        before = {one["name"] for one in t.look.xinfo_consumers("orders", "g")}

        # When less than a day has passed, then no consumer is removed
        t.clock.advance(23 * HOUR)
        await t.settle()
        assert before <= {one["name"] for one in t.look.xinfo_consumers("orders", "g")}

        # When more than a day has passed, then only the consumer of the crashed worker is removed
        for _ in range(2):
            t.clock.advance(HOUR)
            await t.settle()
        after = {one["name"] for one in t.look.xinfo_consumers("orders", "g")}
        assert after == before - {b"empty"}
