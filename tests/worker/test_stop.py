"""A stop hands waiting entries back at once; broken connections and destroyed groups lose nothing."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
import redis.asyncio

from headwater.errors import HeadwaterError
from headwater.testing.server import ServerProcess, server_process
from headwater.worker import App, Delivery
from headwater.worker.running import Running
from tests.worker.apps import (
    Invoice,
    Order,
    Store,
    eventually,
    invoices,
    orders,
    worker,
    working,
)

QUICK: dict[str, Any] = {"group": "g", "claim_after": "300ms"}


async def test_a_graceful_stop_leaves_no_entry_with_the_stopped_worker(store: Store) -> None:
    # FastStream leaves 44 of 50 prefetched entries pending under a consumer that has ended.
    app = store.app()
    handled = []
    begun, go_on = asyncio.Event(), asyncio.Event()

    @app.consumer(orders, group="g", concurrency=6, prefetch=50)
    async def bill(order: Order, delivery: Delivery) -> None:
        begun.set()
        await go_on.wait()
        handled.append((order.id, delivery.count))

    async with app:
        await orders.send_many([Order(number) for number in range(50)])
        running = worker(app)
        running.start()
        await begun.wait()
        await eventually(lambda: _owned(store, 50))

        # When it is stopped, then the 44 waiting entries are handed back at once, uncounted
        stopping = asyncio.create_task(running.stop(10))
        await eventually(lambda: _owned(store, 6))
        rows = await store.pending()
        assert [count for _id, owner, _idle, count in rows if owner in {"", "hw.parked"}] == [
            0
        ] * 44

        # And running handlers may finish; then its consumer is removed
        go_on.set()
        await stopping
        assert len(handled) == 6
        assert await store.consumers() == []

        # And another worker gets the rest at once, at their first delivery
        async with working(app):
            await eventually(store.settled)
    assert sorted(handled) == [(number, 1) for number in range(50)]


async def _owned(store: Store, count: int) -> bool:
    rows = await store.pending()
    return sum(owner not in {"", "hw.parked"} for _id, owner, _idle, _count in rows) == count


async def test_a_second_signal_hands_back_running_entries_without_counting_the_delivery(
    store: Store,
) -> None:
    app = store.app()
    ends: list[str] = []
    begun = asyncio.Event()

    @app.consumer(orders, group="g")
    async def bill(order: Order, delivery: Delivery) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ends.append("cancelled")

    async with app:
        await orders.send(Order(17))
        running = worker(app)
        running.start()
        await begun.wait()
        running.ask_to_stop()
        stopping = asyncio.create_task(running.stop(60))
        await eventually(lambda: running.loops[app.consumers[0]].admission.stopping)
        assert ends == []

        running.ask_to_stop()
        await stopping

    assert ends == ["cancelled"]
    ((_id, owner, _idle, count),) = await store.pending()
    assert owner in {"", "hw.parked"}
    assert count == 0
    assert await store.consumers() == []


async def test_the_end_of_the_grace_hands_back_running_entries(store: Store) -> None:
    app = store.app()
    begun = asyncio.Event()

    @app.consumer(orders, group="g")
    async def bill(order: Order) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with working(app, grace=0.05):
        await orders.send(Order(17))
        await begun.wait()
    ((_id, owner, _idle, count),) = await store.pending()
    assert owner in {"", "hw.parked"}
    assert count == 0


async def test_an_entry_whose_handler_thread_does_not_end_is_handed_back(store: Store) -> None:
    app = store.app()
    begun, release = threading.Event(), threading.Event()
    lost = []

    @app.consumer(orders, group="g", into=invoices)
    def bill(order: Order, delivery: Delivery) -> Invoice:
        begun.set()
        release.wait(30)
        lost.append(delivery.lost)
        return Invoice(order.id)

    async with working(app, grace=0.05):
        await orders.send(Order(17))
        await eventually(begun.is_set)
    ((_id, owner, _idle, count),) = await store.pending()
    release.set()
    await eventually(lambda: lost == [True])
    assert owner in {"", "hw.parked"}
    assert count == 0
    assert await store.results() == []


async def test_a_failure_during_the_stop_is_counted(store: Store) -> None:
    app = store.app()
    begun, go_on = asyncio.Event(), asyncio.Event()

    @app.consumer(orders, group="g", retry=None)
    async def bill(order: Order) -> None:
        begun.set()
        await go_on.wait()
        raise ValueError("at the end")

    async with app:
        await orders.send(Order(17))
        running = worker(app)
        running.start()
        await begun.wait()
        stopping = asyncio.create_task(running.stop(10))
        await eventually(lambda: running.loops[app.consumers[0]].admission.stopping)
        go_on.set()
        await stopping
    ((_id, _owner, _idle, count),) = await store.pending()
    assert count == 1


# --- connections that break -----------------------------------------------------------------------


async def _reads(store: Store) -> bool:
    """Whether a worker's read blocks in the store."""
    return any(client["cmd"] == "xreadgroup" for client in await store.look.client_list())


