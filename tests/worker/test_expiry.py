"""An entry that no worker has started in time is dropped, or becomes a dead letter; no other entry is."""

from __future__ import annotations

import asyncio
import logging
from random import Random
from typing import Any

import pytest

from headwater.errors import DeclarationError
from headwater.groups.protocol.operation import perform, run
from headwater.groups.reports.expired import read_expired
from headwater.groups.settling import dead_letters, replay
from headwater.messages.keys import dead_letter_stream
from headwater.operations.explaining import explained, look
from headwater.worker import Again, App, Batch, Delivery, Ending, Middleware
from headwater.worker.running import Running, Surroundings
from headwater.worker.store.clocks import LoopClock
from headwater.worker.store.connections import Connections
from tests.worker.apps import Invoice, Order, Store, eventually, invoices, orders, working
from tests.worker.runs import run as run_app

HOUR_MS = 3_600_000


def memory() -> App:
    return App("headwater://memory")


class Blocked:
    """A consumer of `orders` with one slot, which its first message occupies until ``go_on`` is set."""

    def __init__(self, app: App, **options: Any) -> None:
        self.go_on = asyncio.Event()
        self.handled: list[int] = []
        self.app = app

        @app.consumer(orders, group="g", concurrency=1, **options)
        async def bill(order: Order) -> None:
            if order.id == 0:
                await self.go_on.wait()
            self.handled.append(order.id)

        self.bill = bill

    @property
    def counters(self) -> Any:
        return self.app.statistics().consumers[0].counters


async def test_what_was_not_started_in_time_is_dropped() -> None:
    # Given a message that runs, one that waits in this process, and some in the store
    work = Blocked(memory(), expires="10m")
    async with work.app.test() as t:
        await t.send(orders, *(Order(number) for number in range(5)))
        await t.advance("9m")
        await t.send(orders, Order(5))
        # When ten minutes have passed for all but the last
        await t.advance("2m")
        work.go_on.set()
        await t.settle()
        # Then only what had started, and what is young enough, is handled
        assert work.handled == [0, 5]
        assert t.pending(work.bill) == {}
        assert t.dead(orders) == []
        assert (work.counters.expired, work.counters.handled) == (4, 2)
        await t.advance("5s")  # workers write every two seconds what has expired
        noted = run(t.look, read_expired("orders", "g"))
        assert (noted.dropped, noted.dead) == (4, 0)
        (answer,) = explained(run(t.look, look("orders")))
        assert [(str(cause.name), cause.normal) for cause in answer.causes] == [("expired", True)]


async def test_expired_entries_become_dead_letters_if_asked() -> None:
    work = Blocked(memory(), expires="10m", on_expired="dead")
    async with work.app.test() as t:
        await t.send(orders, Order(0), Order(1))
        await t.advance("11m")
        work.go_on.set()
        await t.settle()
        (letter,) = t.dead(orders)
    assert letter.error == "Expired: not started within 600 s, but 660.0 s after it was added"
    assert letter.deliveries == 0
    assert (work.counters.expired, work.counters.dead) == (1, 1)


async def test_a_message_brings_its_own_time() -> None:
    # Given a consumer without expires, and one with a longer time
    work = Blocked(memory())
    async with work.app.test() as t:
        await orders.send(Order(0))
        await orders.send(Order(1), expires="1m")
        await orders.send(Order(2))
        await orders.send(Order(3), expires="5m", dedupe="three")
        await t.advance("2m")
        work.go_on.set()
        await t.settle()
    assert work.handled == [0, 2, 3]


@pytest.mark.parametrize(("own", "declared"), [("1m", "10m"), ("10m", "1m")])
async def test_the_shorter_of_both_times_counts(own: str, declared: str) -> None:
    work = Blocked(memory(), expires=declared)
    async with work.app.test() as t:
        await orders.send(Order(0))
        await orders.send(Order(1), expires=own)
        await t.advance("2m")
        work.go_on.set()
        await t.settle()
    assert work.handled == [0]


