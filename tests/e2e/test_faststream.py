"""FastStream 0.7.8, unmodified, against our server: reading in a group, claiming, acknowledging.

A killed consumer is a real process under SIGKILL. Idle time is the server's, whose clock the test
holds; so nothing here waits for a message to grow old.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from faststream import AckPolicy
from faststream.redis import RedisBroker, StreamSub
from faststream.redis.annotations import RedisStreamMessage

from headwater.testing.clock import ManualClock
from headwater.testing.server import ServerThread, server_thread

WITHIN = 20
"""Seconds after which an expected message counts as lost."""


@pytest.fixture
def server() -> Iterator[ServerThread]:
    with server_thread(clock=ManualClock()) as running:
        yield running


@pytest.fixture
def client(server: ServerThread) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server.url, decode_responses=True) as made:
        yield made


@asynccontextmanager
async def started(broker: RedisBroker) -> AsyncIterator[RedisBroker]:
    async with broker:
        await broker.start()
        yield broker


@contextmanager
def killed_consumer(server: ServerThread, stream: str) -> Iterator[None]:
    """Consumer ``dead`` of group ``workers`` takes a message of ``stream`` and is killed."""
    victim = Path(__file__).with_name("faststream_victim.py")
    process = subprocess.Popen(
        [sys.executable, str(victim), server.url, stream, "workers", "dead"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    try:
        with redis.Redis.from_url(server.url) as client:
            client.xadd(stream, {"__data__": '{"data": "order-123", "headers": {}}'})
        assert process.stdout.readline() == "took a message\n"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    yield


def pending(client: redis.Redis, stream: str) -> list[tuple[str, int]]:
    """Consumer and delivery count of every pending entry of group ``workers``."""
    rows: Any = client.xpending_range(stream, "workers", "-", "+", 10)
    return [(row["consumer"], row["times_delivered"]) for row in rows]


async def test_a_stream_subscriber_with_group_and_consumer_gets_each_message_once(
    server: ServerThread, client: redis.Redis
) -> None:
    # Given a subscriber in a group
    broker = RedisBroker(server.url)
    got: asyncio.Queue[str] = asyncio.Queue()

    @broker.subscriber(stream=StreamSub("orders", group="workers", consumer="one", last_id="0"))
    async def handle(message: str) -> None:
        await got.put(message)

    # When messages are published
    async with started(broker):
        for number in range(20):
            await broker.publish(f"order-{number}", stream="orders")
        received = [await asyncio.wait_for(got.get(), WITHIN) for _ in range(20)]

    # Then each came once, in order, and none is pending
    assert received == [f"order-{number}" for number in range(20)]
    assert got.empty()
    assert pending(client, "orders") == []


async def test_a_claiming_subscriber_takes_over_from_a_killed_one(
    server: ServerThread, client: redis.Redis
) -> None:
    # Given a message that a killed consumer holds
    with killed_consumer(server, "orders"):
        assert pending(client, "orders") == [("dead", 1)]

    # When it has been idle for longer than min_idle_time of another subscriber
    broker = RedisBroker(server.url)
    got: asyncio.Queue[str] = asyncio.Queue()
    claims = StreamSub("orders", group="workers", consumer="alive", min_idle_time=60_000)

    @broker.subscriber(stream=claims)
    async def handle(message: str) -> None:
        await got.put(message)

    server.advance(61)
    async with started(broker):
        received = await asyncio.wait_for(got.get(), WITHIN)

    # Then that one handles it
    assert received == "order-123"
    assert got.empty()
    assert pending(client, "orders") == []


async def test_claim_min_idle_time_reads_new_and_claims_idle_in_one_command(
    server: ServerThread, client: redis.Redis
) -> None:
    # Given a message that a killed consumer holds, grown old, and a new one
    with killed_consumer(server, "orders"):
        server.advance(61)
    broker = RedisBroker(server.url)
    got: asyncio.Queue[tuple[str, list[int]]] = asyncio.Queue()
    claims = StreamSub("orders", group="workers", consumer="alive", claim_min_idle_time=60_000)

    @broker.subscriber(stream=claims)
    async def handle(message: str, meta: RedisStreamMessage) -> None:
        await got.put((message, list(meta.raw_message["delivery_counts"])))

    # When the subscriber reads with XREADGROUP CLAIM
    async with started(broker):
        await broker.publish("order-124", stream="orders")
        received = [await asyncio.wait_for(got.get(), WITHIN) for _ in range(2)]

    # Then the old one comes first and says that it was delivered once before
    assert received == [("order-123", [1]), ("order-124", [0])]
    assert pending(client, "orders") == []


async def test_manual_acknowledgement_decides_what_stays_pending(
    server: ServerThread, client: redis.Redis
) -> None:
    # Given a subscriber that acknowledges by hand, every other message
    broker = RedisBroker(server.url)
    done: asyncio.Queue[int] = asyncio.Queue()
    manual = StreamSub("orders", group="workers", consumer="one", last_id="0")

    @broker.subscriber(stream=manual, ack_policy=AckPolicy.MANUAL)
    async def handle(number: int, message: RedisStreamMessage) -> None:
        if number % 2 == 0:
            await message.ack()
        await done.put(number)

    # When it has seen four
    async with started(broker):
        for number in range(4):
            await broker.publish(number, stream="orders")
        for _ in range(4):
            await asyncio.wait_for(done.get(), WITHIN)

    # Then two are pending under its name
    assert pending(client, "orders") == [("one", 1), ("one", 1)]
