"""Clients that read large replies slowly take little memory, and each gets its whole reply."""

from __future__ import annotations

import hashlib
import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import redis

from headwater.testing.server import ServerProcess, server_process
from tests.conformance.wire import SECONDS, connected, encode

CLIENTS = 20
ENTRIES = 10_000
MOST_BYTES_EACH = 4 * 1024 * 1024
"""A released piece, the next one, and the capacity of their buffers."""

HOT = "1gb"
COLD = "1mb"


@contextmanager
def filled(hot_bytes: str) -> Iterator[ServerProcess]:
    """Run a server with a stream of 40 MB."""
    flags = ("--stream-hot-bytes", hot_bytes, "--stream-cold-cache-bytes", "1mb")
    with server_process(*flags) as server, connected(server.port) as wire:
        for begin in range(0, ENTRIES, 500):
            batch = [
                encode("XADD", "s", f"{number + 1}-0", "text", f"{number:08}" * 500)
                for number in range(begin, begin + 500)
            ]
            wire.socket.sendall(b"".join(batch))
            for _ in batch:
                assert not wire.reply().startswith(b"-")
        yield server


def rss(server: ServerProcess) -> int:
    """Return the bytes of a server's resident memory."""
    status = Path(f"/proc/{server.pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


def digest(client: socket.socket, size: int) -> str:
    """Return the digest of the next ``size`` bytes that a client receives."""
    found = hashlib.sha256()
    while size:
        data = client.recv(min(size, 1 << 20))
        assert data, "the connection has ended in the middle of the reply"
        found.update(data)
        size -= len(data)
    return found.hexdigest()


@pytest.mark.slow
@pytest.mark.parametrize("hot_bytes", [HOT, COLD])
def test_twenty_clients_that_do_not_read_take_a_few_megabytes_each(hot_bytes: str) -> None:
    with filled(hot_bytes) as server, ExitStack() as stack:
        # Given the reply to one client
        request = encode("XRANGE", "s", "-", "+")
        with connected(server.port) as wire:
            wire.socket.sendall(request)
            reply = wire.reply()
        size, expected = len(reply), hashlib.sha256(reply).hexdigest()
        assert size > 40_000_000
        before = rss(server)
        # When twenty clients ask for it and read nothing
        waiting = []
        for _ in range(CLIENTS):
            address = ("127.0.0.1", server.port)
            client = stack.enter_context(socket.create_connection(address, timeout=SECONDS))
            client.sendall(request + encode("PING"))
            waiting.append(client)
        for client in waiting:
            assert select.select([client], [], [], SECONDS)[0], "a client gets nothing"
        with redis.Redis.from_url(server.url) as other:
            # Then others are served, and the memory is a fraction of the replies
            assert other.ping()
            assert rss(server) - before < CLIENTS * MOST_BYTES_EACH
            # And the replies are as before, though the stream is deleted meanwhile
            assert other.delete("s") == 1
        for client in waiting:
            assert digest(client, size) == expected
            assert client.recv(7) == b"+PONG\r\n"
