"""A poison message is quarantined: only a process that dies while it runs alone counts against it."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

import headwater
from headwater.groups.membership.member import Member
from headwater.groups.protocol.capabilities import probe
from headwater.groups.protocol.operation import perform
from headwater.groups.reading.poison import Record, heard
from headwater.messages.keys import poison_key
from headwater.worker import Delivery
from tests.worker.apps import (
    Invoice,
    Order,
    Store,
    elapsed,
    eventually,
    invoices,
    orders,
    working,
)

QUICK: dict[str, Any] = {"group": "g", "claim_after": "300ms"}

POISON = poison_key("orders", "g")

pytestmark = pytest.mark.slow


async def unrenewed(store: Store, entries: int, *, count: int, record: Record | None = None) -> str:
    """Add entries and let their owner stop renewing. Returns the id of the middle one, which has this
    delivery count and record."""
    await store.look.xgroup_create("orders", "g", "0", mkstream=True)
    for number in range(entries):
        await store.look.xadd("orders", {"id": number})
    await store.look.xreadgroup("g", "gone", {"orders": ">"})
    ids = [row[0] for row in await store.pending()]
    chosen: str = ids[entries // 2]
    await store.look.xclaim("orders", "g", "gone", 0, [chosen], retrycount=count)
    if record is not None:
        await store.look.hset(POISON, chosen, record.encode())
    return chosen


async def record_of(store: Store, entry_id: str) -> Record:
    """The group's record of an entry."""
    value: Any = await store.look.hget(POISON, entry_id)
    return Record.parse(value)


async def test_deaths_of_a_process_with_other_messages_in_flight_do_not_count(store: Store) -> None:
    # Given an entry whose process died nine times, and few allowed deliveries
    app = store.app()
    counts = []

    @app.consumer(orders, **QUICK, max_deliveries=2)
    async def bill(order: Order, delivery: Delivery) -> None:
        counts.append(delivery.count)

    await unrenewed(store, 1, count=9, record=Record(excused=8))

    # When a worker claims it, then it runs, is not a dead letter, and its record is deleted
    async with working(app):
        await eventually(store.settled)
    assert counts == [10]
    assert await store.dead() == []
    assert not await store.look.exists(POISON)


async def test_a_claim_that_was_never_judged_does_not_count(store: Store) -> None:
    # Given an entry whose process died twice, and claims in between for processes that were dead
    app = store.app()
    counts = []

    @app.consumer(orders, **QUICK, max_deliveries=4)
    async def bill(order: Order, delivery: Delivery) -> None:
        counts.append(delivery.count)

    await unrenewed(store, 1, count=6, record=Record(excused=2, alone_at=6))

    # When a worker claims it, then it runs
    async with working(app):
        await eventually(store.settled)
    assert counts == [7]
    assert await store.dead() == []


async def test_failed_deliveries_count(store: Store) -> None:
    # Given an entry that used up its deliveries by failures before its process died
    app = store.app()
    handled = []

    @app.consumer(orders, **QUICK, max_deliveries=2)
    async def bill(order: Order) -> None:
        handled.append(order.id)

    await unrenewed(store, 1, count=4)

    async with working(app):
        (letter,) = await eventually(store.dead)
        await eventually(store.settled)
    assert handled == []
    assert letter.deliveries == 4
    assert "delivered 4 times without being settled, max_deliveries is 2" in letter.error


async def test_a_message_whose_process_died_twice_in_quarantine_is_a_dead_letter(
    store: Store,
) -> None:
    # Given an entry that killed a process, and ran in quarantine when its owner stopped renewing
    app = store.app()
    handled = []

    @app.consumer(orders, **QUICK)
    async def bill(order: Order) -> None:
        handled.append(order.id)

    await unrenewed(store, 3, count=4, record=Record(excused=2, alone_at=4, crashes=1))

    # When it is claimed, then it does not run again
    async with working(app):
        (letter,) = await eventually(store.dead)
        await eventually(store.settled)
        await eventually(lambda: _record_deleted(store))
    assert sorted(handled) == [0, 2]
    assert letter.deliveries == 4
    assert "Crashes: 2 processes died while running it alone" in letter.error


async def test_a_message_runs_if_the_silent_process_that_it_seemed_to_kill_is_heard_of(
    store: Store,
) -> None:
    # Given an entry that ran alone when a process died, and runs alone in another one, which is silent
    app = store.app()
    handled = []

    @app.consumer(orders, **QUICK)
    async def bill(order: Order) -> None:
        handled.append(order.id)

    entry_id = await unrenewed(store, 1, count=4, record=Record(excused=2, alone_at=4, crashes=1))

    async def condemned() -> bool:
        return (await record_of(store, entry_id)).condemned()

    async with working(app):
        # When it is claimed, and its owner says that it lives: it only held the interpreter's lock
        await eventually(condemned)
        able = await perform(store.look, probe())
        owner = Member("orders", "g", "gone", 300, able)
        await perform(store.look, heard(owner, [(entry_id.encode(), 4, True)]))
        # Then it runs again, and is not a dead letter
        await eventually(store.settled)
    assert handled == [0]
    assert await store.dead() == []


