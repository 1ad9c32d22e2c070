"""Changes of users: their effect on open connections, and that passwords are never shown.

Every test runs on both event loops: the one with epoll, and the one for systems without it.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.common.limits import MAX_INLINE_BYTES_BEFORE_AUTH
from headwater.config.config import Config
from headwater.testing.clock import ManualClock
from headwater.testing.node import LocalStore
from headwater.testing.replies import Nil, Reply, Simple
from headwater.testing.server import ServerThread
from tests.conformance.test_protocol_server import own_address, until_blocked
from tests.conformance.wire import (
    SECONDS,
    Start,
    Wire,
    connected,
    encode,
    exchange,
    passing_time,
    value_of,
)
from tests.peers import Peer

OK = b"+OK\r\n"
NO_AUTH = b"-NOAUTH Authentication required.\r\n"


def test_connections_of_a_deleted_user_are_closed_even_if_blocked(start: Start) -> None:
    server = start()
    with (
        connected(server.port) as admin,
        connected(server.port) as idle,
        connected(server.port) as waiting,
        connected(server.port) as other,
    ):
        # Given four connections, two of them of one user
        assert admin.ask("ACL", "SETUSER", "alice", "on", "nopass", "+@all", "~*") == OK
        assert idle.ask("AUTH", "alice", "x") == waiting.ask("AUTH", "alice", "x") == OK
        waiting.socket.sendall(encode("XREAD", "BLOCK", "0", "STREAMS", "s", "$"))
        until_blocked(server)
        # When the user is deleted
        assert admin.ask("ACL", "DELUSER", "alice") == b":1\r\n"
        # Then its connections are closed, and no others
        assert idle.reply() == waiting.reply() == b""
        assert other.ask("PING") == admin.ask("PING") == b"+PONG\r\n"
    assert value_of(server, "blocked_clients") == "0"


@pytest.mark.parametrize(
    "words", [("ACL", "DELUSER", "alice"), ("CLIENT", "KILL", "USER", "alice")]
)
def test_a_disconnected_consumer_takes_no_more_entries(
    start: Start, words: tuple[str, ...]
) -> None:
    server = start()
    with connected(server.port) as admin, connected(server.port) as waiting:
        # Given a consumer that waits
        admin.ask("ACL", "SETUSER", "alice", "on", "nopass", "+@all", "~*")
        admin.ask("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
        waiting.ask("AUTH", "alice", "x")
        waiting.socket.sendall(
            encode("XREADGROUP", "GROUP", "g", "c", "BLOCK", "0", "STREAMS", "s", ">")
        )
        until_blocked(server)
        # When its connection is closed and an entry is added, all in one turn
        admin.socket.sendall(encode(*words) + encode("XADD", "s", "1-1", "f", "v"))
        assert [admin.reply(), admin.reply()] == [b":1\r\n", b"$3\r\n1-1\r\n"]
        # Then the entry is left for others
        assert waiting.reply() == b""
        assert admin.ask("XPENDING", "s", "g").startswith(b"*4\r\n:0\r\n")


def test_a_user_that_deletes_itself_gets_the_reply_and_is_disconnected(start: Start) -> None:
    server = start()
    with connected(server.port) as admin:
        admin.ask("ACL", "SETUSER", "alice", "on", "nopass", "+@all")
        requests = encode("AUTH", "alice", "x") + encode("ACL", "DELUSER", "alice")
        assert exchange(server.port, requests + encode("PING")) == OK + b":1\r\n"


def test_a_user_with_a_hundred_thousand_rules_is_made_before_a_client_times_out(
    start: Start,
) -> None:
    server = start()
    with connected(server.port) as admin:
        # Given a hundred thousand rules for one command, of which all but one are then withdrawn
        rules = [f"+select|{number}" for number in range(100_000)]
        assert admin.ask("ACL", "SETUSER", "alice", "on", *rules) == OK
        assert admin.ask("ACL", "DRYRUN", "alice", "select", "99999") == OK
        assert admin.ask("ACL", "SETUSER", "alice", "-select", rules[7], "+get", rules[7]) == OK
        # Then each is described once, where it was given last
        assert b"-select +get +select|7\r\n" in admin.ask("ACL", "GETUSER", "alice")


def test_client_kill_closes_connections_of_a_user(start: Start) -> None:
    server = start()
    with connected(server.port) as admin, connected(server.port) as alice:
        admin.ask("ACL", "SETUSER", "alice", "on", "nopass", "+@all")
        alice.ask("AUTH", "alice", "x")
        shown = admin.ask("CLIENT", "LIST")
        assert shown.count(b" user=default ") == shown.count(b" user=alice ") == 1
        assert admin.ask("CLIENT", "KILL", "USER", "alice") == b":1\r\n"
        assert alice.reply() == b""
        assert admin.ask("CLIENT", "KILL", "USER", "alice") == b":0\r\n"


def test_acl_load_disconnects_users_that_are_not_in_the_file(start: Start, tmp_path: Path) -> None:
    # Given two connected users from a file
    path = tmp_path / "users.acl"
    path.write_text("user alice on nopass +@all ~*\nuser bob on nopass +@all ~*\n")
    server = start(aclfile=str(path))
    with (
        connected(server.port) as admin,
        connected(server.port) as alice,
        connected(server.port) as bob,
    ):
        assert alice.ask("AUTH", "alice", "x") == bob.ask("AUTH", "bob", "x") == OK
        # When another file is loaded
        path.write_text("user alice on nopass +@all -set ~*\n")
        assert admin.ask("ACL", "LOAD") == OK
        # Then the removed user is disconnected, and the other has its new permissions
        assert bob.reply() == b""
        assert alice.ask("ACL", "WHOAMI") == b"$5\r\nalice\r\n"
        assert alice.ask("SET", "k", "v").startswith(b"-NOPERM")
        assert alice.ask("GET", "k") == b"$-1\r\n"


LISTENERS = {
    "same": (["SUBSCRIBE", "news:a"], ["&news:*", "&other"], True),
    "channel": (["SUBSCRIBE", "news:a", "other"], ["&news:a"], False),
    "pattern": (["PSUBSCRIBE", "news:*"], ["&news:*"], True),
    "narrower pattern": (["PSUBSCRIBE", "news:*"], ["&news:a", "&news:b"], False),
    "fitting channel": (["SUBSCRIBE", "news:a"], ["&news:?"], True),
    "all": (["SUBSCRIBE", "news:a"], ["allchannels"], True),
    "none": (["SUBSCRIBE", "news:a"], [], False),
    "by selector": (["SUBSCRIBE", "news:a"], ["(&news:a)"], True),
}


@pytest.mark.peer
@pytest.mark.parametrize("case", LISTENERS)
def test_a_subscriber_that_loses_its_permission_is_disconnected(
    case: str, start: Start, shared_peer: Callable[[str], Peer]
) -> None:
    words, rules, stays = LISTENERS[case]
    before = ["reset", "on", "nopass", "+@all", "&news:*", "&other"]
    for port in (start().port, shared_peer("redis-8.2").port):
        with connected(port) as admin, connected(port) as listener:
            # Given a subscriber
            admin.ask("ACL", "SETUSER", "alice", *before)
            assert listener.ask("AUTH", "alice", "x") == OK
            listener.ask(*words)
            for _ in words[2:]:
                listener.reply()
            # When its user gets permissions for other channels
            assert admin.ask("ACL", "SETUSER", "alice", "resetchannels", *rules) == OK
            # Then it stays subscribed, or is disconnected
            if stays:
                assert listener.ask("PING") == b"*2\r\n$4\r\npong\r\n$0\r\n\r\n"
            else:
                assert listener.reply() == b""
            admin.ask("ACL", "DELUSER", "alice")


@pytest.mark.peer
def test_the_need_to_authenticate_is_that_of_redis(start: Start, peer: Callable[..., Peer]) -> None:
    """Compares two connections: one opened before `default` has a password, one opened after."""
    port = peer("redis-8.2").port
    server = start(clock=ManualClock())
    with passing_time(server):
        ours = replies_of(server.port)
    assert ours == replies_of(port)


def replies_of(port: int) -> list[bytes]:
    said = []
    with connected(port) as early, connected(port) as admin:
        said += [admin.ask("ACL", "SETUSER", "root", "on", ">r", "+@all", "~*")]
        said += [admin.ask("AUTH", "root", "r")]
        said += [admin.ask("CONFIG", "SET", "requirepass", "p")]
        with connected(port) as late:
            for rules in (
                ["on"],
                ["nopass"],
                ["off"],
                ["on", ">q"],
                ["resetpass"],
                ["nopass", "-ping"],
                ["resetkeys", "+@all"],
            ):
                said += [admin.ask("ACL", "SETUSER", "default", *rules)]
                said += [early.ask("PING"), late.ask("PING"), late.ask("GET", "k")]
                said += [late.ask("AUTH", "p"), late.ask("AUTH", "default", "q"), late.ask("PING")]
                said += [late.ask("RESET"), late.ask("PING"), late.ask("ACL", "WHOAMI")]
        said += [admin.ask("CONFIG", "SET", "requirepass", "")]
        said += [admin.ask("CONFIG", "GET", "requirepass")]
        said += [admin.ask("ACL", "SETUSER", "default", "reset")]
        said += [early.ask("PING"), early.ask("AUTH", "p"), early.ask("RESET"), early.ask("PING")]
    return said


def test_a_password_of_default_opens_a_server_in_protected_mode(start: Start) -> None:
    # Given a server that listens on all addresses and rejects other machines
    server, address = start(bind=("*",)), own_address()

    def from_elsewhere() -> bytes:
        with socket.create_connection((address, server.port), timeout=SECONDS) as client:
            return Wire(client).ask("PING")

    assert from_elsewhere().startswith(b"-DENIED")
    with connected(server.port) as local:
        # When `default` has a password, another user's does not matter
        local.ask("ACL", "SETUSER", "alice", "on", ">x", "+@all")
        assert from_elsewhere().startswith(b"-DENIED")
        assert local.ask("ACL", "SETUSER", "default", ">x") == OK
        # Then other machines may connect and have to authenticate
        assert from_elsewhere() == NO_AUTH


def test_passwords_are_never_shown(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # Given users with passwords, some of them used in wrong places
    path = tmp_path / "users.acl"
    path.touch()
    server = start(aclfile=str(path))
    shown = b""
    with caplog.at_level(logging.DEBUG), connected(server.port) as wire:
        for words in (
            ("ACL", "SETUSER", "alice", "on", ">hunter2", "+@all", "~*"),
            ("ACL", "SETUSER", "alice", "<hunter2-wrong"),
            ("ACL", "SETUSER", "alice", "#hunter2"),
            ("ACL", "SETUSER", "alice", "(+get", ">hunter2)"),
            ("AUTH", "alice", "hunter2-wrong"),
            ("HELLO", "3", "AUTH", "alice", "hunter2-wrong"),
            ("AUTH", "alice", "hunter2"),
            ("ACL", "LIST"),
            ("ACL", "GETUSER", "alice"),
            ("ACL", "LOG"),
            ("CLIENT", "LIST"),
            ("INFO",),
            ("ACL", "SAVE"),
        ):
            shown += wire.ask(*words)
    # Then no reply, log or file contains one
    assert b"acl_access_denied_auth:2" in shown
    assert b"hunter2" not in shown
    assert "hunter2" not in caplog.text
    assert b"hunter2" not in path.read_bytes()


def test_inline_requests_before_authentication_are_limited_like_others(start: Start) -> None:
    server = start(requirepass="s")
    longest = MAX_INLINE_BYTES_BEFORE_AUTH
    too_big = b"-ERR Protocol error: too big inline request\r\n"
    too_many = b"-ERR Protocol error: unauthenticated multibulk length\r\n"
    for data, answer in (
        (b"PING " + b"x" * (longest - 5) + b"\n", NO_AUTH),
        (b"PING " + b"x" * (longest - 4) + b"\n", too_big),
        (b"PING " + b"x" * longest, too_big),
        (b"PING" + b" x" * 9 + b"\n", NO_AUTH),
        (b"PING" + b" x" * 10 + b"\n", too_many),
        (b"AUTH s\nPING " + b"x" * (longest + 1) + b"\n", None),
        (b"AUTH s\nDEL" + b" x" * 10 + b"\n", OK + b":0\r\n"),
    ):
        for pieces in ([data], [data[at : at + 1000] for at in range(0, len(data), 1000)]):
            found = exchange(server.port, pieces)
            assert found == answer or (answer is None and b"x" * longest in found)


def test_an_embedded_connection_is_not_restricted() -> None:
    # Given a store whose user `default` has a password and no permissions
    store = LocalStore(config=Config(requirepass="p"), journaled=False)
    embedded, tcp = store.client(), store.client(kind="tcp")
    embedded("ACL", "SETUSER", "default", "off", "-@all", "resetkeys")
    # Then an embedded client may do everything, and has no user
    assert embedded("SET", "k", "v") == Simple(b"OK")
    assert embedded("ACL", "WHOAMI") is Nil.BULK
    assert b"user=(superuser) " in bytes_of(embedded("CLIENT", "LIST"))
    assert str(tcp("PING")).count("NOAUTH") == 1
    # And it may log in as a user, until RESET
    embedded("ACL", "SETUSER", "alice", "on", ">x", "+get", "+reset", "~k")
    assert embedded("AUTH", "alice", "x") == Simple(b"OK")
    assert b"NOPERM" in bytes_of(embedded("SET", "k", "v"))
    embedded("RESET")
    assert embedded("SET", "k", "v") == Simple(b"OK")


def bytes_of(reply: Reply) -> bytes:
    """Return the text of a reply."""
    found = getattr(reply, "text", reply)
    assert isinstance(found, bytes)
    return found


def test_generated_passwords_are_long_and_differ(start: Start) -> None:
    server: ServerThread = start()
    with connected(server.port) as wire:
        found = [wire.ask("ACL", "GENPASS") for _ in range(3)]
        assert len(set(found)) == 3
        assert all(len(one) == len(b"$64\r\n\r\n") + 64 for one in found)
        for bits, digits in (("1", 1), ("5", 2), ("4096", 1024)):
            assert wire.ask("ACL", "GENPASS", bits).startswith(b"$%d\r\n" % digits)
