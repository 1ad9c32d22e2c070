"""Workers remove what crashed workers left in their group."""

from __future__ import annotations

from headwater.worker import App, Stream
from tests.worker.apps import Order

orders: Stream[Order] = Stream("orders", Order)

HOUR = 3_600.0


async def test_a_worker_reaps_consumers_that_were_not_seen_for_a_day() -> None:
    # Given a worker, and a consumer that a crashed worker left
    app = App("headwater://memory")

    @app.consumer(orders, group="g", claim_after="300d")
    async def handle(order: Order) -> None: ...

    async with app.test() as t:
        t.look.xgroup_createconsumer("orders", "g", "empty")
        before = {one["name"] for one in t.look.xinfo_consumers("orders", "g")}

        # When less than a day has passed, nothing is removed
        t.clock.advance(23 * HOUR)
        await t.settle()
        assert before <= {one["name"] for one in t.look.xinfo_consumers("orders", "g")}

        # When more than a day has passed, the empty one is gone and the worker's own is there
        for _ in range(2):
            t.clock.advance(HOUR)
            await t.settle()
        after = {one["name"] for one in t.look.xinfo_consumers("orders", "g")}
        assert after == before - {b"empty"}