async def _record_deleted(store: Store) -> bool:
    return not await store.look.exists(POISON)


async def test_a_suspected_message_runs_alone_and_is_recorded_before_it_runs(store: Store) -> None:
    # Given three entries, of which the middle one had two owners that stopped renewing
    app = store.app()
    owned: list[tuple[int, int]] = []
    records: list[Record] = []

    @app.consumer(orders, **QUICK, concurrency=4)
    async def bill(order: Order, delivery: Delivery) -> None:
        if delivery.count == 3:
            await eventually(elapsed(0.05))
            owned.append((order.id, sum(r[1] == delivery.consumer for r in await store.pending())))
            records.append(await record_of(store, delivery.id))

    await unrenewed(store, 3, count=2, record=Record(excused=1))

    async with working(app):
        await orders.send_many([Order(number) for number in range(3, 9)])
        await eventually(store.settled)

    # Then it ran while its process owned no other entry
    assert owned == [(1, 1)]
    assert records == [Record(excused=2, alone_at=3)]


async def test_a_suspected_message_waits_for_the_other_consumers_of_its_process(
    store: Store,
) -> None:
    # Given a process with a second consumer that is busy
    app = store.app()
    busy, go_on = asyncio.Event(), asyncio.Event()
    order_of_events: list[str] = []

    @app.consumer(orders, group="g", claim_after="3s")
    async def bill(order: Order) -> None:
        order_of_events.append("suspect")

    @app.consumer(invoices, group="other")
    async def book(invoice: Invoice, delivery: Delivery) -> None:
        busy.set()
        await go_on.wait()
        order_of_events.append("other")

    entry_id = await unrenewed(store, 1, count=2, record=Record(excused=1))
    async with working(app):
        await invoices.send(Invoice(1))
        await busy.wait()
        await store.look.xclaim("orders", "g", "gone", 0, [entry_id], idle=5_000, justid=True)

        # When the suspected message is claimed, then it runs after the other handler has returned
        await eventually(lambda: _owned_by_us(store))
        assert order_of_events == []
        go_on.set()
        await eventually(store.settled)
        assert order_of_events == ["other", "suspect"]

        # And the other consumer continues afterwards
        await invoices.send(Invoice(2))
        await eventually(lambda: store.settled("other", "invoices"))


async def _owned_by_us(store: Store) -> bool:
    return any(
        owner not in {"gone", "", "hw.parked"}
        for _id, owner, _idle, _count in await store.pending()
    )


async def test_a_handler_that_hangs_delays_a_suspected_message_but_not_other_messages(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    # Given a process with a handler that does not return
    caplog.set_level(logging.INFO, "headwater.worker")
    app = store.app()
    hangs, go_on = asyncio.Event(), asyncio.Event()
    handled: list[int] = []

    @app.consumer(orders, **QUICK)
    async def bill(order: Order) -> None:
        if order.id == 100:
            hangs.set()
            await go_on.wait()
        handled.append(order.id)

    await unrenewed(store, 1, count=2, record=Record(excused=1))
    async with working(app):
        await orders.send(Order(100))
        await hangs.wait()

        # When it cannot be drained for a suspected message, then it hands that back and continues
        await eventually(lambda: "handed back until a process can run it alone" in caplog.text)
        await orders.send_many([Order(1), Order(2)])
        await eventually(lambda: sorted(handled) == [1, 2])

        # And it runs that message when nothing else is running
        go_on.set()
        await eventually(store.settled)
    assert sorted(handled) == [0, 1, 2, 100]


async def test_forty_suspected_messages_run_one_after_the_other_without_a_pause() -> None:
    # Given a handler that never returned, and a worker that was killed twice with its buffer full
    app = headwater.App("headwater://memory")
    hanging, handled = asyncio.Event(), []

    @app.consumer(orders, group="g", claim_after="10s", concurrency=1, prefetch=50)
    async def bill(order: Order, delivery: Delivery) -> None:
        if delivery.count <= 2:
            await hanging.wait()
        handled.append(order.id)

    async with app.test() as t:
        await t.send(orders, *(Order(number) for number in range(40)))
        for _ in range(2):
            t.crash(bill)
            await t.advance("10s")

        # When the next worker has claimed them, and no more time passes
        # Then each has run, once
        assert sorted(handled) == list(range(40))
        assert t.pending(bill) == {}
