"""Replies to failed logins are delayed increasingly, failures are logged, and other clients are not
delayed."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from headwater.common.limits import (
    LIMITED_LOG_LINES,
    LIMITED_LOG_SECONDS,
    MAX_INPUT_BYTES_BEFORE_AUTH,
    MAX_LOGIN_ADDRESSES,
)
from headwater.config.config import Config
from headwater.server.running import Server
from headwater.server.services.acl.login_delays import FORGET_SECONDS, LoginFailures
from headwater.server.session.session import Session
from headwater.testing.clock import ManualClock
from headwater.testing.node import LocalClient, LocalStore, request
from headwater.testing.replies import Failure, Reply, ReplyReader, Simple
from headwater.testing.server import ServerThread
from tests.conformance.test_info import info_of
from tests.conformance.wire import Start, connected, encode

WRONG = Failure(b"WRONGPASS invalid username-password pair or user is disabled.")
REFUSED = b"-WRONGPASS invalid username-password pair or user is disabled.\r\n"
OK = Simple(b"OK")


@pytest.fixture
def store() -> LocalStore:
    return LocalStore(config=Config(requirepass="secret"), journaled=False)


def delay_of(store: LocalStore, client: LocalClient, *words: str) -> int:
    """Return the delay of the reply to a failed login, in milliseconds."""
    began = store.clock.monotonic()
    client.send(*words)
    while (reply := client.reply()) is None:
        store.advance(store.seconds_ahead())
    assert reply == WRONG
    return round((store.clock.monotonic() - began) * 1000)


class Visitor:
    """A connection from a given address."""

    def __init__(self, store: LocalStore, address: str, *, kind: str = "tcp") -> None:
        self._store = store
        self._reader = ReplyReader()
        self.session: Session = store.node.connect(kind=kind, address=address)

    def send(self, *words: str) -> None:
        self._reader.feed(self._store.node.exchange(self.session, request(words)))

    def reply(self) -> Reply | None:
        self._reader.feed(self.session.output.take_bytes())
        return self._reader.next()

    def delay(self) -> int:
        """Return the delay of the reply to a failed login, in milliseconds."""
        clock = self._store.clock
        began = clock.monotonic()
        self.send("AUTH", "wrong")
        while self.reply() is None:
            self._store.advance(self._store.seconds_ahead())
        return round((clock.monotonic() - began) * 1000)


def test_each_failure_waits_twice_as_long_up_to_two_seconds(store: LocalStore) -> None:
    client = store.client(kind="tcp")
    words = [
        ("AUTH", "wrong"),
        ("HELLO", "3", "AUTH", "default", "wrong"),
        ("AUTH", "nobody", "x"),
    ] * 3
    delays = [delay_of(store, client, *one) for one in words]
    assert delays == [100, 200, 400, 800, 1600, 2000, 2000, 2000, 2000]


def test_a_successful_login_does_not_wait_and_does_not_shorten_the_next_delay(
    store: LocalStore,
) -> None:
    client = store.client(kind="tcp")
    assert delay_of(store, client, "AUTH", "wrong") == 100
    assert client("AUTH", "secret") == OK
    assert delay_of(store, client, "AUTH", "wrong") == 200
    assert client("AUTH", "secret") == OK


def test_failures_are_forgotten_after_some_minutes(store: LocalStore) -> None:
    client = store.client(kind="tcp")
    assert [delay_of(store, client, "AUTH", "wrong") for _ in range(3)] == [100, 200, 400]
    store.advance(FORGET_SECONDS)
    assert delay_of(store, client, "AUTH", "wrong") == 100


def test_failures_count_for_an_address_whatever_the_port(store: LocalStore) -> None:
    # Given failures from three addresses
    same = ["192.0.2.1:1", "192.0.2.1:2", "[::ffff:192.0.2.1]:3"]
    network = ["[2001:db8::1]:1", "[2001:db8:0:0:ffff::2]:2", "[2001:db8:0:1::1]:3"]
    delays = [Visitor(store, address).delay() for address in same + network]
    # Then the port makes no difference, nor does the half of an IPv6 address that a machine chooses
    assert delays == [100, 200, 400, 100, 200, 100]
    # And all clients of unix sockets have the same address
    unix = [Visitor(store, f"/run/{at}.sock:0", kind="unix").delay() for at in range(2)]
    assert unix == [100, 200]


def test_an_embedded_client_is_not_delayed(store: LocalStore) -> None:
    assert [store.client()("AUTH", "wrong") for _ in range(3)] == [WRONG] * 3


def test_the_number_of_stored_addresses_is_limited() -> None:
    delays = LoginFailures()
    for number in range(2 * MAX_LOGIN_ADDRESSES):
        delays.failed(f"{number}", 0.0)
    assert len(delays) == MAX_LOGIN_ADDRESSES
    assert delays.failed(f"{2 * MAX_LOGIN_ADDRESSES - 1}", 0.0) == 200
    # And forgotten addresses are not stored
    delays.failed("x", FORGET_SECONDS)
    assert len(delays) == 1


def test_further_requests_wait_and_replies_keep_their_order(store: LocalStore) -> None:
    # Given two failing logins in a pipeline
    client = store.client(kind="tcp")
    words = [("ECHO", "1"), ("AUTH", "x"), ("PING",), ("AUTH", "y"), ("AUTH", "secret"), ("PING",)]
    client.session.feed(b"".join(request(one) for one in words))
    store.node.turn([client.session])
    other = store.client()
    # Then requests before the first are answered, and those after it wait
    assert client.reply() == Failure(b"NOAUTH Authentication required.")
    assert client.reply() is None
    assert other("PING") == Simple(b"PONG")
    store.advance(0.1)
    assert [client.reply(), client.reply(), client.reply()] == [
        WRONG,
        Failure(b"NOAUTH Authentication required."),
        None,
    ]
    store.advance(0.2)
    assert [client.reply(), client.reply(), client.reply()] == [WRONG, OK, Simple(b"PONG")]


def test_a_transaction_with_a_failed_login_waits_as_a_whole(store: LocalStore) -> None:
    # Given a user who may run commands, and guesses in MULTI, the last of them right
    client, admin = store.client(kind="tcp"), store.client()
    admin("ACL", "SETUSER", "alice", "on", ">secret", "+@all", "~*")
    client("AUTH", "secret")
    client("MULTI")
    client("AUTH", "alice", "a")
    client("AUTH", "alice", "secret")
    client("HELLO", "3", "AUTH", "alice", "secret")
    client("SET", "k", "v")
    client.send("EXEC")
    # Then it ran, its reply waits, and one guess was checked: others would have had no delay
    assert client.reply() is None
    assert store.client()("GET", "k") == b"v"
    store.advance(0.099)
    assert client.reply() is None
    store.advance(0.001)
    assert client.reply() == [WRONG, WRONG, WRONG, OK]
    assert client("ACL", "WHOAMI") == b"default"
    # And the next one does not wait
    client("MULTI")
    client("PING")
    assert client("EXEC") == [Simple(b"PONG")]


def test_a_client_whose_login_waits_does_not_count_as_blocked(store: LocalStore) -> None:
    admin, client = store.client(), store.client(kind="tcp")
    client.send("AUTH", "wrong")
    clients = info_of(admin, "clients")
    assert (clients["blocked_clients"], clients["clients_in_timeout_table"]) == ("0", "0")
    number = client.session.id
    line = admin("CLIENT", "LIST", "ID", number)
    assert isinstance(line, bytes)
    assert b" flags=N " in line
    # And CLIENT UNBLOCK does not shorten the delay
    assert admin("CLIENT", "UNBLOCK", number) == 0
    assert client.reply() is None
    store.advance(0.1)
    assert client.reply() == WRONG


def test_calls_and_errors_are_counted_once(store: LocalStore) -> None:
    client, admin = store.client(kind="tcp"), store.client()
    delay_of(store, client, "AUTH", "wrong")
    assert info_of(admin, "errorstats")["errorstat_WRONGPASS"] == "count=1"
    shown = info_of(admin, "commandstats")["cmdstat_auth"]
    assert shown.startswith("calls=1,")
    assert shown.endswith(",rejected_calls=0,failed_calls=1")


def test_a_client_that_skips_replies_gets_none(store: LocalStore) -> None:
    client = store.client(kind="tcp")
    client("AUTH", "secret")
    client.send("CLIENT", "REPLY", "SKIP")
    client.send("AUTH", "wrong")
    client.send("PING")
    store.advance(0.1)
    assert client.reply() == Simple(b"PONG")
    assert client.reply() is None


def test_a_client_that_disconnects_during_a_delay_leaves_nothing_behind(start: Start) -> None:
    # Given clients whose logins wait
    clock = ManualClock()
    server = start(clock=clock, requirepass="secret")
    with connected(server.port) as admin:
        admin.ask("AUTH", "secret")
        for _ in range(5):
            with connected(server.port) as client:
                client.socket.sendall(encode("AUTH", "wrong") + encode("PING"))
                until(server, lambda one: one.node.blocked.waiting.count > 0)
        # When they disconnect, then nothing of them is left
        until(server, lambda one: len(one.node.clients.sessions) == 1)
        until(server, lambda one: one.node.blocked.waiting.count == 0)
        server.advance(10)
        assert admin.ask("PING") == b"+PONG\r\n"


def test_a_delayed_reply_is_sent_when_it_is_due(start: Start) -> None:
    clock = ManualClock()
    server = start(clock=clock, requirepass="secret")
    with connected(server.port) as client, connected(server.port) as other:
        client.socket.sendall(encode("AUTH", "wrong") + encode("AUTH", "secret"))
        until(server, lambda one: one.node.blocked.waiting.count > 0)
        assert other.ask("AUTH", "secret") == b"+OK\r\n"
        server.advance(0.1)
        assert [client.reply(), client.reply()] == [REFUSED, b"+OK\r\n"]


def test_input_of_an_unauthenticated_client_during_a_delay_is_limited(start: Start) -> None:
    # Given a client that has not authenticated, and whose failed login is delayed
    server = start(clock=ManualClock(), requirepass="secret")
    with connected(server.port) as client:
        client.socket.sendall(encode("AUTH", "wrong"))
        until(server, lambda one: one.node.blocked.waiting.count > 0)
        # When it sends more than it may, then it is disconnected
        ping = encode("PING")
        try:
            client.socket.sendall(ping * (2 * MAX_INPUT_BYTES_BEFORE_AUTH // len(ping)))
            assert client.reply() == b""
        except ConnectionError:
            pass
        until(server, lambda one: not one.node.clients.sessions)


def test_a_failed_login_is_logged_without_its_password(
    store: LocalStore, caplog: pytest.LogCaptureFixture
) -> None:
    # When logins fail, one of them with a name that contains a line break
    with caplog.at_level(logging.WARNING, logger="headwater.server"):
        visitor = Visitor(store, "192.0.2.7:5000")
        for words in (
            ("AUTH", "hidden"),
            ("AUTH", "alice", "hidden"),
            ("HELLO", "3", "AUTH", "eve\nroot" + "x" * 100, "hidden"),
        ):
            visitor.send(*words)
            store.advance(3)
    # Then there is a line for each
    assert caplog.messages == [
        "login refused: user 'default' from 192.0.2.7:5000",
        "login refused: user 'alice' from 192.0.2.7:5000",
        "login refused: user 'eve\\nroot" + "x" * 56 + "'... from 192.0.2.7:5000",
    ]
    assert "hidden" not in caplog.text


def test_failed_logins_cannot_fill_the_disk(
    store: LocalStore, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="headwater.server"):
        # When a thousand logins fail within a minute
        for number in range(1000):
            Visitor(store, f"192.0.2.{number % 250}:{number}").send("AUTH", "wrong")
        assert len(caplog.messages) == LIMITED_LOG_LINES
        # Then the log says later how many it did not show
        store.advance(LIMITED_LOG_SECONDS)
        Visitor(store, "192.0.2.1:1").send("AUTH", "wrong")
    assert caplog.messages[-2].startswith(f"{1000 - LIMITED_LOG_LINES} more lines like this one")
    assert len(caplog.messages) == LIMITED_LOG_LINES + 2


def until(server: ServerThread, holds: Callable[[Server], object]) -> None:
    """Wait until a condition holds in the server, checked between turns."""
    found = [False]

    def ask(one: Server) -> None:
        found[0] = bool(holds(one))

    while not found[0]:
        server.run(ask)
