"""A primary and a replica under load, and a proxy between them that cuts, stalls and slows their link."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import ExitStack, suppress
from random import Random
from typing import Any, Final

import redis

from headwater.config.config import Config
from headwater.engine.check import broken_invariants
from headwater.server.opening import open_node
from headwater.testing.server import ServerProcess, server_process
from tests.property.state import Picture, picture
from tests.waiting import PATIENCE_SECONDS, eventually
from tests.worker.proxy import Proxy, proxy

LONGEST: Final = 300_000
"""Bytes after which a link is cut at the latest."""
SILENCE_S: Final = (0.1, 2.5)
"""Seconds for which a link is silent or slow: shorter and longer than ``repl-timeout``."""
SEEN_SECONDS: Final = 1.5
RATE: Final = 100_000
"""Bytes per second of a slow link."""


class Load(threading.Thread):
    """Writes to the primary until it is stopped."""

    def __init__(self, url: str, random: Random) -> None:
        super().__init__(name="load")
        self.done = threading.Event()
        self._client = redis.Redis.from_url(url)
        self._random = random

    def run(self) -> None:
        with suppress(redis.ResponseError):
            self._client.xgroup_create("s", "g", mkstream=True)
        while not self.done.wait(0.002):
            with self._client.pipeline(transaction=self._random.random() < 0.3) as pipe:
                for _ in range(self._random.randrange(1, 30)):
                    self._command(pipe)
                pipe.execute(raise_on_error=False)

    def _command(self, pipe: Any) -> None:
        random, key = self._random, f"k{self._random.randrange(20)}"
        kind = random.randrange(10)
        if kind < 4:
            pipe.xadd("s", {"n": random.randbytes(random.randrange(200))})
        elif kind == 4:
            pipe.xreadgroup(
                "g", f"c{random.randrange(3)}", {"s": ">"}, count=random.randrange(1, 20)
            )
        elif kind == 5:
            pipe.execute_command("XAUTOCLAIM", "s", "g", "c0", 0, "0", "COUNT", 10)
        elif kind == 6:
            pipe.xtrim("s", maxlen=2_000)
        elif kind == 7:
            pipe.set(
                key, random.randbytes(random.randrange(500)), px=random.choice([None, 50, 10**6])
            )
        elif kind == 8:
            pipe.rpush(f"l{key}", random.randrange(100))
        else:
            pipe.unlink(f"l{key}")


async def trial(seed: int, count: int) -> None:
    """Cause ``count`` faults. Raises `AssertionError` if the replica does not go on, or if its state differs."""
    random = Random(seed)
    with ExitStack() as stack:
        flags = (
            "--repl-timeout",
            "1",
            "--appendfsync",
            random.choice(["always", "everysec", "no"]),
        )
        primary = stack.enter_context(server_process(*flags))
        replica = stack.enter_context(server_process(*flags))
        async with proxy(primary.url) as link:
            port = link.url.rpartition(":")[2]
            load = Load(primary.url, random)
            stack.callback(load.done.set)
            load.start()
            await asyncio.to_thread(follow, replica, port)
            replica.flags += ["--replicaof", f"127.0.0.1 {port}"]  # as CONFIG REWRITE keeps it
            for _ in range(count):
                await fault(random, link, replica)
                await asyncio.to_thread(eventually, lambda: status(replica) == "up")
            load.done.set()
            await asyncio.to_thread(load.join)
            await asyncio.to_thread(rest, primary, replica)
            copies = replica.log().count("receiving a copy")
            assert copies == 1, f"{copies} copies: only the first is needed"
        primary.stop()
        replica.stop()
        assert state(primary) == state(replica)


async def fault(random: Random, link: Proxy, replica: ServerProcess) -> None:
    """Cause a random fault, and end it."""
    kind = random.randrange(8)
    if kind < 4:
        link.left = random.randrange(LONGEST)
        link.was_cut.clear()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await link.was_cut.wait()
    elif kind == 4:
        link.fall_silent()
        await asyncio.sleep(random.uniform(*SILENCE_S))
        link.resume()
    elif kind == 5:
        link.fall_silent()
        await asyncio.sleep(random.uniform(*SILENCE_S))
        link.forget()
    elif kind == 6:
        link.rate = RATE
        await asyncio.sleep(random.uniform(*SILENCE_S))
        link.rate = None
    else:
        replica.kill()
        await asyncio.to_thread(replica.start)


def follow(replica: ServerProcess, port: str) -> None:
    """Let the replica follow the primary behind the proxy, until the link is up."""
    with redis.Redis.from_url(replica.url) as client:
        client.execute_command("REPLICAOF", "127.0.0.1", port)
    eventually(lambda: status(replica) == "up")


def rest(primary: ServerProcess, replica: ServerProcess) -> None:
    """Let the primary change nothing any more, and wait until the replica has everything."""
    with redis.Redis.from_url(primary.url) as client:
        client.client_pause(600_000, all=False)
    end = -1
    while end != (end := info(primary)["master_repl_offset"]):
        time.sleep(SEEN_SECONDS)  # times of consumers are recorded each second
    eventually(lambda: info(replica)["slave_repl_offset"] == end)


def info(server: ServerProcess) -> dict[str, Any]:
    """What INFO says about replication."""
    with redis.Redis.from_url(server.url) as client:
        found: dict[str, Any] = client.info("replication")
        return found


def status(replica: ServerProcess) -> Any:
    """The status of the replica's link."""
    return info(replica)["master_link_status"]


def state(server: ServerProcess) -> Picture:
    """The state on disk of a server that was stopped. Raises `AssertionError` if an invariant is broken."""
    node = open_node(Config(dir=str(server.data)))
    try:
        assert list(broken_invariants(node.keyspace)) == []
        return picture(node.keyspace)
    finally:
        node.close()
