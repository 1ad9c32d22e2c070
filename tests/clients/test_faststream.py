"""FastStream 0.7: subscribers in groups, claims, manual acknowledgement, TLS, and a server that is killed.
The results are the same as on a real Redis."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from faststream import AckPolicy
from faststream.redis import RedisBroker, StreamSub
from faststream.redis.annotations import RedisStreamMessage
from faststream.security import BaseSecurity

from tests.clients.script import TRIES
from tests.clients.servers import ServerAddress, SharedServer

SECONDS = 20


def broker_for(address: ServerAddress) -> RedisBroker:
    if address.tls is None:
        return RedisBroker(address.url)
    return RedisBroker(address.url, security=BaseSecurity(ssl_context=address.tls.context()))


async def transcript(server: SharedServer, address: ServerAddress) -> list[Any]:
    """Publish, read in a group, reject, claim, acknowledge; return what handlers saw and what is pending."""
    await asyncio.to_thread(server.empty)
    seen: list[Any] = []
    refused, done = asyncio.Event(), asyncio.Event()
    broker = broker_for(address)
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
    with server.observer() as observer:
        rows: Any = observer.xpending_range("orders", "workers", "-", "+", 10)
        seen += [(row["consumer"], row["times_delivered"]) for row in rows]

    claimer = broker_for(address)

    @claimer.subscriber(stream=claiming)
    async def take_over(number: int) -> None:
        seen.append(("two", number))
        done.set()

    async with claimer:
        await claimer.start()
        await asyncio.wait_for(done.wait(), SECONDS)
    with server.observer() as observer:
        pending: Any = observer.xpending("orders", "workers")
        seen.append(pending["pending"])
    return seen


@pytest.mark.peer
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_it_sees_the_same_as_on_redis(
    server: SharedServer, reference: SharedServer, *, tls: bool
) -> None:
    here = await transcript(server, server.tls_address if tls else server.address)
    assert here == await transcript(reference, reference.address)
    assert here == [("one", 1), ("one", 2), ("one", 3), ("one", 1), ("two", 3), 0]


@pytest.mark.slow
async def test_a_subscriber_continues_after_the_server_is_killed(server: SharedServer) -> None:
    await asyncio.to_thread(server.empty)
    got: asyncio.Queue[str] = asyncio.Queue()
    broker = broker_for(server.address)
    orders = StreamSub("orders", group="workers", consumer="one", last_id="0")

    @broker.subscriber(stream=orders)
    async def handle(message: str) -> None:
        await got.put(message)

    async with broker:
        await broker.start()
        await broker.publish("before", stream="orders")
        assert await asyncio.wait_for(got.get(), SECONDS) == "before"
        await asyncio.to_thread(server.restart)
        for _ in range(TRIES):
            try:
                await broker.publish("after", stream="orders")
                break
            except OSError:
                await asyncio.sleep(0.05)
        assert await asyncio.wait_for(got.get(), SECONDS) == "after"