async def _cut(store: Store) -> None:
    """Close every connection except the test's own."""
    for client in await store.look.client_list():
        if client["cmd"] != "client|list" and client["name"] != "look":
            try:
                await store.look.client_kill_filter(_id=client["id"])
            except redis.exceptions.ResponseError:
                pass  # it is closed already


def _handled(app: App, handled: list[Any]) -> None:
    @app.consumer(orders, **QUICK)
    async def bill(order: Order, delivery: Delivery) -> None:
        handled.append((order.id, delivery.count))


async def test_a_worker_reconnects_after_its_connections_were_cut(store: Store) -> None:
    app = store.app()
    handled: list[Any] = []
    _handled(app, handled)
    async with working(app):
        await orders.send(Order(1))
        await eventually(store.settled)
        await _cut(store)
        await store.look.xadd("orders", {"id": "2"})
        await eventually(lambda: handled == [(1, 1), (2, 1)])
        await eventually(store.settled)


async def test_entries_of_a_lost_reply_are_read_first_after_the_reconnect(
    store: Store,
) -> None:
    # Given an entry that was delivered to this worker in a lost reply
    app = store.app()
    handled: list[Any] = []
    _handled(app, handled)
    async with working(app) as running:
        (loop,) = running.loops.values()
        await eventually(lambda: _reads(store))
        await loop.pause()
        await store.look.xadd("orders", {"id": "17"})
        await store.look.xreadgroup("g", loop.scope.consumer_name, {"orders": ">"})

        # When it reconnects, then it handles the entry at once, counted once
        await _cut(store)
        loop.resume()
        await eventually(lambda: handled)
        await eventually(store.settled)
    assert handled == [(17, 1)]


async def test_a_settlement_whose_reply_was_lost_is_sent_again_without_effect(
    store: Store,
) -> None:
    app = store.app()
    pending_cuts = {5, 25, 45}
    loose = asyncio.Lock()

    @app.consumer(orders, **QUICK, into=invoices)
    async def bill(order: Order) -> Invoice:
        if order.id in pending_cuts:
            pending_cuts.discard(order.id)
            async with loose:
                await _cut(store)
        return Invoice(order.id)

    for number in range(60):
        await store.look.xadd("orders", {"id": number})
    async with working(app):
        await eventually(lambda: not pending_cuts)
        async with loose:
            await eventually(store.settled)
    results = sorted(one.order for one in await store.results())
    assert results == list(range(60))


async def test_a_worker_continues_after_flushall(store: Store) -> None:
    # FastStream's subscriber stops for good.
    app = store.app()
    handled: list[Any] = []
    _handled(app, handled)
    async with working(app):
        await orders.send(Order(1))
        await eventually(store.settled)
        await store.look.flushall()
        await store.look.xadd("orders", {"id": "2"})
        await eventually(lambda: (2, 1) in handled)
        await eventually(store.settled)
    assert handled == [(1, 1), (2, 1)]


