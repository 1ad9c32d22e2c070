"""The examples in the documentation of Redis and FastStream, run against Headwater's server: XCLAIM,
XAUTOCLAIM and XNACK with redis-py and redis-cli; FastStream 0.7.8, unmodified, reading in a group,
claiming, acknowledging manually.

A killed FastStream consumer is a real process killed with SIGKILL. Its message ages by the server's clock,
which the test controls.

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
    """Return the rows of XPENDING mystream mygroup - + 10, with 0 for the idle times of owned entries."""
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


def test_xclaim_gives_alice_an_entry_that_was_idle_for_an_hour(client: redis.Redis) -> None:
    # Given an entry that was delivered to consumer1 and not acknowledged
    client.xadd("mystream", {"message": "orange"}, id=FIRST)
    client.xgroup_create("mystream", "mygroup", "0")
    client.xreadgroup("mygroup", "consumer1", {"mystream": ">"})
    # Then Alice gets nothing while its idle time is below an hour
    assert client.xclaim("mystream", "mygroup", "Alice", HOUR_MS, [FIRST]) == []
    # When its idle time is above an hour
    client.xclaim(
        "mystream", "mygroup", "consumer1", 0, [FIRST], idle=HOUR_MS + 1, retrycount=1, justid=True
    )
    # Then she owns it, with a delivery count of 2
    claimed = client.xclaim("mystream", "mygroup", "Alice", HOUR_MS, [FIRST])
    assert [(found[0], found[1]) for found in claimed] == [(FIRST, {"message": "orange"})]
    assert rows(client) == [(FIRST, "Alice", 0, 2)]
    # And no other consumer gets it within the next hour
    assert client.xclaim("mystream", "mygroup", "Bob", HOUR_MS, [FIRST]) == []


def test_xautoclaim_gives_alice_the_entries_that_were_idle_for_an_hour(client: redis.Redis) -> None:
    # Given an entry that was delivered an hour ago, and one that was delivered just now
    old, new = "1609338752495-0", "1609338752496-0"
    client.xadd("mystream", {"field": "value"}, id=old)
    client.xadd("mystream", {"field": "other"}, id=new)
    client.xgroup_create("mystream", "mygroup", "0")
    client.xreadgroup("mygroup", "consumer1", {"mystream": ">"})
    client.xclaim("mystream", "mygroup", "consumer1", 0, [old], idle=HOUR_MS, justid=True)
    # When Alice claims entries that were idle for an hour
    cursor, claimed, gone = client.xautoclaim(
        "mystream", "mygroup", "Alice", HOUR_MS, "0-0", count=25
    )
    # Then she gets the first entry, and the scan is complete
    assert cursor == "0-0"
    assert [(found[0], found[1]) for found in claimed] == [(old, {"field": "value"})]
    assert gone == []
    assert rows(client) == [(old, "Alice", 0, 2), (new, "consumer1", 0, 1)]


@pytest.mark.parametrize(
    ("mode", "count"),
    [("SILENT", 0), ("FAIL", 1), ("FATAL", MOST)],
    ids=["SILENT", "FAIL", "FATAL"],
)
def test_xnack_releases_two_entries_which_then_have_no_owner(
    client: redis.Redis, mode: Mode, count: int
) -> None:
    # Given two entries that were delivered to consumer1
    two_with_consumer1(client)
    # When it releases both
    released = client.xnack("mystream", "mygroup", mode, FIRST, SECOND)
    # Then they are pending without an owner, with the delivery count of the mode
    assert released == 2
    assert rows(client) == [(FIRST, "", -1, count), (SECOND, "", -1, count)]
    # And another consumer can claim them at once, with any minimum idle time
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
    """redis-cli, one command per process, with output as on a terminal."""

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
    """Kill consumer ``dead`` of group ``workers`` after it has received a message of ``stream``."""
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
    """Return the consumer and the delivery count of every pending entry of group ``workers``."""
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

    # Then each is received once, in order, and none is pending
    assert received == [f"order-{number}" for number in range(20)]
    assert got.empty()
    assert pending(observer, "orders") == []


async def test_a_claiming_subscriber_gets_the_message_of_a_killed_one(
    clocked: ServerThread, observer: redis.Redis
) -> None:
    # Given a message that a killed consumer owns
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

    # Then that subscriber handles it
    assert received == "order-123"
    assert got.empty()
    assert pending(observer, "orders") == []


async def test_claim_min_idle_time_reads_new_and_claims_idle_in_one_command(
    clocked: ServerThread, observer: redis.Redis
) -> None:
    # Given an idle message that a killed consumer owns, and a new one
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

    # Then the idle message comes first, with an earlier delivery count of 1
    assert received == [("order-123", [1]), ("order-124", [0])]
    assert pending(observer, "orders") == []


async def test_messages_without_a_manual_acknowledgement_stay_pending(
    clocked: ServerThread, observer: redis.Redis
) -> None:
    # Given a subscriber that manually acknowledges every other message
    broker = RedisBroker(clocked.url)
    done: asyncio.Queue[int] = asyncio.Queue()
    manual = StreamSub("orders", group="workers", consumer="one", last_id="0")

    @broker.subscriber(stream=manual, ack_policy=AckPolicy.MANUAL)
    async def handle(number: int, message: RedisStreamMessage) -> None:
        if number % 2 == 0:
            await message.ack()
        await done.put(number)

    # When it has handled four
    async with started(broker):
        for number in range(4):
            await broker.publish(number, stream="orders")
        for _ in range(4):
            await asyncio.wait_for(done.get(), WITHIN)

    # Then it owns two pending entries
    assert pending(observer, "orders") == [("one", 1), ("one", 1)]
