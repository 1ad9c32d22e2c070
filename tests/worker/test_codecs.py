"""Streams that other programs write and read: packed, raw, and FastStream's format."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest
from faststream import AckPolicy
from faststream.redis import RedisBroker, StreamSub
from faststream.redis.annotations import RedisStreamMessage

from headwater.errors import EncodeError
from headwater.groups.membership.consumers import WORKER_NAME
from headwater.worker import App, Delivery, Stream, scheduler
from headwater.worker.running import unique_name
from headwater.worker.tracing import Tracing
from tests.worker.apps import Invoice, Order, Store, eventually, working


@pytest.mark.parametrize("codec", ["msgpack", "faststream", "faststream-json"])
async def test_messages_of_a_codec_are_handled_and_their_results_published(
    store: Store, codec: str
) -> None:
    orders = Stream("orders", Order, codec=codec)
    invoices = Stream("invoices", Invoice, codec=codec)
    app = store.app()

    @app.consumer(orders, group="g", into=invoices)
    async def bill(order: Order) -> Invoice:
        return Invoice(order.id)

    async with working(app):
        await app.send_many(orders, [Order(1), Order(2)])
        await eventually(store.settled)
    assert await store.results(invoices) == [Invoice(1), Invoice(2)]


async def test_a_handler_of_the_bytes_codec_gets_the_raw_fields(store: Store) -> None:
    raw = Stream("orders", list[tuple[bytes, bytes]], codec="bytes")
    copy = Stream("copy", dict[bytes, bytes], codec="bytes")
    app = store.app()
    handled = []

    @app.consumer(raw, group="g", into=copy)
    async def pass_on(fields: list[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
        handled.append(fields)
        return dict(fields)

    async with working(app):
        await app.send(raw, [(b"a", b"\xff"), (b"a", b"")])
        await eventually(store.settled)
    assert handled == [[(b"a", b"\xff"), (b"a", b"")]]
    assert await store.results(copy) == [{b"a": b""}]


@pytest.mark.parametrize("kind", [dict[bytes, bytes], list[tuple[bytes, bytes]]])
async def test_a_handler_of_the_bytes_codec_gets_only_what_was_sent(
    store: Store, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given messages that expire, one of them scheduled, and a handler that returns what it gets
    monkeypatch.setattr(scheduler, "LOOK_SECONDS", 0.02)
    raw = Stream("orders", kind, codec="bytes")
    copy = Stream("copy", kind, codec="bytes")
    app = store.app(middleware=[Tracing()])
    handled: list[Any] = []

    @app.consumer(raw, group="g", into=copy)
    async def pass_on(fields: Any) -> Any:
        handled.append(fields)
        return fields

    message: Any = {b"a": b"1"} if kind == dict[bytes, bytes] else [(b"a", b"1")]
    async with working(app):
        # When they are sent
        await app.send(raw, message, expires="1m")
        await app.send(raw, message, expires="1m", after="1ms")
        await eventually(lambda: len(handled) == 2)
        await eventually(store.settled)

    # Then it gets the fields that were sent, and its results are published
    assert handled == [message, message]
    assert await store.results(copy) == [message, message]


async def test_a_message_that_no_consumer_could_decode_is_refused_when_it_is_sent(
    store: Store,
) -> None:
    prices = Stream("orders", dict[str, float], codec="json")
    app = store.app()
    async with app:
        with pytest.raises(EncodeError, match=r"field 'tea' = nan .* send None"):
            await app.send(prices, {"tea": math.nan})
        with pytest.raises(EncodeError, match="could not decode it: field 'id' = 'x'"):
            await app.send(Stream("orders", Order), Order("x"))  # type: ignore[arg-type]
    assert not await store.look.exists("orders")


async def test_an_entry_of_another_codec_is_a_dead_letter(store: Store) -> None:
    app = store.app()

    @app.consumer(Stream("orders", Order, codec="msgpack"), group="g")
    async def bill(order: Order) -> None:
        raise AssertionError("the entry must not be decoded")

    async with working(app):
        await store.look.xadd("orders", {"id": "1"})
        await eventually(store.settled)
    (letter,) = await store.dead()
    assert "field 'data' is missing" in letter.error


# --- FastStream and Headwater ---------------------------------------------------------------------


async def test_what_faststream_publishes_is_handled(store: Store) -> None:
    app = store.app()
    handled: list[int] = []

    @app.consumer(Stream("orders", Order, codec="faststream"), group="g")
    async def bill(order: Order) -> None:
        handled.append(order.id)

    async with working(app), RedisBroker(store.url) as broker:
        await broker.publish({"id": 1}, stream="orders", headers={"kind": "order"})
        await broker.publish({"id": 2}, stream="orders", correlation_id="x")
        await eventually(lambda: handled == [1, 2])


@pytest.mark.parametrize("codec", ["faststream", "faststream-json"])
async def test_a_subscriber_of_faststream_handles_what_headwater_publishes(
    store: Store, codec: str
) -> None:
    broker = RedisBroker(store.url)
    handled: list[Any] = []

    @broker.subscriber(stream=StreamSub("orders", group="fs", consumer="fs-1", last_id="0"))
    async def bill(order: dict[str, Any]) -> None:
        handled.append(order)

    async with broker:
        await broker.start()
        async with store.app() as app:
            await app.send(Stream("orders", Order, codec=codec), Order(17))
        await eventually(lambda: handled == [{"id": 17}])


async def test_a_worker_takes_over_a_faststream_group_with_its_pending_entries(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    # Given a FastStream consumer that read three messages, acknowledged one and ended
    broker = RedisBroker(store.url)
    seen: list[int] = []
    sub = StreamSub("orders", group="g", consumer="fs-1", last_id="0")

    @broker.subscriber(stream=sub, ack_policy=AckPolicy.MANUAL)
    async def handle(number: dict[str, int], message: RedisStreamMessage) -> None:
        seen.append(number["id"])
        if number["id"] == 1:
            await message.ack()

    async with broker:
        await broker.start()
        for number in (1, 2, 3):
            await broker.publish({"id": number}, stream="orders")
        await eventually(lambda: seen == [1, 2, 3])
        await asyncio.sleep(0)

    # When a Headwater worker joins the same group, and another message is published
    app = store.app()
    handled: list[tuple[int, bool]] = []

    @app.consumer(Stream("orders", Order, codec="faststream"), group="g", claim_after="200ms")
    async def bill(order: Order, delivery: Delivery) -> None:
        handled.append((order.id, delivery.redelivered))

    async with working(app), RedisBroker(store.url) as publisher:
        await publisher.publish({"id": 4}, stream="orders")
        await eventually(lambda: len(handled) == 3)
        await eventually(store.settled)

    # Then it handles the pending messages and the new one, and the log names the other consumer
    assert sorted(handled) == [(2, True), (3, True), (4, False)]
    assert "consumers that are not Headwater workers: fs-1" in caplog.text


async def test_the_log_does_not_name_headwater_consumers_as_others(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    def make() -> App:
        app = store.app()

        @app.consumer(Stream("orders", Order), group="g")
        async def bill(order: Order) -> None:
            raise ValueError("the entry becomes a delayed one")

        return app

    app = make()
    async with working(app):
        await app.send(Stream("orders", Order), Order(1))
        await eventually(store.pending)
        async with working(make()) as second:
            (loop,) = second.loops.values()
            await eventually(lambda: loop.fetcher.joined)
    assert "not Headwater workers" not in caplog.text
    assert WORKER_NAME.fullmatch(unique_name())