async def test_a_stream_created_again_with_smaller_ids_is_read(store: Store) -> None:
    app = store.app()
    handled: list[Any] = []
    _handled(app, handled)
    async with working(app):
        await orders.send(Order(1))
        await eventually(store.settled)
        await store.look.delete("orders")
        await store.look.xadd("orders", {"id": "2"}, id="1-1")
        await eventually(lambda: (2, 1) in handled)


async def test_a_destroyed_group_is_created_again_and_nothing_is_lost(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    # Given two workers with a running entry each
    apps = [store.app(), store.app()]
    begun: list[int] = []
    handled: list[int] = []
    go_on = asyncio.Event()
    for app in apps:

        @app.consumer(orders, **QUICK, concurrency=1, prefetch=1)
        async def bill(order: Order) -> None:
            begun.append(order.id)
            await go_on.wait()
            handled.append(order.id)

    async with working(apps[0]), working(apps[1]):
        await apps[0].send(orders, Order(1))
        await eventually(lambda: begun == [1])
        await apps[0].send(orders, Order(2))
        await eventually(lambda: begun == [1, 2])

        # When another client destroys the group, and another message is sent
        await store.look.xgroup_destroy("orders", "g")
        await apps[0].send(orders, Order(3))
        go_on.set()

        # Then it is created again, at a position before their entries, and the log has a warning
        await eventually(store.settled)
    assert set(handled) == {1, 2, 3}
    assert "was gone and has been created again" in caplog.text


async def test_a_worker_waits_for_an_unreachable_store_at_the_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with server_process("--appendonly", "no", "--save", "") as server:
        server.stop()
        app = App(server.url, name="early")
        await _handles_a_message_once_it_is_back(app, server, caplog)


async def _handles_a_message_once_it_is_back(
    app: App, server: ServerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    handled = []

    @app.consumer(orders, group="g")
    async def bill(order: Order) -> None:
        handled.append(order.id)

    async with working(app):
        await eventually(lambda: "trying again" in caplog.text)
        server.start()
        await app.send(orders, Order(17))
        await eventually(lambda: handled == [17])


@pytest.mark.slow
async def test_an_unreachable_store_does_not_delay_a_stop(peer: Any) -> None:
    server = peer("redis-8.2")
    app = App(server.url, name="late")
    begun = asyncio.Event()

    @app.consumer(orders, group="g")
    async def bill(order: Order) -> None:
        begun.set()

    running: Running
    async with app:
        await orders.send(Order(17))
        running = worker(app)
        running.start()
        await begun.wait()
        server.kill()
        await asyncio.wait_for(running.stop(0.1), 20)


async def test_a_wrong_password_ends_the_worker_with_one_error(peer: Any) -> None:
    server = peer("redis-8.2")
    with redis.Redis.from_url(server.url) as client:
        client.config_set("requirepass", "secret")
    app = App(server.url.replace("redis://", "redis://:wrong@"), name="stranger")
    app.consumer(orders, group="g")(lambda order: None)
    with pytest.raises(HeadwaterError, match="refuses the credentials of this worker") as raised:
        await app.run()
    assert "wrong@" not in str(raised.value)


async def test_a_worker_waits_for_a_full_store_and_uses_up_no_attempt(
    peer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    # Given a store that runs out of memory while a handler runs
    server = peer("redis-8.2")
    app = App(server.url, name="patient")
    begun, go_on = asyncio.Event(), asyncio.Event()
    counts = []

    @app.consumer(orders, **QUICK, into=invoices)
    async def bill(order: Order, delivery: Delivery) -> Invoice:
        counts.append(delivery.count)
        begun.set()
        await go_on.wait()
        return Invoice(order.id)

    async with redis.asyncio.Redis.from_url(server.url) as look, working(app):
        store = Store("redis-8.2", server.url, look)
        await orders.send(Order(17))
        await begun.wait()
        await look.config_set("maxmemory", "1")
        go_on.set()

        # When it accepts writes again, then the result is published, at the first delivery
        await eventually(lambda: "refuses writes" in caplog.text)
        await look.config_set("maxmemory", "0")
        await eventually(store.settled)
        assert [one.order for one in await store.results()] == [17]
    assert counts == [1]
