"""Retries wait in the pending entries list, every delivery is counted, and a message that cannot be
handled becomes exactly one dead letter."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from typing import Any

import pytest

from headwater.groups.reading import claiming
from headwater.worker import Again, Backoff, Dead, Delivery
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

QUICK: dict[str, Any] = {"group": "g", "claim_after": "300ms"}

pytestmark = pytest.mark.slow


async def test_a_failed_entry_is_delivered_again_at_once_without_a_backoff(store: Store) -> None:
    # FastStream's nack sends nothing: the entry stays pending until a consumer claims it.
    app = store.app()
    counts = []

    @app.consumer(orders, group="g", retry=None)
    async def bill(order: Order, delivery: Delivery) -> None:
        counts.append(delivery.count)
        if delivery.count < 3:
            raise ValueError("not yet")

    async with working(app):
        await orders.send(Order(17))
        await eventually(store.settled)
    assert counts == [1, 2, 3]


@pytest.mark.parametrize("delay", ["150ms", "700ms"])
async def test_a_delayed_retry_is_never_early(store: Store, delay: str) -> None:
    # Given delays shorter and longer than claim_after
    app = store.app()
    at: list[float] = []

    @app.consumer(orders, **QUICK)
    async def bill(order: Order, delivery: Delivery) -> None:
        at.append(time.monotonic())
        if delivery.count < 3:
            raise Again(after=delay)

    async with working(app):
        await orders.send(Order(17))
        await eventually(store.settled)

    # The store counts whole milliseconds, so one can be missing at either end.
    least = int(delay.removesuffix("ms")) / 1000 - 0.002
    assert all(later - earlier >= least for earlier, later in itertools.pairwise(at))
    assert len(at) == 3


async def test_a_retry_without_delay_interrupts_the_blocked_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a worker whose reads block for an hour unless they are interrupted
    monkeypatch.setattr(claiming, "claim_interval_ms", lambda _member: 3_600_000)
    monkeypatch.setattr(claiming, "MAX_BLOCK_MS", 3_600_000)
    app = store.app()
    counts = []

    @app.consumer(orders, group="g")
    async def bill(order: Order, delivery: Delivery) -> None:
        counts.append(delivery.count)
        if delivery.count < 4:
            raise Again(after="0s")

    async with working(app):
        await orders.send(Order(17))
        await eventually(store.settled)
    assert counts == [1, 2, 3, 4]


async def test_a_delayed_retry_survives_its_worker(store: Store) -> None:
    # Given an entry to be retried after a delay longer than claim_after
    first, second = store.app(), store.app()
    failed: list[float] = []
    handled = []

    @first.consumer(orders, **QUICK)
    async def fail(order: Order) -> None:
        failed.append(time.monotonic())
        raise Again(after="800ms")

    @second.consumer(orders, **QUICK)
    async def bill(order: Order, delivery: Delivery) -> None:
        handled.append((delivery.count, time.monotonic()))

    async with first:
        await first.send(orders, Order(17))
        running = worker(first)
        running.start()
        (loop,) = running.loops.values()
        await eventually(lambda: failed and not loop.in_flight.owned)

    # When its worker is killed and another one runs, then it is delivered when due, and counted
    killed(running)
    async with working(second):
        await eventually(store.settled)
    ((count, at),) = handled
    assert count == 2
    assert at - failed[0] > 0.79
    await buried(running)


async def test_the_delays_of_retries_grow(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "headwater.worker")
    app = store.app()

    @app.consumer(orders, **QUICK, retry=Backoff("10ms", factor=3, jitter=0), max_deliveries=4)
    async def bill(order: Order) -> None:
        raise ValueError("never")

    async with working(app):
        await orders.send(Order(17))
        await eventually(store.dead)
    again = [r.message for r in caplog.records if "again in" in r.message]
    assert [m.split("again in ")[1].split(":")[0] for m in again] == ["10 ms", "30 ms", "90 ms"]


async def test_an_entry_that_always_fails_is_a_dead_letter_after_max_deliveries(
    store: Store,
) -> None:
    app = store.app()
    counts = []

    @app.consumer(orders, group="g", retry=None, max_deliveries=3)
    async def bill(order: Order, delivery: Delivery) -> None:
        counts.append(delivery.count)
        raise ValueError("no such customer")

    async with working(app):
        sent = await orders.send(Order(17))
        (letter,) = await eventually(store.dead)
        await eventually(store.settled)
    assert counts == [1, 2, 3]
    assert letter.fields == [(b"id", b"17")]
    assert (letter.stream, letter.group, letter.entry_id) == ("orders", "g", sent)
    assert letter.deliveries == 3
    assert letter.error == "ValueError: no such customer"
    assert 'raise ValueError("no such customer")' in letter.trace


async def test_raising_dead_writes_a_dead_letter_at_once(store: Store) -> None:
    app = store.app()

    @app.consumer(orders, group="g", into=invoices)
    async def bill(order: Order) -> Invoice:
        if order.id == 13:
            raise Dead("unknown customer")
        return Invoice(order.id)

    async with working(app):
        await orders.send_many([Order(12), Order(13), Order(14)])
        await eventually(store.settled)
    (letter,) = await store.dead()
    assert letter.error == "headwater.Dead: unknown customer"
    assert letter.deliveries == 1
    assert sorted(one.order for one in await store.results()) == [12, 14]


async def test_an_undecodable_entry_is_a_dead_letter(store: Store) -> None:
    # FastStream delivers it again after every restart.
    app = store.app()
    handled = []

    @app.consumer(orders, group="g")
    async def bill(order: Order) -> None:
        handled.append(order.id)

    async with working(app):
        await store.look.xadd("orders", {"id": "1"})
        await store.look.xadd("orders", {"id": "seventeen"})
        await store.look.xadd("orders", {"other": "x"})
        await store.look.xadd("orders", {"id": "2"})
        await eventually(store.settled)
    letters = await store.dead()
    assert sorted(handled) == [1, 2]
    assert letters[0].error.endswith(
        "field 'id' = 'seventeen' is not a valid int: Expected int, got str"
    )
    assert letters[1].error.endswith(
        "field 'id' (int) is missing; the entry has the fields 'other'"
    )
    assert letters[0].fields == [(b"id", b"seventeen")]


async def test_a_dead_letter_stream_can_be_named(store: Store) -> None:
    app = store.app()

    @app.consumer(orders, group="g", dead="dead-letters")
    async def bill(order: Order) -> None:
        raise Dead("no")

    async with working(app):
        await orders.send(Order(17))
        await eventually(lambda: store.look.xlen("dead-letters"))
    assert await store.dead() == []


async def test_a_dead_letter_that_cannot_be_written_is_not_lost(store: Store) -> None:
    # Given a key of another type at the name of the dead-letter stream
    app = store.app()
    tries = []

    @app.consumer(orders, **QUICK, dead="text", retry=Backoff("50ms", ceiling="50ms"))
    async def bill(order: Order, delivery: Delivery) -> None:
        tries.append(delivery.count)
        raise Dead("no")

    await store.look.set("text", "x")
    async with working(app):
        await orders.send(Order(17))
        await eventually(lambda: len(tries) > 1)

        # When that key is deleted, then the dead letter is written once
        await store.look.delete("text")
        await eventually(store.settled)
    assert await store.look.xlen("text") == 1


async def test_a_handler_that_exceeds_its_timeout_is_cancelled_and_retried(
    store: Store,
) -> None:
    app = store.app()
    ends = []

    @app.consumer(orders, group="g", timeout="50ms", retry=None, max_deliveries=2)
    async def bill(order: Order) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ends.append("cancelled")

    async with working(app):
        await orders.send(Order(17))
        (letter,) = await eventually(store.dead)
    assert ends == ["cancelled", "cancelled"]
    assert letter.error == "TimeoutError: it ran longer than 0.05 s"


async def test_failing_entries_do_not_stop_others(store: Store) -> None:
    app = store.app()
    handled = []

    @app.consumer(orders, group="g", concurrency=2, retry=Backoff("1m"))
    async def bill(order: Order) -> None:
        if order.id % 10 == 3:
            raise ValueError("bad one")
        handled.append(order.id)

    async with working(app):
        await orders.send_many([Order(number) for number in range(50)])
        await eventually(lambda: len(handled) == 45)
        assert len(await eventually(lambda: _only_delayed(store))) == 5


async def _only_delayed(store: Store) -> list[Any]:
    rows = await store.pending()
    return rows if all(owner in {"", "hw.parked"} for _id, owner, _idle, _count in rows) else []
