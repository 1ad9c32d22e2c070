"""Subscribers over sockets: limits on unread output, idle time, disconnection.

Every test runs on both event loops: the one with epoll, and the one for systems without it.
"""

from __future__ import annotations

import time
from contextlib import ExitStack

import pytest

from headwater.config.clients import OutputLimit, OutputLimits
from headwater.testing.clock import ManualClock
from tests.conformance.wire import Start, Wire, connected, value_of
from tests.waiting import eventually

pytestmark = pytest.mark.slow

CONFIRMED = b"*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n"


def drained(wire: Wire) -> int:
    """Read until the server closes the connection. Return the number of bytes."""
    received = 0
    try:
        while data := wire.socket.recv(1 << 20):
            received += len(data)
    except ConnectionError:
        pass
    return received


def test_a_subscriber_that_does_not_read_is_disconnected_at_the_hard_limit(start: Start) -> None:
    # Given a subscriber that does not read, and one that does
    server = start(client_output_buffer_limit=OutputLimits(pubsub=OutputLimit(8_000_000)))
    with (
        connected(server.port) as deaf,
        connected(server.port) as listener,
        connected(server.port) as publisher,
    ):
        assert deaf.ask("SUBSCRIBE", "news") == listener.ask("SUBSCRIBE", "news") == CONFIRMED
        # When much is published
        deadline = time.monotonic() + 60
        while publisher.ask("PUBLISH", "news", b"x" * 1_000_000) != b":1\r\n":
            assert len(listener.reply()) > 1_000_000
            assert time.monotonic() < deadline, "the server does not enforce the limit"
        # Then the former is disconnected and the latter is not
        assert len(listener.reply()) > 1_000_000
        assert drained(deaf) < 50_000_000
        assert publisher.ask("PUBLISH", "news", "still there") == b":1\r\n"
        assert b"still there" in listener.reply()
    assert value_of(server, "client_output_buffer_limit_disconnections") == "1"


def test_the_limit_of_subscribers_does_not_apply_to_other_clients(start: Start) -> None:
    # Given a low limit for subscribers
    server = start(client_output_buffer_limit=OutputLimits(pubsub=OutputLimit(1_000_000)))
    with connected(server.port) as wire:
        assert wire.ask("SET", "k", b"x" * 5_000_000) == b"+OK\r\n"
        # When a client that is not subscribed requests more, then it gets it
        assert len(wire.ask("GET", "k")) > 5_000_000
        assert wire.ask("SUBSCRIBE", "news") == CONFIRMED
        assert wire.ask("UNSUBSCRIBE").endswith(b":0\r\n")
        assert len(wire.ask("GET", "k")) > 5_000_000


def test_a_subscriber_that_does_not_read_for_a_while_is_disconnected_at_the_soft_limit(
    start: Start,
) -> None:
    # Given a soft limit that may be exceeded for a second
    limits = OutputLimits(pubsub=OutputLimit(hard=0, soft=1_000_000, seconds=1))
    server = start(client_output_buffer_limit=limits)
    with connected(server.port) as deaf, connected(server.port) as publisher:
        assert deaf.ask("SUBSCRIBE", "news") == CONFIRMED
        # When a subscriber leaves more unread than that
        for _ in range(20):
            publisher.ask("PUBLISH", "news", b"x" * 1_000_000)
        # Then it is disconnected after that second
        eventually(lambda: b" psub=0 " not in publisher.ask("CLIENT", "LIST", "TYPE", "pubsub"))
        assert drained(deaf) < 20_000_000


def test_a_subscriber_is_never_idle(start: Start) -> None:
    clock = ManualClock()
    server = start(clock=clock, timeout=60)
    with connected(server.port) as listener, connected(server.port) as idle:
        assert listener.ask("SUBSCRIBE", "news") == CONFIRMED
        assert idle.ask("PING") == b"+PONG\r\n"
        server.advance(61)
        server.run(lambda running: running.loop.sweep())
        assert idle.reply() == b""
        assert listener.ask("PING") == b"*2\r\n$4\r\npong\r\n$0\r\n\r\n"


def test_subscribers_are_listed_and_killed_by_type(start: Start) -> None:
    # Given two subscribers
    server = start()
    with (
        connected(server.port) as one,
        connected(server.port, resp=3) as other,
        connected(server.port) as admin,
    ):
        assert one.ask("SUBSCRIBE", "news") == CONFIRMED
        assert other.ask("PSUBSCRIBE", "n*").startswith(b">3\r\n")
        other.socket.sendall(b"SSUBSCRIBE s\r\n")
        assert other.reply().startswith(b">3\r\n")
        # When they are listed, then the lists show their subscriptions
        lines = admin.ask("CLIENT", "LIST", "TYPE", "pubsub").split(b"\n")
        listed = [fields(line) for line in lines if line.startswith(b"id=")]
        assert [(one["flags"], one["sub"], one["psub"], one["ssub"]) for one in listed] == [
            ("P", "1", "0", "0"),
            ("P", "0", "1", "1"),
        ]
        assert b"sub=0" in admin.ask("CLIENT", "LIST", "TYPE", "normal")
        info = admin.ask("INFO")
        for line in ("pubsub_clients:2", "pubsub_channels:1", "pubsub_patterns:1"):
            assert b"\r\n%b\r\n" % line.encode() in info
        # When they are killed, then their connections and subscriptions end
        assert admin.ask("CLIENT", "KILL", "TYPE", "pubsub") == b":2\r\n"
        assert one.reply() == other.reply() == b""
        assert admin.ask("PUBSUB", "NUMPAT") == b":0\r\n"
        assert admin.ask("PUBSUB", "CHANNELS") == b"*0\r\n"


def test_subscribers_may_send_quit_and_reset(start: Start) -> None:
    server = start()
    with connected(server.port) as wire:
        assert wire.ask("SUBSCRIBE", "news") == CONFIRMED
        assert wire.ask("RESET") == b"+RESET\r\n"
        assert wire.ask("PUBLISH", "news", "x") == b":0\r\n"
        assert wire.ask("SUBSCRIBE", "news") == CONFIRMED
        assert wire.ask("QUIT") == b"+OK\r\n"
        assert wire.reply() == b""


def test_a_hundred_subscribers_get_the_same_message(start: Start) -> None:
    server = start()
    with connected(server.port) as publisher, ExitStack() as stack:
        wires = [stack.enter_context(connected(server.port)) for _ in range(100)]
        for wire in wires:
            assert wire.ask("SUBSCRIBE", "news") == CONFIRMED
        assert publisher.ask("PUBLISH", "news", "tea") == b":100\r\n"
        expected = b"*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$3\r\ntea\r\n"
        assert {wire.reply() for wire in wires} == {expected}


def fields(line: bytes) -> dict[str, str]:
    """Parse a line of CLIENT LIST."""
    return dict(word.split("=", 1) for word in line.decode().split())
