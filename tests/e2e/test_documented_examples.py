"""The examples that Redis and FastStream document, through the clients that people have, against our
server: XCLAIM, XAUTOCLAIM and XNACK through redis-py and redis-cli; FastStream 0.7.8, unmodified,
reading in a group, claiming, acknowledging by hand.

A killed FastStream consumer is a real process under SIGKILL. Its message grows old by the server's
clock, which the test holds.

Sources: the command pages of XCLAIM, XAUTOCLAIM and XNACK; FastStream's pages on Redis streams.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
import redis
from faststream import AckPolicy
from faststream.redis import RedisBroker, StreamSub
from faststream.redis.annotations import RedisStreamMessage

from headwater.testing.clock import ManualClock
from headwater.testing.server import (
    ServerProcess,
    ServerThread,
    server_process,
    server_thread,
)

pytestmark = pytest.mark.slow

HOUR_MS = 3_600_000
FIRST, SECOND = "1526569498055-0", "1526569498056-0"
MOST = 9223372036854775807

Mode = Literal["SILENT", "FAIL", "FATAL"]

WITHIN = 20
"""Seconds after which an expected message counts as lost."""


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with server_process("--appendfsync", "no") as running:
        yield running


@pytest.fixture(params=[2, 3], ids=["RESP2", "RESP3"])
def client(server: ServerProcess, request: pytest.FixtureRequest) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(
        server.url, protocol=request.param, decode_responses=True
    ) as connected:
        connected.flushall()
        yield connected


def rows(client: redis.Redis) -> list[tuple[object, object, int, object]]:
    """XPENDING mystream mygroup - + 10, idle times of owned entries as 0."""
    found = client.xpending_range("mystream", "mygroup", "-", "+", 10)
    return [
        (row["message_id"], row["consumer"], min(int(row["time_since_delivered"]), 0),
         row["times_delivered"])
        for row in found
    ]  # fmt: skip


def two_with_consumer1(client: redis.Redis) -> None:
    client.xadd("mystream", {"message": "apple"}, id=FIRST)
    client.xadd("mystream", {"message": "orange"}, id=SECOND)
    client.xgroup_create("mystream", "mygroup", "0")
    read = client.xreadgroup("mygroup", "consumer1", {"mystream": ">"})
    assert read


def test_xclaim_gives_an_entry_that_was_idle_for_an_hour_to_alice(client: redis.Redis) -> None:
    # Given an entry that consumer1 got and did not acknowledge
    client.xadd("mystream", {"message": "orange"}, id=FIRST)
    client.xgroup_create("mystream", "mygroup", "0")
    client.xreadgroup("mygroup", "consumer1", {"mystream": ">"})
    # Then Alice gets nothing while it is younger than an hour
    assert client.xclaim("mystream", "mygroup", "Alice", HOUR_MS, [FIRST]) == []
    # When it has been pending for more than an hour
    client.xclaim(
        "mystream", "mygroup", "consumer1", 0, [FIRST], idle=HOUR_MS + 1, retrycount=1, justid=True
    )
    # Then it is hers, and was delivered twice
    claimed = client.xclaim("mystream", "mygroup", "Alice", HOUR_MS, [FIRST])
    assert [(found[0], found[1]) for found in claimed] == [(FIRST, {"message": "orange"})]
    assert rows(client) == [(FIRST, "Alice", 0, 2)]
    # And nobody else gets it within the next hour
    assert client.xclaim("mystream", "mygroup", "Bob", HOUR_MS, [FIRST]) == []


def test_xautoclaim_gives_alice_what_was_idle_for_an_hour(client: redis.Redis) -> None:
    # Given an entry that was delivered an hour ago, and one just now
    old, new = "1609338752495-0", "1609338752496-0"
    client.xadd("mystream", {"field": "value"}, id=old)
    client.xadd("mystream", {"field": "other"}, id=new)
    client.xgroup_create("mystream", "mygroup", "0")
    client.xreadgroup("mygroup", "consumer1", {"mystream": ">"})
    client.xclaim("mystream", "mygroup", "consumer1", 0, [old], idle=HOUR_MS, justid=True)
    # When Alice asks for what is idle for an hour
    cursor, claimed, gone = client.xautoclaim(
        "mystream", "mygroup", "Alice", HOUR_MS, "0-0", count=25
    )
    # Then she has the one, and the scan is at its end
    assert cursor == "0-0"
    assert [(found[0], found[1]) for found in claimed] == [(old, {"field": "value"})]
    assert gone == []
    assert rows(client) == [(old, "Alice", 0, 2), (new, "consumer1", 0, 1)]


@pytest.mark.parametrize(
    ("mode", "count"),
    [("SILENT", 0), ("FAIL", 1), ("FATAL", MOST)],
    ids=["SILENT", "FAIL", "FATAL"],
)
def test_xnack_hands_back_two_entries_that_nobody_owns_then(
    client: redis.Redis, mode: Mode, count: int
) -> None:
    # Given two entries that consumer1 has got
    two_with_consumer1(client)
    # When it hands both back
    released = client.xnack("mystream", "mygroup", mode, FIRST, SECOND)
    # Then they are pending without an owner, with the count that the mode says
    assert released == 2
    assert rows(client) == [(FIRST, "", -1, count), (SECOND, "", -1, count)]
    # And whoever claims gets them at once, whatever the idle time asked for
    claimed = client.xclaim("mystream", "mygroup", "Alice", HOUR_MS, [FIRST], justid=True)
    assert claimed == [FIRST]


def test_a_released_entry_is_read_by_the_next_claiming_read(client: redis.Redis) -> None:
    two_with_consumer1(client)
    client.xnack("mystream", "mygroup", "FAIL", SECOND)
    found = client.xreadgroup("mygroup", "Alice", {"mystream": ">"}, claim_min_idle_time=HOUR_MS)
    text = repr(found)
    assert SECOND in text
    assert FIRST not in text


class Cli:
    """redis-cli, one command after the other, printing as on a terminal."""

    def __init__(self, path: str, server: ServerProcess) -> None:
        self.start = [path, "-h", "127.0.0.1", "-p", str(server.port), "--no-raw"]

    def __call__(self, line: str) -> str:
        done = subprocess.run(
            [*self.start, *line.split()], capture_output=True, text=True, check=True, timeout=30
        )
        return done.stdout.rstrip("\n")


@pytest.fixture
def cli(redis_cli: str, server: ServerProcess) -> Cli:
    made = Cli(redis_cli, server)
    assert made("FLUSHALL") == "OK"
    for line in (
        f"XADD mystream {FIRST} message apple",
        f"XADD mystream {SECOND} message orange",
        "XGROUP CREATE mystream mygroup 0",
        "XREADGROUP GROUP mygroup consumer1 STREAMS mystream >",
    ):
        assert "error" not in made(line)
    return made


@pytest.mark.peer
@pytest.mark.parametrize(
    ("mode", "count"),
    [("SILENT", 0), ("FAIL", 1), ("FATAL", MOST)],
    ids=["SILENT", "FAIL", "FATAL"],
)
def test_the_example_of_xnack_on_a_terminal(cli: Cli, mode: str, count: int) -> None:
    assert cli(f"XNACK mystream mygroup {mode} IDS 2 {FIRST} {SECOND}") == "(integer) 2"
    assert cli("XPENDING mystream mygroup - + 10").splitlines() == [
        f'1) 1) "{FIRST}"',
        '   2) ""',
        "   3) (integer) -1",
        f"   4) (integer) {count}",
        f'2) 1) "{SECOND}"',
        '   2) ""',
        "   3) (integer) -1",
        f"   4) (integer) {count}",
    ]


@pytest.mark.peer
def test_the_example_of_xclaim_on_a_terminal(cli: Cli) -> None:
    young = cli(f"XCLAIM mystream mygroup Alice {HOUR_MS} {SECOND}")
    assert young == "(empty array)"
    cli(f"XCLAIM mystream mygroup consumer1 0 {SECOND} IDLE {HOUR_MS + 1} RETRYCOUNT 1 JUSTID")
    assert cli(f"XCLAIM mystream mygroup Alice {HOUR_MS} {SECOND}").splitlines() == [
        f'1) 1) "{SECOND}"',
        '   2) 1) "message"',
        '      2) "orange"',
    ]


@pytest.mark.peer
def test_the_example_of_xautoclaim_on_a_terminal(cli: Cli) -> None:
    cli(f"XCLAIM mystream mygroup consumer1 0 {FIRST} IDLE {HOUR_MS + 1} JUSTID")
    assert cli(f"XAUTOCLAIM mystream mygroup Alice {HOUR_MS} 0-0 COUNT 25").splitlines() == [
        '1) "0-0"',
        f'2) 1) 1) "{FIRST}"',
        '      2) 1) "message"',
        '         2) "apple"',
        "3) (empty array)",
    ]


# --- FastStream -----------------------------------------------------------------------------------


@pytest.fixture
def clocked() -> Iterator[ServerThread]:
    with server_thread(clock=ManualClock()) as running:
        yield running


@pytest.fixture
def observer(clocked: ServerThread) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(clocked.url, decode_responses=True) as made:
        yield made


@asynccontextmanager
async def started(broker: RedisBroker) -> AsyncIterator[RedisBroker]:
    async with broker:
        await broker.start()
        yield broker


@contextmanager
def killed_consumer(clocked: ServerThread, stream: str) -> Iterator[None]:
    """Consumer ``dead`` of group ``workers`` takes a message of ``stream`` and is killed."""
    victim = Path(__file__).with_name("faststream_victim.py")
    process = subprocess.Popen(
        [sys.executable, str(victim), clocked.url, stream, "workers", "dead"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    try:
        with redis.Redis.from_url(clocked.url) as client:
            client.xadd(stream, {"__data__": '{"data": "order-123", "headers": {}}'})
        assert process.stdout.readline() == "took a message\n"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    yield


def pending(observer: redis.Redis, stream: str) -> list[tuple[str, int]]:
    """Consumer and delivery count of every pending entry of group ``workers``."""
    rows: Any = observer.xpending_range(stream, "workers", "-", "+", 10)
    return [(row["consumer"], row["times_delivered"]) for row in rows]


async def test_a_stream_subscriber_with_group_and_consumer_gets_each_message_once(
    clocked: ServerThread, observer: redis.Redis
) -> None:
    # Given a subscriber in a group
    broker = RedisBroker(clocked.url)
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
    assert pending(observer, "orders") == []


async def test_a_claiming_subscriber_takes_over_from_a_killed_one(
    clocked: ServerThread, observer: redis.Redis
) -> None:
    # Given a message that a killed consumer holds
    with killed_consumer(clocked, "orders"):
        assert pending(observer, "orders") == [("dead", 1)]

    # When it has been idle for longer than min_idle_time of another subscriber
    broker = RedisBroker(clocked.url)
    got: asyncio.Queue[str] = asyncio.Queue()
    claims = StreamSub("orders", group="workers", consumer="alive", min_idle_time=60_000)

    @broker.subscriber(stream=claims)
    async def handle(message: str) -> None:
        await got.put(message)

    clocked.advance(61)
    async with started(broker):
        received = await asyncio.wait_for(got.get(), WITHIN)

    # Then that one handles it
    assert received == "order-123"
    assert got.empty()
    assert pending(observer, "orders") == []


async def test_claim_min_idle_time_reads_new_and_claims_idle_in_one_command(
    clocked: ServerThread, observer: redis.Redis
) -> None:
    # Given a message that a killed consumer holds, grown old, and a new one
    with killed_consumer(clocked, "orders"):
        clocked.advance(61)
    broker = RedisBroker(clocked.url)
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
    assert pending(observer, "orders") == []


async def test_manual_acknowledgement_decides_what_stays_pending(
    clocked: ServerThread, observer: redis.Redis
) -> None:
    # Given a subscriber that acknowledges by hand, every other message
    broker = RedisBroker(clocked.url)
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
    assert pending(observer, "orders") == [("one", 1), ("one", 1)]
