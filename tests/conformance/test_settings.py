"""Settings that CONFIG SET changes, refuses or hides, as in Redis."""

from __future__ import annotations

import shlex
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.config.config import Config
from headwater.testing.server import server_thread
from tests.conformance.wire import Start, connected
from tests.peers import Peer, free_port

FAILED = b"-ERR CONFIG SET failed (possibly related to argument '%b') - "

ASKED = """
CONFIG GET key-load-delay
CONFIG GET LUA-enable-deprecated-api
CONFIG GET *-load-delay lua-*
CONFIG SET rdb-key-save-delay 5
CONFIG GET rdb-key-save-delay
CONFIG SET lua-enable-deprecated-api yes
CONFIG SET shutdown-on-sigint "force NOSAVE default now"
CONFIG GET shutdown-on-sigint
CONFIG SET shutdown-on-sigint default
CONFIG GET shutdown-on-sigint
CONFIG SET shutdown-on-sigterm ""
CONFIG SET shutdown-on-sigterm now,force
CONFIG SET shutdown-on-sigterm "save nosave"
CONFIG SET maxmemory 1gb maxmemory-clients 200%
CONFIG SET maxmemory-clients -1
CONFIG SET maxmemory-clients %
CONFIG SET maxmemory-clients 1x
CONFIG SET maxmemory-policy lru
CONFIG SET dir /tmp
CONFIG SET dbfilename other
CONFIG SET enable-protected-configs yes
CONFIG SET appendonly no
CONFIG SET appendonly maybe
CONFIG SET port 70000
CONFIG SET port x
CONFIG GET maxmemory
CONFIG SET client-output-buffer-limit "normal 1 2 2147483648"
CONFIG SET client-output-buffer-limit "normal 1 2 -1"
CONFIG SET client-output-buffer-limit "normal -1 2 3"
CONFIG SET client-output-buffer-limit "normal 9223372036854775807 1kb 2147483647"
CONFIG GET client-output-buffer-limit
CONFIG SET client-output-buffer-limit "normal 0 0 0"
"""


def replies(port: int) -> dict[str, bytes]:
    with connected(port) as wire:
        return {line: wire.ask(*shlex.split(line)) for line in ASKED.strip().splitlines()}


@pytest.mark.peer
def test_settings_are_changed_refused_and_hidden_as_in_redis(
    shared_peer: Callable[[str], Peer],
) -> None:
    with server_thread(Config(port=0, appendonly=False, save=())) as server:
        ours = replies(server.port)
    theirs = replies(shared_peer("redis-8.2").port)
    assert ours == theirs


@pytest.mark.parametrize("size", ["9223372036854775808", "9999999999999999999gb"])
def test_an_output_limit_that_exceeds_a_64_bit_number_is_refused(start: Start, size: str) -> None:
    """Redis 8.2.3 accepts it; CONFIG REWRITE then writes a negative number, with which Redis does not start."""
    with connected(start().port) as wire:
        for limit in (f"normal {size} 0 0", f"pubsub 0 {size} 0"):
            assert wire.ask("CONFIG", "SET", "client-output-buffer-limit", limit).startswith(
                FAILED % b"client-output-buffer-limit" + b"Error in hard, soft or soft_seconds"
            )


def test_a_changed_port_is_listened_at_and_clients_stay_connected(start: Start) -> None:
    # Given a server with a client, and the port of another server
    server = start()
    before, after = server.port, free_port()
    with connected(before) as wire, socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        used = str(other.getsockname()[1])

        # When the port is changed to the used one, then nothing changes, not even what was given with it
        said = wire.ask("CONFIG", "SET", "maxmemory", "7mb", "port", used)
        assert said.startswith(FAILED % b"port" + b"Unable to listen on this port")
        assert wire.ask("CONFIG", "GET", "maxmemory", "port").count(b"$1\r\n0\r\n") == 1
        assert wire.ask("CONFIG", "SET", "port", str(before)) == b"+OK\r\n"

        # When it is changed to a free one, then new clients connect there only, and the old one is served
        assert wire.ask("CONFIG", "SET", "port", str(after)) == b"+OK\r\n"
        assert b"port=%d" % after in wire.ask("INFO", "server")
        with connected(after) as fresh:
            assert fresh.ask("PING") == wire.ask("PING") == b"+PONG\r\n"
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", before), timeout=5)

        # And when addresses are added or removed, the others are kept
        assert wire.ask("CONFIG", "SET", "bind", "127.0.0.1 127.0.0.2") == b"+OK\r\n"
        socket.create_connection(("127.0.0.2", after), timeout=5).close()
        assert wire.ask("CONFIG", "SET", "bind", "127.0.0.1 192.0.2.77").startswith(
            FAILED % b"bind"
        )
        assert wire.ask("CONFIG", "SET", "bind", "127.0.0.2") == b"+OK\r\n"
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", after), timeout=5)


@pytest.mark.parametrize("who", ["local", "yes"])
def test_protected_settings_can_be_changed_if_that_is_enabled(start: Start, who: str) -> None:
    server = start(enable_protected_configs=who)
    with connected(server.port) as wire:
        assert wire.ask("CONFIG", "SET", "dbfilename", "other.rdb") == b"+OK\r\n"
        assert wire.ask("CONFIG", "SET", "dir", "/tmp").startswith(
            FAILED % b"dir" + b"can't set immutable config"
        )


def test_a_setting_that_redis_can_change_accepts_its_present_value(
    start: Start, tmp_path: Path
) -> None:
    with connected(start(appendonly=True, dir=str(tmp_path)).port) as wire:
        assert wire.ask("CONFIG", "SET", "appendonly", "YES") == b"+OK\r\n"
        assert wire.ask("CONFIG", "SET", "maxmemory", "7mb", "appendonly", "no").startswith(
            FAILED % b"appendonly" + b"can't set immutable config; it can be set only"
        )
        assert wire.ask("CONFIG", "GET", "maxmemory").endswith(b"$1\r\n0\r\n")


def queried(port: int) -> list[bytes]:
    """Return qbuf of a client while it asks, of another, and of one that asks several things at once."""
    with connected(port) as wire, connected(port) as other:
        other.ask("CLIENT", "SETNAME", "other")
        lines = wire.ask("CLIENT", "LIST").splitlines()
        named = [line for line in lines if b" name=other " in line]
        wire.socket.sendall(b"PING\r\nCLIENT INFO\r\nECHO " + b"x" * 1000 + b"\r\n")
        several = [wire.reply() for _ in range(3)][1]
        found = [wire.ask("CLIENT", "INFO"), *named, several]
        return [line.partition(b" qbuf=")[2].split()[0] for line in found]


@pytest.mark.peer
def test_the_query_buffer_is_shown_as_in_redis(shared_peer: Callable[[str], Peer]) -> None:
    with server_thread(Config(port=0, appendonly=False, save=())) as server:
        ours = queried(server.port)
    assert ours == queried(shared_peer("redis-8.2").port)
