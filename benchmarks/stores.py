"""The servers that are measured: a real Redis 8.2.3 and Headwater, each pinned to one core.

Both keep nothing on disk unless a workload says so, so that what is compared is the commands.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from headwater.testing.server import server_process
from tests import peers

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Store:
    """A running server under its name in the tables."""

    name: str
    host: str
    port: int
    pid: int

    def cpu_seconds(self) -> float:
        """Processor time that the server's process has used so far, all threads."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS


def cores() -> tuple[int, int]:
    """The cores for server and client; the same one twice where there is only one."""
    usable = sorted(os.sched_getaffinity(0))
    return usable[0], usable[-1]


@contextmanager
def measured_stores(fsync: str | None) -> Iterator[list[Store]]:
    """Redis first, Headwater second. ``fsync`` None runs without journals, else is appendfsync."""
    server_core, _ = cores()
    with ExitStack() as stack:
        durable = ["--appendonly", "no"]
        if fsync is not None:
            durable = ["--appendonly", "yes", "--appendfsync", fsync]
        redis = stack.enter_context(peers.running("redis-8.2", *durable))
        os.sched_setaffinity(redis.pid, {server_core})
        stores = [Store("redis 8.2.3", redis.host, redis.port, redis.pid)]
        stores.append(stack.enter_context(_headwater(durable, server_core)))
        yield stores


@contextmanager
def _headwater(durable: list[str], core: int) -> Iterator[Store]:
    with server_process(*durable) as server:
        os.sched_setaffinity(server.pid, {core})
        yield Store("headwater", "127.0.0.1", server.port, server.pid)
