"""A server whose file descriptors are limited serves every client that it admits, and reads all of its files."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis

from headwater.journal.disk.reads import OPEN_FILES
from headwater.journal.segments.segments import segment_numbers
from headwater.testing.clock import ManualClock
from headwater.testing.server import ServerProcess
from tests.crash.node_store import SmallFiles, tiny_segments
from tests.unit.cold import store_all

pytestmark = pytest.mark.slow

LIMIT = 256
"""How many files the server may have open."""


class LimitedServer(ServerProcess):
    """A server with at most `LIMIT` open files."""

    def command(self) -> list[str]:
        return ["sh", "-c", f'ulimit -n {LIMIT} && exec "$@"', "sh", *super().command()]


def store_in_many_segments(directory: Path) -> int:
    """Write a store whose entries are in more segments than stay open for reading. Return how many entries."""
    store = SmallFiles(clock=ManualClock(), cold=True)
    client, count = store.client(), 0
    assert store.files is not None
    while len(segment_numbers(store.files)) <= OPEN_FILES + 10:
        for _ in range(100):
            count += 1
            client("XADD", "s", f"{count}-1", "field", f"value {count}")
        store_all(store)
    store.node.close()
    assert store.node.journal is not None
    store.node.journal.close()
    directory.mkdir()
    for name in store.files.names():
        (directory / name).write_bytes(store.files.content(name).data)
    return count


def test_a_server_with_all_clients_that_it_admits_reads_every_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a server with many segments, and as many clients as it admits
    tiny_segments(monkeypatch)
    count = store_in_many_segments(tmp_path / "data")
    server = LimitedServer(directory=tmp_path)
    server.start()
    try:
        with redis.Redis.from_url(server.url) as client, ExitStack() as stack:
            most = int(client.config_get("maxclients")["maxclients"])
            for _ in range(most - 1):
                other = socket.create_connection(("127.0.0.1", server.port))
                stack.enter_context(other)
                other.settimeout(30)
                other.sendall(b"PING\r\n")
                assert other.recv(100) == b"+PONG\r\n"
            assert client.info("clients")["connected_clients"] == most
            # When one of them reads all entries, then it gets them
            assert len(client.xrange("s")) == count
            # And the server can still write, rotate its journal and make images
            client.xadd("s", {"field": "later"})
            client.save()
            assert client.info("persistence")["aof_last_bgrewrite_status"] == "ok"
    finally:
        server.stop()
