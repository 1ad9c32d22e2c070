"""Offloaded jobs over TCP, on both event loops: the order of replies, and clients that end their
output."""

from __future__ import annotations

import pytest

from headwater.testing.server import server_process
from tests.conformance.wire import Start, connected, encode, exchange

ENTRIES = 5000
FILL = b"".join(
    encode("XADD", "s", f"{number}-0", "field", f"value {number}")
    for number in range(1, ENTRIES + 1)
)


def payload_of(reply: bytes) -> bytes:
    head, _, rest = reply.partition(b"\r\n")
    assert head == b"$%d" % (len(rest) - 2)
    return rest[:-2]


def test_a_client_that_has_ended_its_output_gets_the_reply_of_its_job(start: Start) -> None:
    # Given a large stream
    server = start()
    exchange(server.port, FILL)

    # When clients request a dump and more after it, and end their output
    dumped = exchange(server.port, encode("DUMP", "s"))
    followed = exchange(server.port, encode("PING") + encode("DUMP", "s") + encode("PING"))

    # Then they get all replies, in order, before the connection ends
    payload = payload_of(dumped)
    assert followed == b"+PONG\r\n" + dumped + b"+PONG\r\n"
    request = encode("RESTORE", "t", "0", payload)
    assert exchange(server.port, request + encode("XLEN", "t")) == b"+OK\r\n:%d\r\n" % ENTRIES
    assert exchange(server.port, request) == b"-BUSYKEY Target key name already exists.\r\n"


def test_a_client_that_disconnects_leaves_no_job_behind(start: Start) -> None:
    # Given a large stream, and clients that request a dump and reset their connections
    server = start()
    exchange(server.port, FILL)
    for _ in range(20):
        with connected(server.port) as leaving:
            leaving.socket.sendall(encode("DUMP", "s"))

    # Then the server serves others, and has forgotten the former
    with connected(server.port) as wire:
        wire.ask("DUMP", "s")
        assert b"connected_clients:1\r\n" in wire.ask("INFO", "clients")


@pytest.mark.slow
def test_a_shutdown_during_a_restore_leaves_the_whole_key_or_nothing() -> None:
    with server_process() as server:
        # Given the payload of a large stream
        exchange(server.port, FILL)
        request = encode(
            "RESTORE", "t", "0", payload_of(exchange(server.port, encode("DUMP", "s")))
        )
        for _ in range(3):
            with connected(server.port) as restoring, connected(server.port) as admin:
                admin.ask("DEL", "t")

                # When the server is stopped while it restores
                restoring.socket.sendall(request)
                admin.socket.sendall(encode("SHUTDOWN", "NOSAVE"))
                restoring.reply()
            assert server.wait(within=30) == 0
            server.start()

            # Then the new key is complete or missing, and the original stream exists
            with connected(server.port) as wire:
                assert wire.ask("XLEN", "t") in (b":0\r\n", b":%d\r\n" % ENTRIES)
                assert wire.ask("XLEN", "s") == b":%d\r\n" % ENTRIES