async def test_items_of_a_batch_expire_one_by_one() -> None:
    app, seen = memory(), []

    @app.batch(orders, group="g", size=10, linger="10s", into=invoices)
    async def load(rows: Batch[Order]) -> Invoice:
        seen.append([row.id for row in rows])
        return Invoice(len(rows))

    async with app.test() as t:
        await orders.send(Order(1), expires="5s")
        await orders.send(Order(2))
        await t.advance("6s")
        await orders.send(Order(3), expires="5s")
        await t.advance("1m")
        assert seen == [[2, 3]]
        assert t.results(invoices) == [Invoice(2)]
        await orders.send(Order(4), expires="5s")  # alone: then no batch is left
        await t.advance("1m")
        assert seen == [[2, 3]]
        assert t.pending(load) == {}


async def test_the_next_of_a_key_starts_when_one_has_expired() -> None:
    app, seen = memory(), []
    go_on = asyncio.Event()

    @app.consumer(orders, group="g", order_by=lambda _order: "one", into=invoices)
    async def bill(order: Order) -> Invoice:
        seen.append(order.id)
        if order.id == 0:
            await go_on.wait()
        return Invoice(order.id)

    async with app.test() as t:
        await orders.send(Order(0))
        await orders.send(Order(1), expires="1m")
        await orders.send(Order(2))
        await t.advance("2m")
        go_on.set()
        await t.advance("1s")
        assert t.results(invoices) == [Invoice(0), Invoice(2)]
        assert t.pending(bill) == {}
    assert seen == [0, 2]


async def test_what_has_started_in_time_is_retried_after_it() -> None:
    # Given handlers that fail, and one whose process dies, all started in time
    app, seen = memory(), []

    @app.consumer(orders, group="g", expires="1m", claim_after="3m")
    async def bill(order: Order, delivery: Delivery) -> None:
        seen.append((order.id, delivery.count))
        if order.id == 1 and delivery.count == 1:
            raise Again(after="5m")
        if order.id == 2 and delivery.count == 1:
            await asyncio.Event().wait()

    async with app.test() as t:
        await t.send(orders, Order(1), Order(2))
        t.crash(bill)
        await t.advance("10m")
        assert sorted(seen) == [(1, 1), (1, 2), (2, 1), (2, 2)]
        assert t.pending(bill) == {}


async def test_a_delivery_that_does_not_count_is_no_start() -> None:
    app = memory()

    @app.consumer(orders, group="g", expires="1m")
    async def bill(order: Order) -> None:
        raise Again(after="5m", counted=False)

    async with app.test() as t:
        await t.send(orders, Order(1))
        await t.advance("6m")
        assert t.deliveries(bill) == [1]
        assert t.pending(bill) == {}


async def test_the_time_of_a_scheduled_message_begins_when_it_is_due() -> None:
    app, seen = memory(), []

    @app.consumer(orders, group="g")
    async def bill(order: Order) -> None:
        seen.append(order.id)

    async with app.test() as t:
        await orders.send(Order(1), after="10m", expires="1m")
        await t.advance("11m")
    assert seen == [1]


@pytest.mark.parametrize("declared", ["1h", None])
async def test_a_message_that_is_published_late_has_less_time(declared: str | None) -> None:
    # Given messages that were due half an hour ago, when no worker ran to publish them
    app, seen = memory(), []

    @app.consumer(orders, group="g", expires=declared)
    async def bill(order: Order) -> None:
        seen.append(order.id)

    async with app.test() as t:
        for number, lasts in (1, "60000"), (2, "3600000"):
            scheduled: dict[Any, Any] = {
                "id": str(number),
                "hw.expires": lasts,
                "hw.after": "600000",
            }
            added = t.clock.now_ms() - 40 * 60_000
            t.look.xadd("{orders}:hw:later", scheduled, id=f"{added}-{number}")
        await t.advance("10s")
        assert t.pending(bill) == {}
    assert seen == [2]


