"""``after=`` publishes a message later, once, never early; until then it can be cancelled."""

from __future__ import annotations

import asyncio
import signal
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headwater.errors import DeclarationError, HeadwaterError, NotReplicated
from headwater.groups.membership.member import join
from headwater.groups.protocol.capabilities import probe
from headwater.groups.protocol.operation import perform
from headwater.groups.settling.scheduling import GROUP, publish_by_script, publisher_of
from headwater.messages.keys import later_key
from headwater.worker import App, Scheduled, Stream, scheduler
from headwater.worker.declare import stream as streams
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
from tests.worker.processes import one_worker

LATER = later_key("orders")


@pytest.fixture
def store(any_store: Store) -> Store:
    """An empty store, on each of the four servers."""
    return any_store


@pytest.fixture(autouse=True)
def scheduler_polls_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "LOOK_SECONDS", 0.02)


def billing(store: Store) -> tuple[App, list[int]]:
    """An app with a consumer of orders, and the ids of the orders that it handled."""
    app = store.app()
    handled: list[int] = []

    @app.consumer(orders, group="g")
    async def bill(order: Order) -> None:
        handled.append(order.id)

    return app, handled


async def waiting(store: Store) -> int:
    return int(await store.look.xlen(LATER))


async def parked(store: Store) -> bool:
    """Whether a worker has read every scheduled message and delayed it."""
    if not await store.look.exists(LATER) or not await store.look.xinfo_groups(LATER):
        return False
    rows = await store.pending(GROUP, LATER)
    return len(rows) == await waiting(store) and {row[1] for row in rows} <= {"", "hw.parked"}


# --- on every server ------------------------------------------------------------------------------


async def test_a_message_is_published_when_it_is_due_and_not_before(store: Store) -> None:
    app, handled = billing(store)
    async with working(app):
        sent = await app.send(orders, Order(1), after="300ms")
        assert isinstance(sent, Scheduled)
        await eventually(lambda: handled)
        entries: Any = await store.look.xrange("orders")
    (entry,) = entries
    # The entry id has the time at which it was published, by the store's clock
    published = datetime.fromtimestamp(int(entry[0].split(b"-")[0]) / 1000, UTC)
    assert timedelta() <= published - sent.due < timedelta(seconds=20)
    assert entry[1] == {b"id": b"1"}
    assert handled == [1]
    assert await waiting(store) == 0


async def test_no_group_of_the_stream_sees_a_message_before_it_is_due(store: Store) -> None:
    app, handled = billing(store)
    async with working(app):
        await app.send(orders, Order(1), after="1h")
        await app.send(orders, Order(2))
        await eventually(lambda: handled)
        await eventually(lambda: parked(store))
        assert [one.id for one in await store.results(orders)] == [2]
    assert await waiting(store) == 1


async def test_messages_that_became_due_without_a_worker_are_published_when_one_runs(
    store: Store,
) -> None:
    # Given messages that became due while no worker ran
    app, handled = billing(store)
    async with app:
        await app.send(orders, Order(1), after="1ms")
        await app.send(orders, Order(2), after=timedelta(0))

    # When a worker runs, then they are published
    async with working(app):
        await eventually(lambda: sorted(handled) == [1, 2])
    assert await waiting(store) == 0


