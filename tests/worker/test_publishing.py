"""Publishing from code that does not run a worker."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest
import redis

from headwater.errors import EncodeError, HeadwaterError, NotSent
from headwater.groups.protocol.operation import Refused
from headwater.worker import App, Stream
from headwater.worker.declare import open_apps
from headwater.worker.publish import publishing
from tests.worker.apps import Invoice, Order, Store, eventually, invoices, orders, working


async def test_messages_are_sent_one_by_one_or_in_batches(store: Store) -> None:
    app = store.app()
    async with app:
        first = await app.send(orders, Order(1))
        more = await app.send_many(orders, (Order(number) for number in range(2, 2_502)))
        nothing = await app.send_many(orders, [])
    assert len(more) == 2_500
    assert nothing == []
    entries: Any = await store.look.xrange("orders")
    assert [entry_id.decode() for entry_id, _fields in entries] == [first, *more]
    assert [one.id for one in await store.results(orders)] == list(range(1, 2_502))


async def test_a_thread_publishes_while_the_loop_runs(store: Store) -> None:
    app = store.app()
    handled = []

    @app.consumer(orders, group="g")
    def bill(order: Order) -> None:
        # The thread of a handler has no event loop, so the handler publishes with blocking calls.
        app.publish(invoices, Invoice(order.id))
        handled.append(order.id)

    async with working(app):
        await asyncio.to_thread(orders.publish, Order(17))
        await eventually(store.settled)
    assert handled == [17]
    assert [one.order for one in await store.results()] == [17]


async def test_publishing_trims_the_stream_as_declared(store: Store) -> None:
    app = store.app()
    short: Stream[Order] = Stream("short", Order, maxlen=100)
    async with app:
        await short.send_many([Order(number) for number in range(2_000)])
    assert 100 <= await store.look.xlen("short") <= 400


async def test_blocking_publish_in_an_event_loop_raises_an_error_with_the_remedy(
    store: Store,
) -> None:
    async with store.app() as app:
        with pytest.raises(HeadwaterError, match="use `await send`"):
            orders.publish(Order(1))
        with pytest.raises(HeadwaterError, match="use `await send`"):
            app.publish(orders, Order(1))
    assert not await store.look.exists("orders")


def test_opening_an_app_in_another_event_loop_than_asyncios_raises_an_error_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Given a coroutine that is run without asyncio, as trio runs it, and neither an app that another test has left
    # open nor a stream that another test's app consumes
    monkeypatch.setattr(open_apps, "_open", [])
    loose: Stream[Order] = Stream("loose", Order)
    app = App("headwater://memory")
    opening = app.__aenter__()

    # When it opens the app
    with pytest.raises(HeadwaterError, match=r"needs an event loop of asyncio.*With trio, use"):
        opening.send(None)

    # Then the app is not open, and the remedy works
    with pytest.raises(HeadwaterError, match="no app is open"):
        loose.publish(Order(17))
    with app:
        assert app.publish(orders, Order(17))


def test_an_app_publishes_from_a_thread_of_trio() -> None:
    trio = pytest.importorskip("trio")

    async def main() -> str:
        with App("headwater://memory") as app:
            sent: str = await trio.to_thread.run_sync(app.publish, orders, Order(17))
            return sent

    assert trio.run(main).endswith("-0")


async def test_a_message_of_another_type_is_not_sent(store: Store) -> None:
    async with store.app() as app:
        with pytest.raises(EncodeError, match="is not a valid Order"):
            await app.send_many(orders, [Invoice(1)])
    assert not await store.look.exists("orders")


async def test_a_stream_of_several_open_apps_needs_an_explicit_app(store: Store) -> None:
    loose: Stream[Order] = Stream("loose", Order)
    first, second = store.app(), store.app()
    async with first, second:
        with pytest.raises(HeadwaterError, match="several apps could publish to 'loose'"):
            await loose.send(Order(1))
        assert await second.send(loose, Order(1))


async def test_a_stream_does_not_keep_an_unused_app_alive() -> None:
    # Given a stream of a module, and an app of one test that consumed it
    lasting: Stream[Order] = Stream("lasting", Order)

    async def one_test() -> weakref.ref[App]:
        app = App("headwater://memory")

        @app.consumer(lasting, group="g")
        async def bill(_order: Order) -> None:
            pass

        async with app.test() as t:
            await t.send(lasting, Order(1))
            await t.advance("1s")
        return weakref.ref(app)

    # When that test has ended
    former = await one_test()
    gc.collect()

    # Then the app, its store and its clients can be collected
    assert former() is None


async def test_publishing_raises_the_error_of_the_store(store: Store) -> None:
    await store.look.set("orders", "x")
    async with store.app() as app:
        with pytest.raises(Refused, match=r"WRONGTYPE .*0 of 1 messages were added before"):
            await app.send(orders, Order(1))


def test_errors_of_publishing_hide_the_password(peer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given an app whose URL has a password, and a store that ends
    monkeypatch.setattr(publishing, "RECONNECT_SECONDS", 0.1)
    server = peer("redis-8.2")
    app = App(server.url.replace("redis://", "redis://ann:secret@"), name="sender")
    with redis.Redis.from_url(server.url) as client:
        client.acl_setuser(
            "ann", enabled=True, passwords=["+secret"], categories=["+@all"], keys="*"
        )
        with app:
            orders_of_app: Stream[Order] = Stream("orders", Order)
            app.publish(orders_of_app, Order(1))
            server.kill()
            with pytest.raises(NotSent) as raised:
                app.publish(orders_of_app, Order(2))
    assert "secret" not in str(raised.value)


def test_a_wrong_password_raises_at_once(peer: Any) -> None:
    server = peer("redis-8.2")
    app = App(server.url.replace("redis://", "redis://ann:wrong@"))
    with app, pytest.raises(NotSent, match="invalid username-password pair"):
        app.publish(orders, Order(1))


async def test_concurrent_sends_do_not_block_each_other(store: Store) -> None:
    async with store.app() as app:
        await asyncio.gather(*(app.send(orders, Order(number)) for number in range(200)))
    assert await store.look.xlen("orders") == 200
