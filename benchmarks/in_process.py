"""``python -m benchmarks.in_process SUBJECT SECONDS [SOCKET]``: measures XADD without a network. Each subject
runs in its own process, so that stores do not share an interpreter. Prints a line of JSON.

    node, node-100      Headwater's node: from request bytes to reply bytes, one or a hundred at a time
    burner, burner-100  burner-redis: calls of its client, one or a pipeline of a hundred
    client              redis-py with Headwater embedded (`headwater.connect`)
    socket              redis-py with a server at the unix socket SOCKET
    fake                fakeredis

Every subject checks that the stream contains as many entries as it counted.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

BATCH: Final = 100
WARM: Final = 100
"""Warm-up steps, which are not measured."""

FIELDS: Final = {"item": "tea-green-0001", "price": "1234"}
KEY: Final = "bench:0"


class Missing(Exception):
    """The library of a subject is not installed."""


def timed(step: Callable[[], object], seconds: float, *, each: int = 1) -> tuple[int, float]:
    """Call ``step``, which does ``each`` operations, for ``seconds``; return the number of operations and
    the seconds taken."""
    for _ in range(WARM):
        step()
    gc.collect()
    steps = 0
    begin = now = time.perf_counter()
    while now < begin + seconds:
        for _ in range(100):
            step()
        steps += 100
        now = time.perf_counter()
    return steps * each, now - begin


def node(seconds: float, *, each: int) -> tuple[int, float]:
    """Measure from request bytes to reply bytes, without a client library."""
    from benchmarks.load import request
    from headwater.common.clock import SystemClock
    from headwater.config.config import Config
    from headwater.server.turn.node import Node

    words = [word.encode() for field in FIELDS.items() for word in field]
    data = request(b"XADD", KEY.encode(), b"*", *words) * each
    made = Node(config=Config(port=0), clock=SystemClock())
    session = made.connect(kind="embedded", address="")
    operations, taken = timed(partial(made.exchange, session, data), seconds, each=each)
    held = made.exchange(session, request(b"XLEN", KEY.encode()))
    assert held == b":%d\r\n" % (operations + WARM * each), held
    return operations, taken


def burner(seconds: float, *, each: int) -> tuple[int, float]:
    """Measure burner-redis in an event loop, as its users call it."""
    try:
        from burner_redis import BurnerRedis
    except ImportError:
        raise Missing("burner-redis is not installed") from None

    async def measure() -> tuple[int, float]:
        store: Any = BurnerRedis()
        commands: list[Any] = [("xadd", (KEY, FIELDS), {})] * each
        steps = 0
        begin = now = time.perf_counter()
        while now < begin + seconds:
            for _ in range(100):
                if each == 1:
                    await store.xadd(KEY, FIELDS)
                else:
                    await store.execute_pipeline(commands)
            steps += 100
            now = time.perf_counter()
        assert await store.xlen(KEY) == steps * each
        return steps * each, now - begin

    return asyncio.run(measure())


def through_client(client: Any, seconds: float) -> tuple[int, float]:
    """Measure calls of ``client.xadd(…)``, one at a time."""
    operations, taken = timed(lambda: client.xadd(KEY, FIELDS), seconds)
    assert client.xlen(KEY) == operations + WARM
    client.delete(KEY)
    client.close()
    return operations, taken


def embedded_client() -> Any:
    import headwater

    return headwater.connect("headwater://memory")


def socket_client(path: str) -> Any:
    import redis

    return redis.Redis(unix_socket_path=path)


def fake_client() -> Any:
    try:
        import fakeredis
    except ImportError:
        raise Missing("fakeredis is not installed") from None
    return fakeredis.FakeRedis()


def measure(subject: str, seconds: float, socket_path: str) -> tuple[int, float]:
    """Measure one of the subjects."""
    match subject:
        case "node":
            return node(seconds, each=1)
        case "node-100":
            return node(seconds, each=BATCH)
        case "burner":
            return burner(seconds, each=1)
        case "burner-100":
            return burner(seconds, each=BATCH)
        case "client":
            return through_client(embedded_client(), seconds)
        case "socket":
            return through_client(socket_client(socket_path), seconds)
        case "fake":
            return through_client(fake_client(), seconds)
    raise ValueError(f"no such subject: {subject}")


def main() -> int:
    """Measure and print."""
    subject, seconds, *rest = sys.argv[1:]
    cpu = time.process_time()
    try:
        operations, taken = measure(subject, float(seconds), rest[0] if rest else "")
    except Missing as why:
        print(json.dumps({"missing": str(why)}))
        return 0
    spent = time.process_time() - cpu
    print(json.dumps({"operations": operations, "seconds": taken, "cpu_seconds": spent}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