@pytest.mark.parametrize("expires", ["consumer", "message"])
async def test_a_replayed_dead_letter_runs(any_store: Store, expires: str) -> None:
    # Given a dead letter of an entry that has expired
    app, seen = any_store.app(), []

    @app.consumer(
        orders, group="g", expires="10m" if expires == "consumer" else None, on_expired="dead"
    )
    async def bill(order: Order) -> None:
        seen.append(order.id)

    old = await _an_hour_ago(any_store)
    own: dict[Any, Any] = {} if expires == "consumer" else {"hw.expires": "600000"}
    await any_store.look.xadd("orders", {"id": "17", **own}, id=old)
    async with working(app):
        await eventually(any_store.dead)
        assert seen == []
        # When an operator replays it
        where = dead_letter_stream("orders")
        (letter,) = await perform(any_store.look, dead_letters.page(where))
        (done,) = await perform(any_store.look.client(), replay.replay(where, [letter]))
        assert done.how is replay.ReplayResult.RETURNED
        # Then it runs
        await eventually(lambda: seen == [17])
        await eventually(any_store.settled)


async def test_old_entries_are_dropped_in_one_step_on_every_server(
    any_store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    app, seen, endings = any_store.app(), [], []

    class Watch(Middleware):
        def after_settle(self, delivery: Delivery, ending: Ending) -> None:
            endings.append((delivery.count, ending))

    app.use(Watch())

    @app.consumer(orders, group="g", expires="10m")
    async def bill(order: Order) -> None:
        seen.append(order.id)

    old = await _an_hour_ago(any_store)
    for number in range(3):
        await any_store.look.xadd("orders", {"id": str(number)}, id=f"{old}-{number + 1}")
    with caplog.at_level(logging.WARNING, "headwater.worker"):
        async with run_app(app), app:
            await orders.send(Order(17))
            await eventually(any_store.settled)
    assert seen == [17]
    assert endings.count((1, Ending.EXPIRED)) == 3
    assert len([one for one in caplog.messages if "expired" in one]) == 1


@pytest.mark.parametrize(
    "entry_id", ["1-1", "1763715598-0", "1763715598000000-0", f"{2**64 - 1}-5"]
)
async def test_an_id_that_is_not_a_time_does_not_expire(
    entry_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    app, seen = memory(), []

    @app.consumer(orders, group="g", expires="1s")
    async def bill(order: Order) -> None:
        seen.append(order.id)

    with caplog.at_level(logging.WARNING, "headwater.worker"):
        async with app.test() as t:
            t.look.xadd("orders", {"id": "17"}, id=entry_id)
            await t.advance("10s")
    assert seen == [17]
    assert [one for one in caplog.messages if "is not a time" in one]


async def test_a_field_that_is_not_a_number_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    values = ["", "-5", "1e3", "10m", "9" * 30]
    work = Blocked(memory())
    with caplog.at_level(logging.WARNING, "headwater.worker"):
        async with work.app.test() as t:
            await t.send(orders, Order(0))
            for number, value in enumerate(values, 1):
                await t.add(orders, {"id": str(number), "hw.expires": value})
            await t.advance("1m")
            work.go_on.set()
            await t.settle()
    assert work.handled == [*range(len(values) + 1)]
    assert len([one for one in caplog.messages if "hw.expires" in one]) == 1


async def test_a_wrong_clock_of_a_worker_changes_nothing(store: Store) -> None:
    class Ahead(LoopClock):
        def now_ms(self) -> int:
            return super().now_ms() + 24 * HOUR_MS

    app, seen = store.app(), []

    @app.consumer(orders, group="g", expires="10m")
    async def bill(order: Order) -> None:
        seen.append(order.id)

    running = Running(app.consumers, around=Surroundings(Connections(app.url), Ahead(), Random(1)))
    running.start()
    async with app:
        await orders.send(Order(1))
        await eventually(store.settled)
    await running.stop(10)
    assert seen == [1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"expires": "0s"}, "expires"),
        ({"expires": "ten"}, "expires"),
        ({"expires": "-1m"}, "expires"),
        ({"expires": "400d"}, "expires"),
        ({"on_expired": "retry"}, "on_expired"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(DeclarationError, match=words):
        memory().consumer(orders, group="g", **options)(_handler)


async def _handler(order: Order) -> None: ...


async def _an_hour_ago(store: Store) -> str:
    seconds, _micros = await store.look.time()
    return str(int(seconds) * 1000 - HOUR_MS)
