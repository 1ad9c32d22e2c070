"""Options of publishing: ``dedupe`` adds a message once per name, ``wait`` waits for replicas."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
import redis.asyncio

from headwater.errors import DeclarationError, HeadwaterError, NotReplicated, OutcomeUnknown
from headwater.groups.protocol.operation import Refused
from headwater.messages.keys import later_key
from headwater.worker import App, Stream
from headwater.worker.declare import stream as streams
from headwater.worker.publish import publishing
from tests.worker.apps import Order, Store, eventually
from tests.worker.restarts import restarting

SERVERS = ("headwater", "redis-8.2", "redis-7.0", "valkey-9.1")

orders: Stream[Order] = Stream("orders", Order)


@pytest.fixture
def store(any_store: Store) -> Store:
    """An empty store, on each of the four servers."""
    return any_store


async def test_a_message_with_a_dedupe_name_is_added_once(store: Store) -> None:
    async with store.app() as app:
        first = await app.send(orders, Order(17), dedupe="order-17")
        other = await app.send(orders, Order(18), dedupe="order-18")
        again = await app.send(orders, Order(17), dedupe="order-17")
        from_thread = await asyncio.to_thread(app.publish, orders, Order(17), dedupe="order-17")
    assert again == from_thread == first != other
    assert await store.look.xlen("orders") == 2


async def test_concurrent_sends_with_the_same_dedupe_name_add_one_message(store: Store) -> None:
    apps = [store.app() for _ in range(3)]
    for app in apps:
        await app.__aenter__()
    ids = await asyncio.gather(
        *(
            app.send(orders, Order(number), dedupe=f"order-{number}")
            for number in range(20)
            for app in apps
            for _ in range(2)
        )
    )
    for app in apps:
        await app.__aexit__()
    assert len(set(ids)) == 20
    assert await store.look.xlen("orders") == 20


@pytest.mark.slow
async def test_a_dedupe_name_can_be_used_again_after_its_window(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "SHORTEST_WINDOW_MS", 1)
    short: Stream[Order] = Stream("short", Order, dedupe_window="1s")

    async def sent_again() -> bool:
        return await app.send(short, Order(1), dedupe="x") != first

    async with store.app() as app:
        first = await app.send(short, Order(1), dedupe="x")
        assert not await sent_again()
        await eventually(sent_again)
    assert await store.look.xlen("short") == 2


async def test_a_message_with_a_dedupe_name_is_trimmed_and_refused_like_others(
    store: Store,
) -> None:
    short: Stream[Order] = Stream("short", Order, maxlen=100)
    async with store.app() as app:
        await short.send_many([Order(number) for number in range(1_000)])
        await short.send(Order(1), dedupe="x")
        assert await store.look.xlen("short") <= 400

        await store.look.set("orders", "text")
        with pytest.raises(Refused, match="WRONGTYPE"):
            await app.send(orders, Order(1), dedupe="x")


@pytest.mark.slow
@pytest.mark.parametrize("name", SERVERS)
async def test_a_message_with_a_dedupe_name_is_sent_again_when_its_outcome_is_unknown(
    name: str,
) -> None:
    # Given a store that dies after it has read a message with a name and before it replies
    with restarting(name) as server:
        app = App(server.url)
        async with app:
            await app.send(orders, Order(0), dedupe="order-0")
            with server.look() as look:
                look.client_pause(60_000, all=False)
                sending = asyncio.ensure_future(app.send(orders, Order(1), dedupe="order-1"))
                await eventually(lambda: _blocked(look))
            server.kill()

            # When it is back within the time that sending waits
            with server.starting():
                entry_id = await sending

            # Then the message was added once, and both names are still known
            assert await app.send(orders, Order(1), dedupe="order-1") == entry_id
            await app.send(orders, Order(0), dedupe="order-0")
        with server.look() as look:
            assert look.xlen("orders") == 2


def name(order: Order) -> str:
    return f"order-{order.id}"


async def test_many_messages_with_dedupe_names_are_added_once(store: Store) -> None:
    async with store.app() as app:
        before = await app.send(orders, Order(7), dedupe="order-7")
        many = [Order(number % 2_100) for number in range(2_200)]
        first = await app.send_many(orders, many, dedupe=name)
        again = await app.send_many(orders, many, dedupe=[name(one) for one in many])
        from_thread = await asyncio.to_thread(app.publish_many, orders, many, dedupe=name)
    assert first == again == from_thread
    assert first[7] == before
    assert first[:100] == first[2_100:]
    added = [one.id for one in await store.results(orders)]
    assert added == [7, *(one.id for one in many[:2_100] if one.id != 7)]


async def test_many_messages_are_scheduled_each_for_its_time(store: Store) -> None:
    async with store.app() as app:
        alike = await app.send_many(orders, [Order(1), Order(2)], after="1h")
        each = await app.send_many(orders, [Order(3), Order(4)], after=["2h", timedelta(hours=3)])
        found = await app.send_many(orders, [Order(5)], after=lambda order: f"{order.id}h")
        again = await asyncio.to_thread(
            app.publish_many, orders, [Order(6), Order(7)], after="6h", dedupe=name
        )
        # A message of the same name is the one that was scheduled before
        once = await app.send_many(orders, [Order(7), Order(8)], after="9h", dedupe=name)
        assert (once[0].id, once[0].due) == (again[1].id, again[1].due)
        now = await store.look.time()
        hours = [round((one.due.timestamp() - now[0]) / 3_600) for one in (*alike, *each, *found)]
        assert [*hours, *(round((one.due.timestamp() - now[0]) / 3_600) for one in once)] == [
            *(1, 1, 2, 3, 5),
            *(6, 9),
        ]
        assert await alike[0].cancel()
    assert await store.look.xlen("orders") == 0
    assert await store.look.xlen(later_key("orders")) == 7


async def test_many_messages_with_options_go_to_their_partitions(store: Store) -> None:
    moves: Stream[Order] = Stream("moves", Order, partitions=3, key=lambda order: order.id)
    async with store.app() as app:
        plain = await app.send_many(moves, [Order(number) for number in range(30)])
        once = await app.send_many(moves, [Order(number) for number in range(30)], dedupe=name)
        later = await app.send_many(moves, [Order(number) for number in range(30)], after="1h")
        again = await app.send_many(moves, [Order(number) for number in range(30)], dedupe=name)
        assert all([await one.cancel() for one in later])
    assert again == once
    assert len(plain) == 30
    found = [one.id for part in moves.parts for one in await store.results(part)]
    assert sorted(found) == sorted([*range(30), *range(30)])


async def test_send_many_with_wait_raises_on_a_server_without_replicas(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "REPLICAS_TIMEOUT_MS", 20)
    many = [Order(number) for number in range(1_500)]
    async with store.app() as app:
        with pytest.raises(NotReplicated, match="0 of 1 replicas confirmed") as raised:
            await app.send_many(orders, many, wait=1, dedupe=name)
        # The first thousand were added, the others were not sent
        assert raised.value.missing == list(range(1_000, 1_500))
        assert len(raised.value.added) == 1_000 == await store.look.xlen("orders")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"dedupe": "x"}, "dedupe='x' for several messages must be a function"),
        ({"dedupe": ["x"]}, "dedupe= has 1 values for 2 messages"),
        ({"dedupe": ["x", ""]}, "dedupe='' must be a name"),
        ({"dedupe": ["x", "\ud800"]}, r"dedupe='\\ud800' must be a name"),
        ({"dedupe": lambda order: order.id}, "dedupe=1 must be a name"),
        ({"dedupe": 17}, "dedupe=17 for several messages must be a function"),
        ({"after": ["1s"]}, "after= has 1 values for 2 messages"),
        ({"after": ["1s", "soon"]}, "after='soon'"),
        ({"after": ["1s", None]}, "after=None"),
        ({"after": ["1s", 5]}, "after=5"),
        ({"after": 17}, "after=17 for several messages must be a function"),
        ({"wait": 0}, "must be an integer, at least 1"),
    ],
)
async def test_invalid_options_of_send_many_are_refused_before_anything_is_sent(
    options: dict[str, Any], complaint: str
) -> None:
    async with App("headwater://memory") as app:
        with pytest.raises(HeadwaterError, match=complaint):
            await app.send_many(orders, [Order(1), Order(2)], **options)
        assert await app.send_many(orders, [], dedupe=name, after="1s") == []
        (kept,) = await app.send_many(orders, [Order(1)], after="1h", dedupe=["a"])
        assert kept.id == (await app.send(orders, Order(1), after="1h", dedupe="a")).id


@pytest.mark.slow
async def test_the_error_for_an_unknown_outcome_says_that_sending_again_is_safe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(publishing, "RECONNECT_SECONDS", 0.0)
    with restarting("headwater") as server:
        async with App(server.url) as app:
            await app.send(orders, Order(0), dedupe="order-0")
            with server.look() as look:
                look.client_pause(60_000, all=False)
                sending = asyncio.ensure_future(app.send(orders, Order(1), dedupe="order-1"))
                await eventually(lambda: _blocked(look))
            server.kill()
            with pytest.raises(OutcomeUnknown, match="same dedupe= again adds nothing twice"):
                await sending


def _blocked(look: Any) -> bool:
    """Whether the server has read a write and blocks it."""
    return any("b" in one["flags"] for one in look.client_list())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["redis-8.2", "redis-7.0", "valkey-9.1"])
async def test_send_with_wait_returns_when_replicas_have_the_message(
    peer: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a server with one replica
    monkeypatch.setattr(streams, "REPLICAS_TIMEOUT_MS", 20_000)
    primary = peer(name)
    replica = peer(name, "--replicaof", f"127.0.0.1 {primary.port}")
    async with App(primary.url) as app, redis.asyncio.Redis.from_url(replica.url) as look:
        # When a message is sent with wait=1, then the replica has it
        entry_id = await app.send(orders, Order(1), wait=1)
        entries: Any = await look.xrange("orders")
        assert [one[0].decode() for one in entries] == [entry_id]

        # And so it is with a name, also if the message was added before
        assert await app.send(orders, Order(1), wait=1, dedupe="x")
        assert await app.send(orders, Order(1), wait=1, dedupe="x")
        later = await app.send_many(
            orders, [Order(1), Order(2)], wait=1, dedupe=["a", "b"], after="1h"
        )
        scheduled: Any = await look.xrange(later_key("orders"))
        assert [entry[0].decode() for entry in scheduled] == [one.id for one in later]

        # And with wait=2 the error has the id of the added message
        monkeypatch.setattr(streams, "REPLICAS_TIMEOUT_MS", 50)
        with pytest.raises(NotReplicated, match="1 of 2 replicas confirmed") as raised:
            await app.send(orders, Order(2), wait=2)
        entries = await look.xrange("orders")
        assert (raised.value.id, raised.value.replicas) == (entries[-1][0].decode(), 1)


async def test_send_with_wait_raises_on_a_server_without_replicas(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "REPLICAS_TIMEOUT_MS", 20)
    async with store.app() as app:
        with pytest.raises(NotReplicated, match="0 of 1 replicas confirmed"):
            await app.send(orders, Order(1), wait=1)
    assert await store.look.xlen("orders") == 1


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"dedupe": ""}, "must be a name"),
        ({"dedupe": 17}, "dedupe=17 must be a name"),
        ({"dedupe": "ünï\ud800"}, r"dedupe='ünï\\ud800' must be a name"),
        ({"dedupe": "\ud800", "after": "1h"}, r"dedupe='\\ud800' must be a name"),
        ({"wait": 0}, "must be an integer, at least 1"),
        ({"wait": True}, "must be an integer, at least 1"),
        ({"wait": 1.5}, "must be an integer, at least 1"),
        ({"wait": "1"}, "must be an integer, at least 1"),
    ],
)
async def test_invalid_options_of_send_are_refused(options: dict[str, Any], complaint: str) -> None:
    async with App("headwater://memory") as app:
        with pytest.raises(HeadwaterError, match=complaint):
            await app.send(orders, Order(1), **options)
        assert await app.send_many(orders, []) == []


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"dedupe": "order-1"}, {"wait": 1}])
async def test_the_error_of_a_refused_message_names_the_stream(
    store: Store, options: dict[str, Any]
) -> None:
    await store.look.set("orders", "a string")
    async with store.app() as app:
        with pytest.raises(HeadwaterError, match="stream 'orders' refused a message: WRONGTYPE"):
            await app.send(orders, Order(1), **options)


async def test_text_that_cannot_be_sent_is_refused_as_a_name() -> None:
    with pytest.raises(DeclarationError, match=r"a stream needs a name, not '\\ud800'"):
        Stream("\ud800", Order)
    async with App("headwater://memory") as app:
        with pytest.raises(HeadwaterError, match=r"scheduled_id='\\ud800' must be the id"):
            await app.cancel(orders, "\ud800")
        with pytest.raises(HeadwaterError, match=r"scheduled_id='\\ud800' must be the id"):
            await asyncio.to_thread(app.cancel_blocking, orders, "\ud800")


async def test_a_name_that_is_not_utf_8_is_accepted() -> None:
    async with App("headwater://memory") as app:
        first = await app.send(orders, Order(1), dedupe="caf\udce9")
        assert await app.send(orders, Order(1), dedupe="caf\udce9") == first


@pytest.mark.parametrize("window", ["1s", "25h"])
def test_a_dedupe_window_out_of_bounds_is_refused(window: str) -> None:
    with pytest.raises(DeclarationError, match="dedupe_window"):
        Stream("orders", Order, dedupe_window=window)
