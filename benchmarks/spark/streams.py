"""A thousand streams in one query: polling, planning, and reading them, compared with one stream.

    poll    latestOffset of an idle query of 1,000 streams, on Headwater and on Redis 8.2; and for comparison a
            PING by redis-py: after a pause of 100 ms some machines run anything several times slower
    plan    latestOffset and partitions after each stream got an entry
    long    latestOffset and partitions of one stream with 10,000,000 entries, in 40 ranges
    batch   5,000 entries of 200 streams to a count, compared with the same number in one stream

The reader is called as Spark calls it, in this process, for the first two.
"""

from __future__ import annotations

import json
import socket
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import hiredis
import redis

from headwater.spark.core.ddl import parse_schema
from headwater.spark.core.idle import LONGEST_PAUSE_S
from headwater.spark.log_mode.offsets import Offset
from headwater.spark.log_mode.streaming import StreamReader
from headwater.spark.source import HeadwaterSource
from headwater.testing.server import server_process
from tests import peers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STREAMS: Final = 1000
LONG: Final = 10_000_000
PARTS: Final = 40
POLLS: Final = 30
ENTRIES: Final = 5000
FEW_STREAMS: Final = 200
ROUNDS: Final = 5
BODY: Final[Any] = {"item": "tea-green-0001", "text": "x" * 100}
PEER: Final = "redis-8.2"

REQUIRED: Final = {
    "poll_ms": 20.0,
    "poll_cpu_ms": 2.0,
    "plan_ms": 200.0,
    "long_ms": 200.0,
    "offset_kb": 110.0,
    "batch": 2.0,
}
"""A poll every 100 ms with 2 ms of processor time takes 2 % of a core. The offset: docs/adr/0054."""


@contextmanager
def opened_store(name: str) -> Iterator[tuple[str, redis.Redis]]:
    """Yield the url of a new server, and a client."""
    if name == "headwater":
        with (
            server_process("--appendfsync", "no") as server,
            redis.Redis.from_url(server.url) as client,
        ):
            yield server.url, client
    else:
        with peers.running(name) as peer, redis.Redis.from_url(peer.url) as client:
            yield peer.url, client


def _fill(client: redis.Redis, streams: int, entries: int) -> None:
    pipeline = client.pipeline(transaction=False)
    for number in range(entries):
        pipeline.xadd(f"orders:{number % streams}", BODY)
    pipeline.execute()


class _Polled:
    """A query of all streams, as Spark calls it."""

    def __init__(self, url: str) -> None:
        source = HeadwaterSource({"url": url, "stream": "orders:*"})
        self.reader: StreamReader = source.streamReader(parse_schema("stream string, id string"))
        self.limit = self.reader.getDefaultReadLimit()
        self.at: Offset = self.reader.initialOffset()

    def next(self) -> Offset:
        """Return where the next batch ends, and begin after it."""
        self.at = json.loads(json.dumps(self.reader.latestOffset(self.at, self.limit)))
        return self.at


def _polls(url: str, client: redis.Redis) -> dict[str, float]:
    _fill(client, STREAMS, STREAMS)
    query = _Polled(url)
    query.next()
    times, spent, pings = [], [], []
    for _ in range(POLLS):
        time.sleep(LONGEST_PAUSE_S)  # the reader would wait
        began, cpu = time.perf_counter(), time.process_time()
        query.reader.latestOffset(query.at, query.limit)
        times.append(time.perf_counter() - began)
        spent.append(time.process_time() - cpu)
        time.sleep(LONGEST_PAUSE_S)
        cpu = time.process_time()
        client.ping()
        pings.append(time.process_time() - cpu)
    plans = []
    for _ in range(ROUNDS):
        _fill(client, STREAMS, STREAMS)
        time.sleep(LONGEST_PAUSE_S)
        began = time.perf_counter()
        query.reader.partitions({}, query.next())
        plans.append(time.perf_counter() - began)
    query.reader.stop()
    return {
        "poll_ms": statistics.median(times) * 1000,
        "poll_cpu_ms": statistics.median(spent) * 1000,
        "ping_cpu_ms": statistics.median(pings) * 1000,
        "plan_ms": statistics.median(plans) * 1000,
        "offset_kb": len(json.dumps(query.at)) / 1000,
    }


