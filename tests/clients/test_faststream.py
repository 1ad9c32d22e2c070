"""FastStream 0.7: subscribers in groups, claims, manual acknowledgement, TLS, and a server that is
killed under them. What it sees is what it sees on a real Redis."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from faststream import AckPolicy
from faststream.redis import RedisBroker, StreamSub
from faststream.redis.annotations import RedisStreamMessage
from faststream.security import BaseSecurity

from tests.clients.script import TRIES
from tests.clients.stands import Stand, Where

SECONDS = 20


def broker_for(where: Where) -> RedisBroker:
    if where.tls is None:
        return RedisBroker(where.url)
    return RedisBroker(where.url, security=BaseSecurity(ssl_context=where.tls.context()))


async def story(stand: Stand, where: Where) -> list[Any]:
    """Publish, read in a group, refuse, claim, acknowledge: what handlers saw, and what is pending."""
    await asyncio.to_thread(stand.empty)
    seen: list[Any] = []
    refused, done = asyncio.Event(), asyncio.Event()
    broker = broker_for(where)
    first = StreamSub("orders", group="workers", consumer="one", last_id="0")
    claiming = StreamSub("orders", group="workers", consumer="two", min_idle_time=1)

    @broker.subscriber(stream=first, ack_policy=AckPolicy.MANUAL)
    async def handle(number: int, message: RedisStreamMessage) -> None:
        seen.append(("one", number))
        if number == 3:
            await message.nack()
            refused.set()
        else:
            await message.ack()

    async with broker:
        await broker.start()
        for number in range(1, 4):
            await broker.publish(number, stream="orders")
        await asyncio.wait_for(refused.wait(), SECONDS)
    with stand.look() as look:
        rows: Any = look.xpending_range("orders", "workers", "-", "+", 10)
        seen += [(row["consumer"], row["times_delivered"]) for row in rows]

    claimer = broker_for(where)

    @claimer.subscriber(stream=claiming)
    async def take_over(number: int) -> None:
        seen.append(("two", number))
        done.set()

    async with claimer:
        await claimer.start()
        await asyncio.wait_for(done.wait(), SECONDS)
    with stand.look() as look:
        pending: Any = look.xpending("orders", "workers")
        seen.append(pending["pending"])
    return seen


@pytest.mark.peer
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_it_sees_what_it_sees_on_redis(stand: Stand, measure: Stand, *, tls: bool) -> None:
    here = await story(stand, stand.secured if tls else stand.where)
    assert here == await story(measure, measure.where)
    assert here == [("one", 1), ("one", 2), ("one", 3), ("one", 1), ("two", 3), 0]


@pytest.mark.slow
async def test_a_subscriber_goes_on_after_a_kill(stand: Stand) -> None:
    await asyncio.to_thread(stand.empty)
    got: asyncio.Queue[str] = asyncio.Queue()
    broker = broker_for(stand.where)
    orders = StreamSub("orders", group="workers", consumer="one", last_id="0")

    @broker.subscriber(stream=orders)
    async def handle(message: str) -> None:
        await got.put(message)

    async with broker:
        await broker.start()
        await broker.publish("before", stream="orders")
        assert await asyncio.wait_for(got.get(), SECONDS) == "before"
        await asyncio.to_thread(stand.restart)
        for _ in range(TRIES):
            try:
                await broker.publish("after", stream="orders")
                break
            except OSError:
                await asyncio.sleep(0.05)
        assert await asyncio.wait_for(got.get(), SECONDS) == "after"
