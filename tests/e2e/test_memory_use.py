"""The memory that INFO shows is that of the process, within a tenth above 256 MB."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice, repeat

import pytest
import redis

from headwater.server.services.observability.info import running
from headwater.testing.server import server_process
from tests.conformance.wire import connected, encode

Words = tuple[str, ...]

LEAST_BYTES = 256 * 10**6


def keys() -> Iterator[Words]:
    for number in range(1_100_000):
        yield "SET", f"key:{number}", f"value of the key {number}"


def hashes() -> Iterator[Words]:
    for number in range(200_000):
        yield "HSET", f"h:{number}", *(f"{part}-{number}" for part in range(20))


def streams() -> Iterator[Words]:
    for number in range(60_000):
        yield "XGROUP", "CREATE", f"stream:{number}", "g", "$", "MKSTREAM"
        yield "XADD", f"stream:{number}", "*", "f", f"v{number}"
        yield "XREADGROUP", "GROUP", "g", "c", "STREAMS", f"stream:{number}", ">"


def entries() -> Iterator[Words]:
    yield "XGROUP", "CREATE", "s", "g", "0", "MKSTREAM"
    for number in range(1_000_000):
        yield "XADD", "s", "*", "sensor", f"s{number % 1000}", "text", f"{number:090}"
    yield from repeat(("XREADGROUP", "GROUP", "g", "c", "COUNT", "1000", "STREAMS", "s", ">"), 1000)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(running() != "compiled", reason="the account is that of the compiled package")
@pytest.mark.parametrize(
    "content",
    [streams, *(pytest.param(one, marks=pytest.mark.slice) for one in (keys, hashes, entries))],
)
def test_used_memory_is_that_of_the_process(content: Callable[[], Iterator[Words]]) -> None:
    # Given a server with much content of one kind
    flags = ("--appendonly", "no", "--save", "", "--stream-hot-bytes", "4gb")
    with server_process(*flags) as server:
        port = int(server.url.rpartition(":")[2])
        with connected(port) as wire:
            requests = content()
            while batch := list(islice(requests, 500)):
                wire.socket.sendall(b"".join(encode(*words) for words in batch))
                for _ in batch:
                    assert not wire.reply().startswith(b"-")
        # When INFO is asked for its memory
        with redis.Redis.from_url(server.url) as client:
            info = client.info("memory")
    # Then its account is within a tenth of the process's memory
    assert info["used_memory_rss"] > LEAST_BYTES
    assert info["used_memory"] == pytest.approx(info["used_memory_rss"], rel=0.1)
