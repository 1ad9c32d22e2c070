"""What a worker counts, and how it says that it makes progress."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import asdict
from typing import Any

from headwater.worker import Again, App, Backoff, Dead, Delivery
from headwater.worker.statistics import ConsumerProgress, ConsumerStatistics, Counters
from tests.worker.apps import (
    Invoice,
    Order,
    Store,
    eventually,
    invoices,
    orders,
)
from tests.worker.runs import run


def counted(app: App) -> dict[str, int]:
    """The counters of the app's only consumer that are not 0."""
    (consumer,) = app.statistics().consumers
    return {name: value for name, value in asdict(consumer.counters).items() if value}


def of(app: App) -> ConsumerStatistics:
    (consumer,) = app.statistics().consumers
    return consumer


def progress(app: App) -> ConsumerProgress:
    found = of(app).progress
    assert found is not None
    return found


def billing(app: App) -> Any:
    @app.consumer(orders, group="g", into=invoices, max_deliveries=2, retry=Backoff("1s", jitter=0))
    async def bill(order: Order, delivery: Delivery) -> Invoice | None:
        if order.id == 2 and not delivery.redelivered:
            raise ValueError("no")
        if order.id == 3:
            raise Dead("unknown")
        if order.id == 4 and not delivery.redelivered:
            raise Again("1s")
        return None if order.id == 5 else Invoice(order.id)

    return bill


async def test_every_ending_is_counted() -> None:
    app = App("headwater://memory")
    bill = billing(app)
    assert counted(app) == {}
    async with app.test() as t:
        # Given a message that is handled, and one without a result
        await t.send(orders, Order(1), Order(5))
        assert counted(app) == {"received": 2, "handled": 2, "published": 1}
        # one that fails and one that is put off
        await t.send(orders, Order(2), Order(4))
        assert counted(app) == {
            "received": 4,
            "handled": 2,
            "published": 1,
            "failed": 1,
            "retried": 2,
        }
        await t.advance("1s")
        assert counted(app) == {
            "received": 6,
            "claimed": 2,
            "handled": 4,
            "published": 3,
            "failed": 1,
            "retried": 2,
        }
        # and dead letters by the handler and by an undecodable body
        await t.send(orders, Order(3))
        await t.add(orders, {"id": "seventeen"})
        assert counted(app)["dead"] == 2
        assert counted(app)["failed"] == 2
        assert t.pending(bill) == {}
        assert app.statistics().published == 5
    # Then the numbers outlive the worker
    assert counted(app)["received"] == 8
    assert of(app).progress is None


async def test_an_entry_of_a_silent_owner_may_be_handled_twice_and_is_counted() -> None:
    app = App("headwater://memory")
    go_on = asyncio.Event()

    @app.consumer(orders, group="g", claim_after="30s")
    async def bill(order: Order) -> None:
        await go_on.wait()

    async with app.test() as t:
        await t.send(orders, Order(1))
        t.crash(bill)
        await t.advance("31s")
        assert counted(app) == {"received": 2, "claimed": 1, "duplicates": 1}
        go_on.set()


async def test_a_lost_lease_and_what_is_handed_back_are_counted(store: Store) -> None:
    app = store.app(grace="0s")
    go_on = asyncio.Event()

    @app.consumer(orders, group="g", concurrency=1, claim_after="300ms")
    async def bill(order: Order) -> None:
        await go_on.wait()

    async with run(app):
        await app.send_many(orders, [Order(1), Order(2)])
        await eventually(lambda: progress(app).owned == 2)
        taken = (await store.pending())[1][0]
        await store.look.xclaim("orders", "g", "thief", 0, [taken])
        await eventually(lambda: counted(app).get("lost"))
    assert counted(app) == {"received": 2, "lost": 1, "handed_back": 1}


async def test_messages_sent_through_an_app_are_counted_among_threads() -> None:
    app = App("headwater://memory")

    def send() -> None:
        for number in range(20):
            app.publish(orders, Order(number))

    with app:
        threads = [threading.Thread(target=send) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert app.statistics().published == 80


# --- progress -------------------------------------------------------------------------------------


async def test_a_worker_with_nothing_to_do_makes_progress() -> None:
    app = App("headwater://memory")
    billing(app)
    async with app.test() as t:
        for _ in range(5):
            await t.advance("37s")
            assert of(app).late == []
            assert progress(app)[1:2] == (0.0,)
            assert progress(app).reader_age <= 5


async def test_a_long_handler_is_shown_and_is_no_lack_of_progress() -> None:
    # Given one slot, a prefetch that is used up, and a handler that runs for an hour
    app = App("headwater://memory")
    go_on = asyncio.Event()

    @app.consumer(orders, group="g", concurrency=1, prefetch=2)
    async def bill(order: Order) -> None:
        await go_on.wait()

    async with app.test() as t:
        await t.send(orders, Order(1), Order(2), Order(3))
        await t.advance("5m")
        assert of(app).late == []
        found = progress(app)
        assert (found.oldest_handler_age, found.running, found.owned) == (300, 1, 2)
        assert found.reader_age == 0
        go_on.set()


async def test_a_store_that_answers_nothing_shows_in_the_ages(store: Store) -> None:
    # Given a worker whose handler has just begun, and a store that falls silent
    app = store.app()
    go_on = asyncio.Event()

    @app.consumer(orders, group="g", lease="100ms", concurrency=1)
    async def bill(order: Order) -> None:
        await go_on.wait()

    async with run(app):
        await app.send(orders, Order(1))
        await eventually(lambda: progress(app).running == 1)
        await store.look.client_pause(600, all=True)

        # When the handler returns, then nothing is settled, renewed, or read
        go_on.set()
        await eventually(lambda: min(progress(app)[:3]) > 0.3)

        # and when the store answers again, all parts go on
        await eventually(lambda: progress(app).settler_age == 0)
        await eventually(store.settled)


def test_a_part_that_is_overdue_is_named() -> None:
    on_time = ConsumerProgress(0, 0, 0, 3600, 1, 1)
    assert on_time.late(10_000) == []
    late = on_time._replace(reader_age=17.0, settler_age=18.0, renewer_age=19.0)
    assert late.late(10_000) == ["reader", "settler", "lease renewer"]
    # The leases of an hour are renewed every 20 minutes.
    assert on_time._replace(renewer_age=1300.0).late(3_600_000) == []


def test_counters_are_a_copy() -> None:
    app = App("headwater://memory")
    billing(app)
    before = of(app).counters
    before.received = 17
    assert of(app).counters == Counters()