async def test_a_worker_that_is_killed_loses_no_scheduled_message(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a message that a worker has read, but not delayed, when it was killed
    from headwater.groups.settling import scheduling

    monkeypatch.setattr(scheduling, "CLAIM_AFTER_MS", 300)
    app, handled = billing(store)
    async with app:
        await app.send(orders, Order(1), after="200ms")
        await store.look.xgroup_create(LATER, GROUP, "0")
        await store.look.xreadgroup(GROUP, "dead", {LATER: ">"})

    # When another worker runs, then the message is published once
    async with working(app):
        await eventually(lambda: handled)
    assert handled == [1]
    assert await waiting(store) == 0


async def test_a_delayed_message_survives_its_worker(store: Store) -> None:
    app, handled = billing(store)
    running = worker(app)
    async with app:
        running.start()
        await app.send(orders, Order(1), after="500ms")
        await eventually(lambda: parked(store))
        killed(running)
        await buried(running)
        async with working(app):
            await eventually(lambda: handled)
    assert handled == [1]


async def test_several_workers_publish_each_message_once(store: Store) -> None:
    # Given three workers, and messages that are due at about the same time
    apps = [billing(store) for _ in range(3)]
    async with working(apps[0][0]), working(apps[1][0]), working(apps[2][0]):
        app = apps[0][0]
        await asyncio.gather(
            *(app.send(orders, Order(number), after="100ms") for number in range(100))
        )
        await eventually(lambda: sum(len(handled) for _app, handled in apps) >= 100)
        await eventually(store.settled)
    assert sorted(one.id for one in await store.results(orders)) == list(range(100))


async def overdue(store: Store, count: int) -> None:
    """Schedule orders that are due at once, while no worker runs."""
    pipeline = store.look.pipeline(transaction=False)
    for number in range(count):
        pipeline.xadd(LATER, {"id": number, "hw.after": number % 2})
    await pipeline.execute()


@pytest.mark.slow
async def test_many_due_messages_are_published_with_few_commands(store: Store) -> None:
    # Given 4,000 messages that are due, and a worker that publishes to their stream and does not read it
    app = store.app()

    @app.consumer(invoices, group="g", into=orders)
    async def correct(invoice: Invoice) -> Order | None: ...

    await overdue(store, 4_000)
    await store.look.config_resetstat()

    # When it publishes them, then hundreds share a command
    async with working(app):
        await eventually(lambda: published_all(store, 4_000))
    stats: Any = await store.look.info("commandstats")
    commands = [
        stats.get(f"cmdstat_{one}", {"calls": 0})["calls"] for one in ("evalsha", "xsettle")
    ]
    assert sum(commands) < 50
    assert await waiting(store) == 0


@pytest.mark.parametrize("any_store", ["redis-8.2", "redis-7.0", "valkey-9.1"], indirect=True)
@pytest.mark.parametrize(("size", "most"), [(10, 200), (300_000, 8)])
@pytest.mark.parametrize("after", [0, 60_000])
async def test_one_step_of_the_script_moves_few_messages_or_a_megabyte(
    store: Store, size: int, most: int, after: int
) -> None:
    # Given 300 messages that nobody has read, due now or later
    pipeline = store.look.pipeline(transaction=False)
    for number in range(300 if size == 10 else 30):
        pipeline.xadd(LATER, {"id": number, "data": b"x" * size, "hw.after": after})
    await pipeline.execute()
    member = publisher_of("orders", "me", await perform(store.look, probe()))
    await perform(store.look, join(member))

    # When the script runs once, then it has published or delayed a part, and there is more
    more, _handled = await perform(store.look, publish_by_script(member, "orders"))
    done = len(await store.pending(GROUP, LATER)) if after else await store.look.xlen("orders")
    assert more
    assert 0 < done <= most


@pytest.mark.slow
async def test_a_worker_that_is_killed_while_it_publishes_many_loses_none_and_repeats_none(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headwater.groups.settling import scheduling

    monkeypatch.setattr(scheduling, "CLAIM_AFTER_MS", 300)
    count = 3_000
    await overdue(store, count)

    # Given workers that are killed one after another while they publish what is due
    app, _handled = billing(store)
    async with app:
        for part in (1, 800, 1_600):
            running = worker(app)
            running.start()

            async def reached(part: int = part) -> bool:
                return int(await store.look.xlen("orders")) >= part

            await eventually(reached)
            killed(running)
            await buried(running)
    assert await waiting(store) > 0

    # When one keeps running, then every message is published once
    async with working(app):
        await eventually(lambda: published_all(store, count))
    assert sorted(one.id for one in await store.results(orders)) == list(range(count))
    assert await waiting(store) == 0


async def published_all(store: Store, count: int) -> bool:
    return int(await store.look.xlen("orders")) >= count


async def test_a_cancelled_message_is_not_published(store: Store) -> None:
    app, handled = billing(store)
    async with working(app):
        # Given an unread message, a delayed one and a published one
        parked_one = await app.send(orders, Order(1), after="1h")
        await eventually(lambda: parked(store))
        published = await app.send(orders, Order(2), after="1ms")
        await eventually(lambda: handled == [2])

        # Then the delayed one can be cancelled once, and the published one cannot
        assert await parked_one.cancel()
        assert not await parked_one.cancel()
        assert not await published.cancel()
        again = await app.send(orders, Order(3), after="1h")
        assert await asyncio.to_thread(again.cancel_blocking)
        by_id = await app.send(orders, Order(4), after="1h")
        assert await app.cancel(orders, by_id.id)
    assert await waiting(store) == 0
    summary: Any = await store.look.xpending(LATER, GROUP)
    assert summary["pending"] == 0
    assert handled == [2]


async def test_a_message_is_cancelled_or_published_and_never_both(store: Store) -> None:
    # Given messages that are cancelled at about the time when they are due
    app, handled = billing(store)
    async with working(app):
        handles = [await app.send(orders, Order(n), after="40ms") for n in range(60)]
        cancelled = []
        for handle in handles:
            cancelled.append(await handle.cancel())
            await asyncio.sleep(0.001)

        # Then each was either cancelled or published
        async def all_gone() -> bool:
            return await waiting(store) == 0

        await eventually(all_gone)
        await eventually(lambda: len(handled) + sum(cancelled) >= 60)
        await eventually(store.settled)
    assert sorted(handled) == [n for n in range(60) if not cancelled[n]]


async def test_no_scheduled_message_is_lost_when_their_group_is_destroyed(store: Store) -> None:
    app, handled = billing(store)
    async with working(app):
        await app.send(orders, Order(1), after="400ms")
        await app.send(orders, Order(2), after="1h")
        await eventually(lambda: parked(store))
        await store.look.xgroup_destroy(LATER, GROUP)
        await eventually(lambda: handled)
    assert handled == [1]
    assert await waiting(store) == 1


async def test_new_scheduled_messages_are_published_after_their_stream_was_deleted(
    store: Store,
) -> None:
    app, handled = billing(store)
    async with working(app):
        await app.send(orders, Order(1), after="1h")
        await eventually(lambda: parked(store))
        await store.look.delete(LATER)
        await app.send(orders, Order(2), after="1ms")
        await eventually(lambda: handled)
    assert handled == [2]


async def test_a_message_that_the_store_refuses_waits_and_does_not_delay_others(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    # Given a message for a key of another type, and one for another stream of the same app
    app = store.app()
    handled: list[int] = []

    @app.consumer(orders, group="g", into=invoices)
    async def bill(order: Order) -> Invoice | None:
        handled.append(order.id)
        return None

    async with working(app):
        await store.look.set("invoices", "text")
        refused = await app.send(invoices, Invoice(1), after="1ms")
        await app.send(orders, Order(2), after="1ms")

        # Then the second is published, the first waits, and the log has the reason
        await eventually(lambda: handled)
        await eventually(lambda: "the stream refuses it" in caplog.text)
        assert "WRONGTYPE" in caplog.text
        assert await refused.cancel()
    assert handled == [2]


async def test_publishing_a_scheduled_message_trims_the_stream_as_declared(store: Store) -> None:
    app, _handled = billing(store)
    short: Stream[Order] = Stream("orders", Order, maxlen=100)
    for number in range(1_000):
        await store.look.xadd("orders", {"id": number})
    async with working(app):
        await app.send(short, Order(1), after="1ms")

        async def trimmed() -> bool:
            return await store.look.xlen("orders") <= 400

        await eventually(trimmed)


async def test_a_dedupe_name_schedules_a_message_once(store: Store) -> None:
    app, _handled = billing(store)
    async with app:
        first = await app.send(orders, Order(1), after="1h", dedupe="reminder-1")
        again = await app.send(orders, Order(1), after="2h", dedupe="reminder-1")
    assert (again.id, again.due) == (first.id, first.due)
    assert await waiting(store) == 1


async def test_waiting_for_replicas_applies_to_scheduled_messages(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "REPLICAS_TIMEOUT_MS", 20)
    async with store.app() as app:
        with pytest.raises(NotReplicated, match="0 of 1 replicas"):
            await app.send(orders, Order(1), after="1h", wait=1)
    assert await waiting(store) == 1


async def test_a_message_can_be_scheduled_months_ahead(store: Store) -> None:
    app, _handled = billing(store)
    async with working(app):
        sent = await app.send(orders, Order(1), after="300d")
        await eventually(lambda: parked(store))
    days = (sent.due - datetime.now(UTC)).total_seconds() / 86_400
    assert 299 < days < 301
    assert await waiting(store) == 1


async def test_a_stopped_worker_removes_its_consumer_of_scheduled_messages(store: Store) -> None:
    app, _handled = billing(store)
    async with working(app):
        await app.send(orders, Order(1), after="1h")
        await eventually(lambda: parked(store))
    assert await store.consumers(GROUP, LATER) == []


@pytest.mark.slow
@pytest.mark.parametrize("any_store", ["headwater", "redis-7.0"], indirect=True)
async def test_killed_worker_processes_publish_each_message_once(store: Store) -> None:
    # Given processes that are killed one after another while messages become due
    app = store.app()
    async with app:
        for number in range(300):
            await app.send(orders, Order(number), after=f"{number * 5}ms")
    for _ in range(4):
        with one_worker(store.url) as process:
            before = await store.look.xlen("orders")

            async def goes_on(before: int = before) -> bool:
                return before == 300 or await store.look.xlen("orders") > before

            await eventually(goes_on)
            process.signal(signal.SIGKILL)
            process.wait()

    # When one process keeps running, then each message is published once
    with one_worker(store.url):

        async def all_published() -> bool:
            return await store.look.xlen("orders") >= 300

        await eventually(all_published)
    assert sorted(one.id for one in await store.results(orders)) == list(range(300))
    assert await waiting(store) == 0


@pytest.mark.slice
@pytest.mark.parametrize("any_store", ["headwater", "redis-8.2", "valkey-9.1"], indirect=True)
async def test_a_process_that_is_killed_in_the_middle_of_many_due_messages_repeats_none(
    store: Store,
) -> None:
    # Given 20,000 messages that are due, and a process that is killed while it publishes them
    count = 20_000
    await overdue(store, count)
    with one_worker(store.url) as process:
        await eventually(lambda: published_all(store, 2_000))
        process.signal(signal.SIGKILL)
        process.wait()
    assert await waiting(store) > 0

    # When another one runs, then each is published once; what the first had read is late by ten seconds
    with one_worker(store.url):
        await eventually(lambda: published_all(store, count))
    assert sorted(one.id for one in await store.results(orders)) == list(range(count))
    assert await waiting(store) == 0


# --- without a server -----------------------------------------------------------------------------


async def test_advancing_the_clock_of_a_test_makes_a_message_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scheduler, "LOOK_SECONDS", 1.0)
    app = App("redis://localhost:1")
    handled: list[int] = []

    @app.consumer(orders, group="g")
    async def bill(order: Order) -> None:
        handled.append(order.id)

    async with app.test() as t:
        await app.send(orders, Order(1), after="10m")
        await app.send(orders, Order(2), after="20m")
        await t.advance("599s")
        assert handled == []
        await t.advance("1s")
        assert handled == [1]
        await t.advance("10m")
        assert handled == [1, 2]


@pytest.mark.parametrize(
    ("after", "complaint"),
    [
        ("soon", "after='soon'"),
        (timedelta(seconds=-1), "at least 0 ms"),
        ("400d", "at most 366 days"),
    ],
)
async def test_an_invalid_delay_is_refused(after: Any, complaint: str) -> None:
    async with App("headwater://memory") as app:
        with pytest.raises(DeclarationError, match=complaint):
            await app.send(orders, Order(1), after=after)
        with pytest.raises(HeadwaterError, match="use `await send`"):
            app.publish(orders, Order(1), after="1s")
