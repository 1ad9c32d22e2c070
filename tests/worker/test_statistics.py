"""The counters of a worker, and the ages that show whether its parts make progress."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import asdict
from typing import Any

from headwater.worker import Again, App, Backoff, Dead, Delivery
from headwater.worker.declare.statistics import ConsumerProgress, ConsumerStatistics, Counters
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
    """Return the nonzero counters of the app's only consumer."""
    (consumer,) = app.statistics().consumers
    return {name: value for name, value in asdict(consumer.counters).items() if value}


def only_consumer(app: App) -> ConsumerStatistics:
    (consumer,) = app.statistics().consumers
    return consumer


def progress(app: App) -> ConsumerProgress:
    found = only_consumer(app).progress
    assert found is not None
    return found


def billing(app: App) -> Any:
    """Declare and return a handler whose outcome depends on the order's id."""

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


async def test_every_outcome_is_counted() -> None:
    app = App("headwater://memory")
    bill = billing(app)
    assert counted(app) == {}
    async with app.test() as t:
        # When a message is handled with a result, and one without
        await t.send(orders, Order(1), Order(5))
        assert counted(app) == {"received": 2, "handled": 2, "published": 1}
        # And when one fails and one raises Again, then both are retried, and only the first counts as failed
        await t.send(orders, Order(2), Order(4))
        assert counted(app) == {
            "received": 4,
            "handled": 2,
            "published": 1,
            "failed": 1,
            "retried": 2,
        }
        # And when they are delivered again, then they count as claimed
        await t.advance("1s")
        assert counted(app) == {
            "received": 6,
            "claimed": 2,
            "handled": 4,
            "published": 3,
            "failed": 1,
            "retried": 2,
        }
        # And when the handler raises Dead, and an entry cannot be decoded, then both are dead letters
        await t.send(orders, Order(3))
        await t.add(orders, {"id": "seventeen"})
        assert counted(app)["dead"] == 2
        assert counted(app)["failed"] == 2
        assert t.pending(bill) == {}
        assert app.statistics().published == 5
    # And the counters remain after the worker has stopped
    assert counted(app)["received"] == 8
    assert only_consumer(app).progress is None


async def test_an_entry_claimed_from_a_silent_owner_is_counted_as_a_duplicate() -> None:
    app = App("headwater://memory")
    go_on = asyncio.Event()

    @app.consumer(orders, group="g", claim_after="30s")
    async def bill(order: Order) -> None:
        await go_on.wait()

    async with app.test() as t:
        # Given a process that was killed while it handled a message
        await t.send(orders, Order(1))
        t.crash(bill)
        # When another process claims it, then the handler may run twice
        await t.advance("31s")
        assert counted(app) == {"received": 2, "claimed": 1, "duplicates": 1}
        go_on.set()


async def test_lost_leases_and_released_entries_are_counted(store: Store) -> None:
    app = store.app(grace="0s")
    go_on = asyncio.Event()

    @app.consumer(orders, group="g", concurrency=1, claim_after="300ms")
    async def bill(order: Order) -> None:
        await go_on.wait()

    async with run(app):
        # Given a message in its handler, and one that waits
        await app.send_many(orders, [Order(1), Order(2)])
        await eventually(lambda: progress(app).owned == 2)
        # When another consumer claims the waiting one, and the worker stops without grace
        waiting = (await store.pending())[1][0]
        await store.look.xclaim("orders", "g", "other", 0, [waiting])
        await eventually(lambda: counted(app).get("lost"))
    # Then one was lost, and the other one handed back
    assert counted(app) == {"received": 2, "lost": 1, "handed_back": 1}


async def test_messages_published_from_several_threads_are_counted() -> None:
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


async def test_an_idle_worker_makes_progress() -> None:
    app = App("headwater://memory")
    billing(app)
    async with app.test() as t:
        for _ in range(5):
            await t.advance("37s")
            assert only_consumer(app).late == []
            assert progress(app).settler_age == 0
            assert progress(app).reader_age <= 5


async def test_a_long_handler_has_an_age_and_does_not_make_its_consumer_late() -> None:
    # Given one slot, a full prefetch, and a handler that does not return
    app = App("headwater://memory")
    go_on = asyncio.Event()

    @app.consumer(orders, group="g", concurrency=1, prefetch=2)
    async def bill(order: Order) -> None:
        await go_on.wait()

    async with app.test() as t:
        # When five minutes pass
        await t.send(orders, Order(1), Order(2), Order(3))
        await t.advance("5m")
        # Then the handler has that age, and the reader, which has no room for more entries, has none; the entry
        # that waited was handed back
        assert only_consumer(app).late == []
        found = progress(app)
        assert (found.oldest_handler_age, found.running, found.owned) == (300, 1, 1)
        assert found.reader_age == 0
        go_on.set()


async def test_the_ages_grow_while_the_store_does_not_reply(store: Store) -> None:
    # Given a worker whose handler has just begun, and a store that stops replying
    app = store.app()
    go_on = asyncio.Event()

    @app.consumer(orders, group="g", lease="100ms", concurrency=1)
    async def bill(order: Order) -> None:
        await go_on.wait()

    async with run(app):
        await app.send(orders, Order(1))
        await eventually(lambda: progress(app).running == 1)
        await store.look.client_pause(600, all=True)

        # When the handler returns, then nothing is settled, renewed or read
        go_on.set()
        await eventually(lambda: min(progress(app)[:3]) > 0.3)

        # And when the store replies again, all parts continue
        await eventually(lambda: progress(app).settler_age == 0)
        await eventually(store.settled)


def test_late_lists_the_parts_that_are_overdue() -> None:
    # A handler that has been running for an hour is not overdue.
    on_time = ConsumerProgress(
        reader_age=0,
        settler_age=0,
        renewer_age=0,
        oldest_handler_age=3600,
        running=1,
        owned=1,
    )
    assert on_time.late(10_000) == []
    late = on_time._replace(reader_age=17.0, settler_age=18.0, renewer_age=19.0)
    assert late.late(10_000) == ["reader", "settler", "lease renewer"]
    # A lease of an hour is renewed every 20 minutes.
    assert on_time._replace(renewer_age=1300.0).late(3_600_000) == []


def test_statistics_have_a_copy_of_the_counters() -> None:
    app = App("headwater://memory")
    billing(app)
    copied = only_consumer(app).counters
    copied.received = 17
    assert only_consumer(app).counters == Counters()
