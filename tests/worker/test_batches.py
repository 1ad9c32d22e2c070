"""`@app.batch` handles messages together, with an outcome for each item and one settlement for all."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest

from headwater.worker import Again, App, Backoff, Batch
from headwater.worker.testing import AppTest
from tests.worker.apps import (
    Invoice,
    Order,
    Store,
    eventually,
    invoices,
    orders,
    working,
)


def memory_app() -> App:
    return App("headwater://memory", name="test")


async def send(t: AppTest, *numbers: int) -> list[str]:
    return await t.send(orders, *(Order(number) for number in numbers))


# --- when a batch is handled ----------------------------------------------------------------------


async def test_a_batch_is_handled_when_it_is_full_or_after_linger() -> None:
    # Given batches of three that wait for 50 ms
    app, batches = memory_app(), []

    @app.batch(orders, group="g", size=3, linger="50ms")
    async def load(rows: Batch[Order]) -> None:
        batches.append([order.id for order in rows])

    async with app.test() as t:
        # When seven messages arrive, then six are handled at once, and the seventh waits for `linger`
        await send(t, *range(7))
        assert batches == [[0, 1, 2], [3, 4, 5]]
        await t.advance("49ms")
        assert len(batches) == 2
        await t.advance("1ms")
        assert batches[2:] == [[6]]
        assert t.pending(load) == {}
        assert t.deliveries(load) == [1] * 7


async def test_entries_that_waited_for_a_busy_handler_do_not_wait_for_linger_again() -> None:
    app, batches, free = memory_app(), [], asyncio.Event()

    @app.batch(orders, group="g", size=10, linger="100ms")
    async def load(rows: Batch[Order]) -> None:
        batches.append([order.id for order in rows])
        await free.wait()

    async with app.test() as t:
        await send(t, 1)
        await t.advance("100ms")
        await send(t, 2)
        await t.advance("1s")
        assert batches == [[1]]
        free.set()
        await t.settle()
        assert batches == [[1], [2]]


async def test_concurrency_is_the_number_of_batches_handled_at_once() -> None:
    app, running, free = memory_app(), [], asyncio.Event()

    @app.batch(orders, group="g", size=2, concurrency=2)
    async def load(rows: Batch[Order]) -> None:
        running.append(len(rows))
        await free.wait()

    async with app.test() as t:
        # Given two batches that run, and one more that is prefetched
        await send(t, *range(8))
        assert running == [2, 2]
        assert len(t.pending(load)) == 6
        free.set()
        await t.settle()
        assert running == [2, 2, 2, 2]
        assert t.pending(load) == {}


async def test_a_batch_has_the_delivery_of_each_item_in_the_order_of_items() -> None:
    app, seen = memory_app(), []

    @app.batch(orders, group="g", size=2, retry=None)
    async def load(rows: Batch[Order]) -> None:
        assert len(rows.items) == len(rows.deliveries) == len(rows)
        seen.append([(one.id, d.id, d.count) for one, d in zip(rows, rows.deliveries, strict=True)])
        if rows.deliveries[0].count == 1:
            rows.fail(0, "once more")

    async with app.test() as t:
        first, second, third = await send(t, 1, 2, 3)
        await t.advance("1s")
    assert seen[0] == [(1, first, 1), (2, second, 1)]
    assert sorted(one for batch in seen[1:] for one in batch) == [
        (1, first, 2),
        (3, third, 1),
        (3, third, 2),
    ]


# --- an outcome for each item ---------------------------------------------------------------------


async def test_each_item_gets_its_outcome_and_the_rest_is_acknowledged(
    store: Store,
) -> None:
    # Given a handler that fails one item, dead-letters one, and delays one
    app, handled = store.app(), []
    delayed: list[Order] = []

    @app.batch(orders, group="g", size=5, linger="20ms", retry=Backoff("10ms", jitter=0))
    async def load(rows: Batch[Order]) -> None:
        for order, delivery in zip(rows, rows.deliveries, strict=True):
            match order.id, delivery.count:
                case 1, 1:
                    rows.fail(order, "constraint")
                case 2, _:
                    rows.dead(order, "unknown customer")
                case 3, _ if not delayed:
                    delayed.append(order)
                    rows.again(order, after="10ms", counted=False)
                case _:
                    handled.append((order.id, delivery.count))

    # When five messages arrive
    async with working(app):
        ids = await orders.send_many([Order(number) for number in range(5)])
        await eventually(lambda: len(handled) == 4)
        await eventually(store.settled)

    # Then each of these items has its outcome, and the others were acknowledged
    assert sorted(handled) == [(0, 1), (1, 2), (3, 1), (4, 1)]
    (letter,) = await store.dead()
    assert (letter.entry_id, letter.error) == (ids[2], "headwater.Dead: unknown customer")


async def test_an_exception_fails_all_items_and_each_has_its_own_attempts(store: Store) -> None:
    # Given a message that has failed once
    app, allowed = store.app(), asyncio.Event()

    @app.batch(orders, group="g", size=3, linger="50ms", max_deliveries=2, retry=None)
    async def load(rows: Batch[Order]) -> None:
        if allowed.is_set() and len(rows) < 2:
            return
        if len(rows) > 1:
            allowed.set()
        raise ValueError("the table is locked")

    async with working(app):
        old = await orders.send(Order(1))
        await eventually(store.pending)
        # When it fails again together with new ones
        await orders.send_many([Order(2), Order(3)])

        # Then it is a dead letter, because it has used its own attempts
        letters = await eventually(store.dead)
    assert old in [letter.entry_id for letter in letters]
    assert all(letter.deliveries == 2 for letter in letters)
    assert letters[0].error == "ValueError: the table is locked"


async def test_the_outcome_of_an_item_stays_when_the_handler_raises_later() -> None:
    app = memory_app()

    @app.batch(orders, group="g", size=2, max_deliveries=5, retry=Backoff("1m"))
    async def load(rows: Batch[Order]) -> None:
        rows.dead(rows.items[0], "unknown customer")
        raise ValueError("the connection broke")

    async with app.test() as t:
        first, second = await send(t, 1, 2)
        assert [letter.entry_id for letter in t.dead(orders)] == [first]
        assert t.pending(load) == {second: 1}


async def test_an_undecodable_entry_is_a_dead_letter_and_never_reaches_the_handler(
    store: Store,
) -> None:
    app, batches = store.app(), []

    @app.batch(orders, group="g", size=3, linger="1s")
    async def load(rows: Batch[Order]) -> None:
        batches.append([order.id for order in rows])

    await store.look.xadd("orders", {"id": "1"})
    bad = await store.look.xadd("orders", {"id": "no number"})
    await store.look.xadd("orders", {"id": "3"})
    async with working(app):
        await eventually(store.settled)

    assert batches == [[1, 3]]
    (letter,) = await store.dead()
    assert letter.entry_id.encode() == bad


async def test_a_batch_of_undecodable_entries_does_not_call_the_handler() -> None:
    app = memory_app()

    @app.batch(orders, group="g", size=2)
    async def load(rows: Batch[Order]) -> None:
        raise AssertionError("there is nothing to handle")

    async with app.test() as t:
        for _ in range(2):
            await t.add(orders, {"id": "no number"})
        assert len(t.dead(orders)) == 2
        assert t.deliveries(load) == []


async def test_items_that_failed_together_are_retried_together() -> None:
    # Given a retry policy with jitter
    app, batches = memory_app(), []

    @app.batch(orders, group="g", size=50, retry=Backoff("1s", jitter=0.5))
    async def load(rows: Batch[Order]) -> None:
        batches.append(len(rows))
        if len(batches) == 1:
            raise ValueError("the table is locked")

    # When a batch fails, then its items are one batch again
    async with app.test() as t:
        await send(t, *range(50))
        await t.advance("2s")
        assert batches == [50, 50]


async def test_equal_items_have_separate_outcomes() -> None:
    # Given two equal messages
    app = memory_app()

    @app.batch(orders, group="g", size=3)
    async def load(rows: Batch[Order]) -> None:
        assert rows.items[1] == rows.items[2]
        rows.dead(rows.items[2], "the second one")
        rows.dead(0, "by its index")

    # When the second of them is dead-lettered, then the first is acknowledged
    async with app.test() as t:
        first, _second, third = await send(t, 1, 2, 2)
        letters = t.dead(orders)
        assert [letter.entry_id for letter in letters] == [first, third]
        assert t.pending(load) == {}


def batch_of(*items: Any) -> Batch[Any]:
    return Batch(items, deliveries=[])


def test_an_item_that_is_not_in_the_batch_raises_value_error() -> None:
    rows = batch_of(Order(1), Order(2))
    with pytest.raises(ValueError, match="not an item of this batch: pass the item itself"):
        rows.fail(Order(1), "a copy")
    for index in (2, -1):
        with pytest.raises(IndexError, match="of a batch of 2 items"):
            rows.dead(index)


def test_an_object_that_appears_twice_in_a_batch_must_be_named_by_index() -> None:
    word = "again and again"
    rows = batch_of(word, "other", word)
    with pytest.raises(ValueError, match=r"in this batch several times, at \[0, 2\]"):
        rows.fail(word, "which one?")
    rows.fail(2, "the last")
    rows.fail("other", "there is one")
    assert sorted(rows.close()) == [1, 2]


def test_setting_an_outcome_after_the_handler_returned_raises() -> None:
    rows = batch_of(Order(1))
    rows.close()
    with pytest.raises(RuntimeError, match="has ended"):
        rows.fail(0, "too late")


def test_the_last_outcome_set_for_an_item_counts() -> None:
    rows = batch_of(Order(1))
    rows.fail(0, "constraint")
    rows.again(0, after="1s")
    (item,) = rows.close().values()
    assert isinstance(item.error, Again)


# --- shapes of handlers ---------------------------------------------------------------------------


async def test_a_batch_handler_that_is_not_async_runs_in_a_thread(store: Store) -> None:
    app, seen = store.app(), []

    @app.batch(orders, group="g", size=2, into=invoices)
    def load(rows: Batch[Order]) -> list[Invoice]:
        seen.append(threading.current_thread() is threading.main_thread())
        rows.dead(rows.items[0], "unknown customer")
        return [Invoice(order.id) for order in rows.items[1:]]

    async with working(app):
        await orders.send_many([Order(1), Order(2)])
        await eventually(store.settled)
    assert seen == [False]
    assert await store.results() == [Invoice(2)]
    assert len(await store.dead()) == 1


async def test_a_timeout_fails_each_item_of_the_batch() -> None:
    app = memory_app()

    @app.batch(orders, group="g", size=2, timeout="5s", max_deliveries=2, retry=None)
    async def load(rows: Batch[Order]) -> None:
        await asyncio.Event().wait()

    async with app.test() as t:
        await send(t, 1, 2)
        await t.advance("5s")
        assert list(t.pending(load).values()) == [2, 2]
        await t.advance("6s")
        assert [letter.error for letter in t.dead(orders)] == [
            "TimeoutError: it ran longer than 5 s"
        ] * 2


# --- the log --------------------------------------------------------------------------------------


async def test_a_batch_that_fails_is_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    app = memory_app()

    @app.batch(orders, group="g", size=100, retry=Backoff("1m", jitter=0))
    async def load(rows: Batch[Order]) -> None:
        raise ValueError("the table is locked")

    async with app.test() as t:
        ids = await send(t, *range(100))
        records = [r for r in caplog.records if "the table is locked" in r.getMessage()]
    (record,) = records
    assert record.levelno == logging.WARNING
    assert (
        f"failed on 100 entries of orders ({ids[0]} to {ids[-1]}), again in 60000 to 60000 ms"
        in record.getMessage()
    )
