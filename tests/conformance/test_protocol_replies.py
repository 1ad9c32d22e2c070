"""The replies of connection commands, CLIENT, COMMAND and CONFIG equal those of Redis 8.2.3 byte
for byte."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from headwater.commands.dispatch import FUNCTIONS
from headwater.commands.table import COMMANDS
from headwater.config.config import Config
from headwater.resp.inline import split
from headwater.server.commands import SERVER_FUNCTIONS
from headwater.testing.clock import ManualClock
from headwater.testing.server import ServerThread, server_thread
from tests.conformance.wire import connected, encode, exchange, passing_time
from tests.peers import Peer

CONNECTION = r"""
PING
PING hello
PING a b
ECHO
ECHO a
ECHO a b
SELECT 1
SELECT 15
SELECT 16
SELECT -1
SELECT x
SELECT 99999999999999999999
SELECT 0
HELLO 4
HELLO 1
HELLO x
HELLO 3 FOO
HELLO 3 AUTH a
HELLO 3 AUTH bob x
HELLO 2 SETNAME
HELLO 2 SETNAME a b
HELLO 2 SETNAME "a b"
CLIENT GETNAME
AUTH
AUTH x
AUTH default x
AUTH bob x
AUTH a b c
TIME x
DBSIZE
DBSIZE x
SHUTDOWN FOO
SHUTDOWN NOSAVE SAVE
SHUTDOWN ABORT
INFO nosuch
RESET x
RESET
QUIT
"""

CLIENT = r"""
CLIENT
CLIENT FOO
CLIENT ID x
CLIENT INFO x
CLIENT SETNAME "a b"
CLIENT SETNAME "a\nb"
CLIENT SETNAME n
CLIENT GETNAME
CLIENT SETNAME ""
CLIENT GETNAME
CLIENT SETINFO LIB-NAME redis-py
CLIENT SETINFO lib-ver 1.2
CLIENT SETINFO foo bar
CLIENT SETINFO LIB-NAME
CLIENT SETINFO LIB-NAME "a b"
CLIENT SETINFO LIB-VER "\x7f"
CLIENT LIST FOO
CLIENT LIST ID
CLIENT LIST ID x
CLIENT LIST ID 999999
CLIENT LIST TYPE foo
CLIENT LIST TYPE pubsub
CLIENT LIST TYPE master
CLIENT KILL
CLIENT KILL foo
CLIENT KILL 127.0.0.1:1
CLIENT KILL ID x
CLIENT KILL ID 0
CLIENT KILL ID 999999
CLIENT KILL TYPE foo
CLIENT KILL TYPE pubsub
CLIENT KILL USER bob
CLIENT KILL FOO 1
CLIENT KILL USER default ID 999999
CLIENT KILL ADDR 1.1.1.1:1
CLIENT KILL LADDR 1.1.1.1:1
CLIENT KILL SKIPME maybe
CLIENT KILL MAXAGE x
CLIENT KILL MAXAGE 0
CLIENT KILL MAXAGE 99999
CLIENT KILL ID 999999 FOO
CLIENT UNBLOCK
CLIENT UNBLOCK 999999
CLIENT UNBLOCK x
CLIENT UNBLOCK 999999 foo
CLIENT UNBLOCK 999999 ERROR
CLIENT NO-EVICT on
CLIENT NO-EVICT OFF
CLIENT NO-EVICT x
CLIENT NO-TOUCH on
CLIENT NO-TOUCH off
CLIENT NO-TOUCH x
CLIENT REPLY x
CLIENT REPLY ON
CLIENT MAINT_NOTIFICATIONS ON
"""

COMMAND = r"""
COMMAND FOO
COMMAND COUNT x
COMMAND LIST FOO
COMMAND LIST FILTERBY FOO x
COMMAND LIST FILTERBY ACLCAT nosuch
COMMAND LIST FILTERBY MODULE x
COMMAND LIST FILTERBY PATTERN xgr[o]up
COMMAND LIST FILTERBY PATTERN xgroup|d*y
COMMAND LIST FILTERBY PATTERN CONFIG|GET
COMMAND LIST FILTERBY PATTERN
COMMAND LIST FILTERBY PATTERN [
COMMAND GETKEYS
COMMAND GETKEYS PING
COMMAND GETKEYS nosuch a
COMMAND GETKEYS XADD a
COMMAND GETKEYS XADD s * a b
COMMAND GETKEYS XREAD STREAMS a b 0 0
COMMAND GETKEYS XREAD COUNT 1 BLOCK 5
COMMAND GETKEYS EVAL x 0
COMMAND GETKEYS EVALSHA x 0 a
COMMAND GETKEYS EVAL x 1 a
COMMAND GETKEYS EVAL_RO x 2 a
COMMAND GETKEYS EVAL x -1
COMMAND GETKEYS EVAL x 18446744073709551617 a
COMMAND GETKEYSANDFLAGS EVALSHA_RO x 1 a
COMMAND GETKEYS XGROUP FOO
COMMAND GETKEYS XGROUP CREATE s g $
COMMAND GETKEYSANDFLAGS DEL a b
COMMAND GETKEYSANDFLAGS XREADGROUP GROUP g c STREAMS a 0
COMMAND INFO nosuch get|x
COMMAND INFO xread
COMMAND INFO XACK hget
COMMAND DOCS nosuch
"""

CONFIG = r"""
CONFIG
CONFIG FOO
CONFIG GET
CONFIG GET nosuch
CONFIG GET maxclients
CONFIG GET MaxClients
CONFIG GET save
CONFIG GET databases
CONFIG GET maxmemory
CONFIG GET stream-node-max-bytes
CONFIG GET client-output-buffer-limit
CONFIG SET maxclients
CONFIG SET maxclients 1 timeout
CONFIG SET nosuch 1
CONFIG SET maxclients x
CONFIG SET maxclients 0
CONFIG SET timeout -1
CONFIG SET timeout 2147483648
CONFIG SET appendfsync foo
CONFIG SET maxclients 100 maxclients 200
CONFIG SET maxclients 100 nosuch 1
CONFIG SET proto-max-bulk-len 1
CONFIG SET proto-max-bulk-len 1xb
CONFIG SET loglevel foo
CONFIG SET dir /
CONFIG SET unixsocket /tmp/x
CONFIG SET protected-mode perhaps
CONFIG SET tcp-keepalive 1kb
CONFIG SET TIMEOUT 0 maxclients 10000
CONFIG SET daemonize yes
CONFIG SET daemonize x
CONFIG SET databases 16
CONFIG SET maxmemory 100mb daemonize no
CONFIG GET maxmemory
CONFIG SET io-threads 4
CONFIG SET always-show-logo yes
CONFIG REWRITE
CONFIG RESETSTAT
CONFIG RESETSTAT x
"""

PASSWORD = r"""
PING
HELLO 3
HELLO
HELLO 3 AUTH default wrong
HELLO 9
HELLO x
XADD s * a b
NOSUCH
CLIENT ID
MULTI
COMMAND COUNT
RESET
AUTH wrong
AUTH bob secret
AUTH default wrong
AUTH secret
PING
RESET
PING
AUTH default secret
PING
"""

REPLY = r"""
CLIENT REPLY SKIP
PING unanswered
PING first
CLIENT REPLY OFF
PING unanswered
CLIENT REPLY SKIP
XADD
CLIENT REPLY ON
PING last
"""


def lines(block: str) -> list[list[bytes]]:
    return [split(line.encode()) for line in block.strip().splitlines()]


@pytest.fixture(scope="module")
def server() -> Iterator[ServerThread]:
    with server_thread() as started:
        yield started


def compare(ours: int, theirs: int, block: str, *, resp: int) -> None:
    """Send the same requests to both, one after the other on one connection each, and compare."""
    with connected(ours, resp=resp) as headwater, connected(theirs, resp=resp) as redis:
        differences = []
        for request in lines(block):
            expected, answer = redis.ask(*request), headwater.ask(*request)
            if not expected.startswith(b"-"):
                # Sets and maps have no defined order.
                expected, answer = _sorted(expected), _sorted(answer)
            if answer != expected:
                differences.append((b" ".join(request), expected, answer))
        assert differences == []


def with_password(server: Peer) -> Peer:
    """Set a password on a peer and return it."""
    with connected(server.port) as admin:
        assert admin.ask("CONFIG", "SET", "requirepass", "secret") == b"+OK\r\n"
    return server


def _sorted(reply: bytes) -> bytes:
    return b"\r\n".join(sorted(reply.split(b"\r\n"))) if reply[:1] in b"*%~" else reply


@pytest.mark.slow
@pytest.mark.peer
@pytest.mark.parametrize("resp", [2, 3])
@pytest.mark.parametrize(
    "block",
    [CONNECTION, CLIENT, COMMAND, CONFIG],
    ids=["connection", "client", "command", "config"],
)
def test_replies_are_those_of_redis(
    block: str, resp: int, server: ServerThread, shared_peer: Callable[[str], Peer]
) -> None:
    compare(server.port, shared_peer("redis-8.2").port, block, resp=resp)


@pytest.mark.peer
def test_replies_before_authentication_are_those_of_redis(peer: Callable[..., Peer]) -> None:
    theirs = with_password(peer("redis-8.2"))
    config = Config(port=0, appendonly=False, save=(), requirepass="secret")
    with server_thread(config, clock=ManualClock()) as ours, passing_time(ours):
        compare(ours.port, theirs.port, PASSWORD, resp=2)


@pytest.mark.peer
def test_limits_before_authentication_are_those_of_redis(peer: Callable[..., Peer]) -> None:
    theirs = with_password(peer("redis-8.2"))
    with server_thread(Config(port=0, appendonly=False, save=(), requirepass="secret")) as ours:
        for data in (b"*11\r\n", b"*1\r\n$16385\r\n"):
            assert exchange(ours.port, data) == exchange(theirs.port, data)
        with connected(ours.port) as here, connected(theirs.port) as there:
            assert here.ask("AUTH", "x" * 16384) == there.ask("AUTH", "x" * 16384)


@pytest.mark.peer
def test_client_reply_works_as_in_redis(
    server: ServerThread, shared_peer: Callable[[str], Peer]
) -> None:
    data = b"".join(encode(*request) for request in lines(REPLY))
    expected = exchange(shared_peer("redis-8.2").port, data)
    assert exchange(server.port, data) == expected
    assert expected.count(b"\r\n") == 5


def test_the_table_and_the_functions_have_the_same_commands() -> None:
    expected = {
        name + b"|" + word for name, row in COMMANDS.items() for word in row.subcommands
    } | {name for name, row in COMMANDS.items() if not row.subcommands}
    assert {*FUNCTIONS, *SERVER_FUNCTIONS} == expected | {b"COMMAND"}
    assert not FUNCTIONS.keys() & SERVER_FUNCTIONS.keys()