def _long(url: str, client: redis.Redis) -> float:
    """Return the milliseconds of planning a batch of `LONG` entries."""
    client.flushall()
    command = client.connection_pool.connection_kwargs  # raw: redis-py would take minutes
    packet = b"*5\r\n$4\r\nXADD\r\n$4\r\nlong\r\n$1\r\n*\r\n$1\r\nn\r\n$1\r\n1\r\n" * 10_000
    with socket.create_connection((command["host"], command["port"])) as wire:
        for _ in range(LONG // 10_000):
            wire.sendall(packet)
            replies, found = hiredis.Reader(), 0
            while found < 10_000:
                replies.feed(wire.recv(1 << 20))
                while replies.gets(False) is not False:
                    found += 1
    assert client.xlen("long") == LONG
    source = HeadwaterSource({"url": url, "stream": "long", "minPartitions": str(PARTS)})
    reader = source.streamReader(parse_schema("stream string, id string"))
    start = reader.initialOffset()
    began = time.perf_counter()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    parts = reader.partitions(start, end)
    taken = time.perf_counter() - began
    reader.stop()
    assert len(parts) >= PARTS // 2, len(parts)
    return taken * 1000


def _batches(spark: SparkSession, rounds: int) -> dict[str, float]:
    """Return the times of counting the entries of many streams and of one."""
    with opened_store("headwater") as (url, client):
        _fill(client, FEW_STREAMS, ENTRIES)
        pipeline = client.pipeline(transaction=False)
        for _ in range(ENTRIES):
            pipeline.xadd("one", BODY)
        pipeline.execute()

        def seconds(stream: str) -> float:
            frame = spark.read.format("headwater").options(url=url, stream=stream).load()
            began = time.perf_counter()
            assert frame.count() == ENTRIES
            return time.perf_counter() - began

        seconds("orders:*"), seconds("one")
        found = [(seconds("orders:*"), seconds("one")) for _ in range(rounds)]
    many, one = (statistics.median(times) for times in zip(*found, strict=True))
    return {"many_s": many, "one_s": one, "batch": many / one}


def measure(spark: SparkSession, rounds: int = ROUNDS) -> dict[str, Any]:
    """Return the figures of each store, and of reading."""
    found: dict[str, Any] = {}
    for name in ("headwater", PEER):
        with opened_store(name) as (url, client):
            found[name] = _polls(url, client) | {"long_ms": _long(url, client)}
    return found | {"reading": _batches(spark, rounds)}


def show(found: dict[str, Any]) -> None:
    """Print a table."""
    print(f"\n{STREAMS} streams in one query{'':<22}{'headwater':>12}{PEER:>12}")
    for name, title in (
        ("poll_ms", "idle poll, ms"),
        ("poll_cpu_ms", "idle poll, ms of processor time"),
        ("ping_cpu_ms", "PING instead, ms of processor time"),
        ("plan_ms", "planning a batch, ms"),
        ("long_ms", f"planning {LONG // 1_000_000} million entries, ms"),
        ("offset_kb", "offset, KB"),
    ):
        print(f"{title:<44}{found['headwater'][name]:>12.1f}{found[PEER][name]:>12.1f}")
    reading = found["reading"]
    print(
        f"{ENTRIES} entries of {FEW_STREAMS} streams, of one stream: {reading['many_s']:.2f} s, "
        f"{reading['one_s']:.2f} s, ratio {reading['batch']:.2f}"
    )


def missed(found: dict[str, Any]) -> list[str]:
    """Return a sentence for each required value that was missed."""
    said = [
        f"{name} of {store} is {found[store][name]:.1f}, required is {REQUIRED[name]:g}"
        for store in ("headwater", PEER)
        for name in ("poll_ms", "poll_cpu_ms", "plan_ms", "offset_kb")
        if found[store][name] > REQUIRED[name]
    ]
    # Redis has no counts of blocks: Lua walks through the entries there.
    if found["headwater"]["long_ms"] > REQUIRED["long_ms"]:
        said.append(
            f"planning {LONG} entries takes {found['headwater']['long_ms']:.0f} ms, required is "
            f"{REQUIRED['long_ms']:g}"
        )
    ratio = found["reading"]["batch"]
    if ratio > REQUIRED["batch"]:
        said.append(
            f"many streams take {ratio:.2f} times as long as one, required is {REQUIRED['batch']:g}"
        )
    return said
