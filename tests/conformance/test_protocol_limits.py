"""Limits on what the server stores for a client: its requests, its replies, and for how long.

Every test runs on both event loops: the one with epoll, and the one for systems without it.
"""

from __future__ import annotations

import socket

import pytest

from headwater.common.limits import MAX_OUTPUT_AHEAD_BYTES
from headwater.config.clients import OutputLimit, OutputLimits
from headwater.testing.clock import ManualClock
from tests.conformance.wire import Start, connected, encode, exchange, value_of
from tests.waiting import eventually


def limit_of(hard: int) -> OutputLimits:
    """Return limits with this hard limit for normal clients."""
    return OutputLimits(normal=OutputLimit(hard))


def test_input_of_an_incomplete_request_is_limited(start: Start) -> None:
    server = start(client_query_buffer_limit=1024 * 1024)
    with connected(server.port) as greedy:
        greedy.socket.sendall(b"*2\r\n$4\r\nECHO\r\n$9000000\r\n")
        with pytest.raises(ConnectionError):
            for _ in range(10_000):
                greedy.socket.sendall(b"x" * 10_000)
    assert value_of(server, "client_query_buffer_limit_disconnections") == "1"


def test_queued_commands_of_a_transaction_count_as_input(start: Start) -> None:
    server = start(client_query_buffer_limit=1024 * 1024)
    with connected(server.port) as greedy:
        assert greedy.ask("MULTI") == b"+OK\r\n"
        with pytest.raises(ConnectionError):
            for _ in range(10_000):
                greedy.socket.sendall(encode("ECHO", b"x" * 10_000))
    assert value_of(server, "client_query_buffer_limit_disconnections") == "1"


def test_unread_output_of_an_unauthenticated_client_is_limited(start: Start) -> None:
    server = start()
    with connected(server.port) as admin, connected(server.port) as stranger:
        assert admin.ask("CONFIG", "SET", "requirepass", "s") == b"+OK\r\n"
        assert stranger.ask("PING") == b"+PONG\r\n", "an open connection stays permitted"
        with connected(server.port) as deaf, pytest.raises(ConnectionError):
            for _ in range(10_000):
                deaf.socket.sendall(encode("PING") * 1000)
        lines = admin.ask("INFO", "stats")
        assert b"\r\nclient_output_buffer_limit_disconnections:1\r\n" in lines


def test_the_last_bytes_have_a_minute_to_arrive(start: Start) -> None:
    # Given a client that requested much, sent QUIT and does not read yet
    clock = ManualClock()
    server = start(clock=clock, client_output_buffer_limit=limit_of(100_000_000))
    with connected(server.port) as slow:
        assert slow.ask("SET", "k", b"x" * 1_000_000) == b"+OK\r\n"
        slow.socket.sendall(encode("GET", "k") * 50 + encode("QUIT"))
        while b" cmd=quit " not in exchange(server.port, encode("CLIENT", "LIST")):
            pass

        # When it reads half a minute later
        server.advance(30)
        server.run(lambda running: running.loop.sweep())

        # Then it gets everything
        for _ in range(50):
            assert len(slow.reply()) == len(b"$1000000\r\n") + 1_000_000 + 2
        assert slow.reply() == b"+OK\r\n"

    # And one that never reads is disconnected
    with connected(server.port) as deaf:
        deaf.socket.sendall(encode("GET", "k") * 50 + encode("QUIT"))
        while b" cmd=quit " not in exchange(server.port, encode("CLIENT", "LIST")):
            pass
        server.advance(61)
        server.run(lambda running: running.loop.sweep())
        assert b" cmd=quit " not in exchange(server.port, encode("CLIENT", "LIST"))


def test_unread_output_is_limited_if_a_limit_is_set(start: Start) -> None:
    server = start(client_output_buffer_limit=limit_of(8 * 1024 * 1024))
    with connected(server.port) as deaf:
        assert deaf.ask("SET", "k", b"x" * 1_000_000) == b"+OK\r\n"
        deaf.socket.sendall(encode("GET", "k") * 100)
        # The test reads nothing before the server has disconnected it: a client that reads meanwhile may
        # keep up with a busy server and get everything.
        eventually(lambda: value_of(server, "client_output_buffer_limit_disconnections") == "1")
        received = 0
        try:
            while data := deaf.socket.recv(1 << 20):
                received += len(data)
        except ConnectionError:
            pass
        assert received < 100_000_000


def test_requests_wait_until_the_client_has_read_earlier_replies(start: Start) -> None:
    # Given a large value
    server = start()
    with connected(server.port) as greedy, connected(server.port) as other:
        assert greedy.ask("SET", "k", b"x" * 1_000_000) == b"+OK\r\n"

        # When a client requests it many times and reads nothing yet
        greedy.socket.sendall(encode("GET", "k") * 200 + encode("ECHO", "last"))

        # Then the server stores a few replies, not all of them, and serves others meanwhile
        for _ in range(20):
            line = next(
                line
                for line in other.ask("CLIENT", "LIST").split(b"\n")
                if b" cmd=get " in line or b" cmd=set " in line
            )
            held = int(line.split(b" omem=")[1].split(b" ")[0])
            assert held <= 3 * MAX_OUTPUT_AHEAD_BYTES

        # And all replies arrive, in order
        for _ in range(200):
            assert len(greedy.reply()) == 1_000_000 + len(b"$1000000\r\n\r\n")
        assert greedy.reply() == b"$4\r\nlast\r\n"


def test_a_client_that_has_ended_its_output_gets_all_replies(start: Start) -> None:
    # Given a client that requests more than may be queued, and ends its output
    server = start()
    with connected(server.port) as wire:
        assert wire.ask("SET", "k", b"x" * 1_000_000) == b"+OK\r\n"
        wire.socket.sendall(encode("GET", "k") * 50)
        wire.socket.shutdown(socket.SHUT_WR)

        # Then it gets every reply, and then the end of the connection
        for _ in range(50):
            assert len(wire.reply()) == 1_000_000 + len(b"$1000000\r\n\r\n")
        assert wire.reply() == b""


def test_the_maximum_length_of_arguments_can_be_set_and_applies_to_open_connections(
    start: Start,
) -> None:
    server = start()
    with connected(server.port) as wire, connected(server.port) as admin:
        assert wire.ask("PING") == b"+PONG\r\n"
        assert admin.ask("CONFIG", "SET", "proto-max-bulk-len", "1mb") == b"+OK\r\n"
        wire.socket.sendall(b"*1\r\n$1048577\r\n")
        assert wire.reply() == b"-ERR Protocol error: invalid bulk length\r\n"
        assert wire.reply() == b""


@pytest.mark.parametrize("entry_id", ["*", "5-*", "5-5"])
def test_the_size_of_an_entry_is_limited(start: Start, entry_id: str) -> None:
    server = start()
    server.run(
        lambda running: setattr(running.node.services.clients.settings, "max_entry_bytes", 1000)
    )
    with connected(server.port) as wire:
        refused = wire.ask("XADD", "s", entry_id, "a", "x" * 1000)
        assert refused == b"-ERR Elements are too large to be stored\r\n"
        assert wire.ask("EXISTS", "s") == b":0\r\n"
        assert wire.ask("XADD", "s", entry_id, "a", "x" * 900).startswith(b"$")
