"""Results of batches, their settlement in one command, and batches at crashes and stops."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from headwater.worker import Backoff, Batch
from tests.worker.apps import (
    Invoice,
    Order,
    Store,
    buried,
    eventually,
    invoices,
    killed,
    orders,
    worker,
    working,
)
from tests.worker.test_batches import memory_app, send

# --- results --------------------------------------------------------------------------------------


async def test_results_of_a_batch_are_published_in_one_step_with_the_acknowledgement(
    store: Store,
) -> None:
    # Given a handler that returns results, and fails one item once
    app = store.app()

    @app.batch(orders, group="g", size=4, into=invoices, retry=Backoff("10ms"))
    async def load(rows: Batch[Order]) -> list[Invoice]:
        found = []
        for order, delivery in zip(rows, rows.deliveries, strict=True):
            if order.id == 2 and delivery.count == 1:
                rows.fail(order, "not yet")
            else:
                found.append(Invoice(order.id))
        return found

    async with working(app):
        await orders.send_many([Order(number) for number in range(4)])
        await eventually(store.settled)
    assert await store.results() == [Invoice(0), Invoice(1), Invoice(3), Invoice(2)]


async def test_the_result_of_a_batch_that_lost_an_entry_is_dropped_and_the_rest_handled_again(
    store: Store,
) -> None:
    # Given a running batch with a result
    app, started, free, sums = store.app(), asyncio.Event(), asyncio.Event(), []

    @app.batch(orders, group="g", size=3, into=invoices, claim_after="30s")
    async def load(rows: Batch[Order]) -> Invoice:
        sums.append([order.id for order in rows])
        started.set()
        await free.wait()
        return Invoice(sum(order.id for order in rows))

    async with working(app):
        ids = await orders.send_many([Order(1), Order(10), Order(100)])
        await started.wait()
        # When another consumer claims one of its entries and acknowledges it
        await store.look.xclaim("orders", "g", "other", 0, [ids[1]])
        await store.look.xack("orders", "g", ids[1])
        free.set()
        await eventually(store.settled)

    # Then the handler runs again without that entry, and only that second result is published
    assert sums == [[1, 10, 100], [1, 100]]
    assert await store.results() == [Invoice(101)]


async def test_a_batch_without_results_continues_when_an_entry_is_lost(store: Store) -> None:
    app, started, free = store.app(), asyncio.Event(), asyncio.Event()
    lost: list[list[bool]] = []

    @app.batch(orders, group="g", size=2, claim_after="300ms", lease="90ms")
    async def load(rows: Batch[Order]) -> None:
        started.set()
        await eventually(lambda: rows.deliveries[1].lost)
        lost.append([delivery.lost for delivery in rows.deliveries])
        free.set()

    async with working(app) as running:
        ids = await orders.send_many([Order(1), Order(2)])
        await started.wait()
        await store.look.xclaim("orders", "g", "other", 0, [ids[1]])
        await store.look.xack("orders", "g", ids[1])
        await free.wait()
        await eventually(store.settled)
        (loop,) = running.loops.values()
        await eventually(lambda: not loop.in_flight.owned)
    assert lost == [[False, True]]


async def test_a_refused_result_fails_each_entry_of_its_batch(store: Store) -> None:
    app = store.app()
    await store.look.set("invoices", "a string")

    @app.batch(orders, group="g", size=2, into=invoices, max_deliveries=2, retry=None)
    async def load(rows: Batch[Order]) -> list[Invoice]:
        return [Invoice(order.id) for order in rows]

    async with working(app):
        await orders.send_many([Order(1), Order(2)])
        letters = await eventually(store.dead)
        await eventually(store.settled)
        letters = await store.dead()
    assert [letter.deliveries for letter in letters] == [2, 2]
    assert "WRONGTYPE" in letters[0].error


async def test_a_result_without_an_acknowledged_entry_is_not_published(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = memory_app()

    @app.batch(orders, group="g", size=1, into=invoices)
    async def load(rows: Batch[Order]) -> Invoice:
        rows.dead(0, "unknown customer")
        return Invoice(1)

    async with app.test() as t:
        await send(t, 1)
        assert t.results(invoices) == []
    assert "acknowledged no entry of its batch" in caplog.text


# --- one settlement -------------------------------------------------------------------------------


async def test_a_batch_is_settled_by_one_command(store: Store) -> None:
    # Given a batch with more entries than other settlements have
    app = store.app()

    @app.batch(orders, group="g", size=600, linger="2s")
    async def load(rows: Batch[Order]) -> None:
        assert len(rows) == 600

    async def settlements() -> int:
        stats: Any = await store.look.info("commandstats")
        command = "cmdstat_xsettle" if store.name == "headwater" else "cmdstat_xack"
        return int(stats.get(command, {"calls": 0})["calls"])

    async with app:
        await orders.send_many([Order(number) for number in range(600)])
    before = await settlements()
    async with working(app):
        await eventually(store.settled)

    # Then one command settles it; on Redis, that is a script with one XACK for each entry
    assert await settlements() - before == (1 if store.name == "headwater" else 600)


# --- crashes and stops ----------------------------------------------------------------------------


async def test_the_batch_of_a_worker_that_dies_is_handled_by_another(store: Store) -> None:
    app, running, free = store.app(), asyncio.Event(), asyncio.Event()

    @app.batch(orders, group="g", size=3, claim_after="100ms", lease="30ms", into=invoices)
    async def load(rows: Batch[Order]) -> list[Invoice]:
        running.set()
        await free.wait()
        return [Invoice(order.id) for order in rows]

    dying = worker(app)
    dying.start()
    async with app:
        await orders.send_many([Order(1), Order(2), Order(3)])
        await running.wait()
        killed(dying)
        free.set()
        async with working(app):
            await eventually(store.settled)
    await buried(dying)
    assert sorted(one.order for one in await store.results()) == [1, 2, 3]


async def test_a_stop_hands_back_a_running_batch_without_counting_the_delivery(
    store: Store,
) -> None:
    app, started = store.app(), asyncio.Event()

    @app.batch(orders, group="g", size=2, linger="50ms")
    async def load(rows: Batch[Order]) -> None:
        rows.dead(rows.items[0], "before the stop")
        started.set()
        await asyncio.Event().wait()

    async with working(app, grace=0):
        await orders.send_many([Order(number) for number in range(4)])
        await started.wait()
    rows = await store.pending()
    assert [(owner in ("", "hw.parked"), count) for _id, owner, _idle, count in rows] == [
        (True, 0)
    ] * len(rows)
    assert len(rows) >= 2
    assert await store.dead() == []


async def test_a_stop_waits_for_a_batch_in_a_thread_no_longer_than_its_grace(store: Store) -> None:
    app, started, free = store.app(), threading.Event(), threading.Event()

    @app.batch(orders, group="g", size=2, into=invoices)
    def load(rows: Batch[Order]) -> list[Invoice]:
        started.set()
        free.wait(30)
        return [Invoice(order.id) for order in rows]

    async with working(app, grace=0):
        await orders.send_many([Order(1), Order(2)])
        await eventually(started.is_set)
    free.set()
    assert len(await store.pending()) == 2
    assert await store.results() == []


async def test_entries_that_wait_for_a_full_batch_are_handed_back_at_a_stop(store: Store) -> None:
    app, calls = store.app(), []

    @app.batch(orders, group="g", size=10, linger="20s")
    async def load(rows: Batch[Order]) -> None:
        calls.append(len(rows))

    async with working(app) as running:
        (loop,) = running.loops.values()
        await orders.send_many([Order(1), Order(2)])
        await eventually(lambda: len(loop.in_flight.owned) == 2)
    rows = await store.pending()
    assert [count for _id, _owner, _idle, count in rows] == [0, 0]
    assert calls == []


async def test_a_suspected_poison_message_is_a_batch_by_itself() -> None:
    # Given a batch that was in flight when its process died, twice
    app, batches, restarted = memory_app(), [], asyncio.Event()

    @app.batch(orders, group="g", size=3, claim_after="10s", linger="1s")
    async def load(rows: Batch[Order]) -> None:
        batches.append([order.id for order in rows])
        if not restarted.is_set():
            await asyncio.Event().wait()

    async with app.test() as t:
        await send(t, 1, 2, 3)
        t.crash(load)
        await t.advance("12s")
        t.crash(load)
        restarted.set()
        batches.clear()

        # When its entries are claimed again, then each is a batch of one entry
        await t.advance("30s")
        assert sorted(batches) == [[1], [2], [3]]
        assert t.pending(load) == {}
