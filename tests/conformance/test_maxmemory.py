"""Beyond maxmemory, commands that take more memory are refused as in Redis, and all others go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from headwater.commands.table import COMMANDS
from headwater.config.config import Config
from headwater.testing.node import LocalStore, Word
from headwater.testing.replies import Failure, Simple
from headwater.testing.server import server_thread
from tests.conformance.wire import Wire, connected
from tests.peers import Peer

OOM = b"OOM command not allowed when used memory > 'maxmemory'."

FILLED = """
SET k v
XADD s 1-1 a b
XADD s 2-1 a b
XGROUP CREATE s g 0
SET passing v PX 1
"""

BEYOND = """
SET k v
SET k
GET k
nosuch
DEL nosuch
XADD s 3-1 a b
XREADGROUP GROUP g c STREAMS s >
XACK s g 1-1
XDEL s 1-1
XTRIM s MAXLEN 1
XGROUP CREATE s other 0
XGROUP DESTROY s g
EXPIRE k 100
PUBLISH channel message
MULTI|GET k|SET k 1|EXEC
MULTI|GET k|EXEC
MULTI|DEL other|EXEC
MULTI|SET k|EXEC
EVAL "return redis.call('set','k','x')" 0
EVAL "return redis.pcall('set','k','x')" 0
EVAL "return redis.call('get','k')" 0
EVAL "redis.call('del','nosuch'); return redis.call('set','k','x')" 0
EVAL "#!lua\\nreturn redis.call('get','k')" 0
EVAL "#!lua flags=allow-oom\\nreturn redis.call('set','k','y')" 0
EVAL "#!lua flags=no-writes\\nreturn redis.call('get','k')" 0
EVAL "#!lua flags=no-writes\\nreturn redis.call('set','k','z')" 0
EVAL_RO "return redis.call('get','k')" 0
EVAL_RO "#!lua\\nreturn redis.call('get','k')" 0
EVALSHA 4e57ac31150e548d8b8bd665ce2df34003d6560d 0
EVALSHA 0000000000000000000000000000000000000000 0
MULTI|EVAL "return redis.call('set','k','x')" 0|EXEC
MULTI|EVAL "#!lua\\nreturn redis.call('get','k')" 0|EXEC
CONFIG SET maxmemory 1%
CONFIG SET maxmemory -1
CONFIG SET maxmemory 1gbx
CONFIG SET maxmemory 2kb
CONFIG GET maxmemory
"""


def words_of(line: str) -> list[str]:
    """Split a command; a word in quotes contains spaces."""
    parts = line.split('"')
    words = []
    for number, part in enumerate(parts):
        words += [part.replace("\\n", "\n")] if number % 2 else part.split()
    return words


def replies(wire: Wire) -> Iterator[tuple[str, bytes]]:
    """Fill a server, lower its limit and yield each reply of `BEYOND`."""
    for line in FILLED.strip().splitlines():
        wire.ask(*words_of(line))
    assert wire.ask("CONFIG", "SET", "maxmemory", "1") == b"+OK\r\n"
    for line in BEYOND.strip().splitlines():
        for command in line.split("|"):
            yield f"{line}: {command}", wire.ask(*words_of(command))


@pytest.mark.peer
def test_replies_beyond_the_limit_are_those_of_redis(shared_peer: Callable[[str], Peer]) -> None:
    # Given Redis and a store with the same content and a limit that both exceed
    with (
        server_thread(Config(port=0, appendonly=False, save=())) as server,
        connected(server.port) as ours,
        connected(shared_peer("redis-8.2").port) as theirs,
    ):
        try:
            # When each command is sent
            expected, found = dict(replies(theirs)), dict(replies(ours))
        finally:
            theirs.ask("CONFIG", "SET", "maxmemory", "0")
    # Then every reply is the same
    assert found == expected


@pytest.mark.peer
def test_a_transaction_queued_before_the_limit_is_discarded(
    shared_peer: Callable[[str], Peer],
) -> None:
    script = "return redis.call('set','k','x')"
    found = {}
    with server_thread(Config(port=0, appendonly=False, save=())) as server:
        ports = {"ours": server.port, "theirs": shared_peer("redis-8.2").port}
        for name, port in ports.items():
            with connected(port) as one, connected(port) as admin:
                # Given a transaction that adds, and one whose script adds, both queued without a limit
                answers = []
                for command in (["SET", "k", "1"], ["EVAL", script, "0"]):
                    one.ask("MULTI")
                    one.ask(*command)
                    # When the limit is exceeded before EXEC
                    admin.ask("CONFIG", "SET", "maxmemory", "1")
                    answers.append(one.ask("EXEC"))
                    admin.ask("CONFIG", "SET", "maxmemory", "0")
                found[name] = answers
    # Then Redis discards the first as a whole, and so does the store
    assert found["ours"] == found["theirs"]
    assert found["ours"][0].startswith(b"-EXECABORT Transaction discarded because of: OOM")


@pytest.fixture
def full() -> LocalStore:
    """A store whose limit is exceeded."""
    store = LocalStore()
    client = store.client()
    client("XADD", "s", "1-1", "a", "b")
    client("XGROUP", "CREATE", "s", "g", "0")
    client("CONFIG", "SET", "maxmemory", "1")
    return store


@pytest.mark.parametrize(
    "name",
    [name for name, row in COMMANDS.items() if "denyoom" in row.flags and name != b"XSETTLE"],
    ids=bytes.decode,
)
def test_each_command_that_takes_memory_is_refused(name: bytes, full: LocalStore) -> None:
    # Given a store beyond its limit, and a request with enough arguments
    row = COMMANDS[name]
    words = [name, *[b"1"] * (abs(row.arity) - 1)]
    # When it is sent
    reply = full.client()(*words)
    # Then it is refused, whatever its arguments
    assert isinstance(reply, Failure)
    assert reply.text == OOM


def test_a_refused_command_changes_nothing_and_is_counted(full: LocalStore) -> None:
    client = full.client()
    # When an append is refused
    client("XADD", "s", "2-1", "a", "b")
    # Then the stream is as before, and INFO counts the refusal
    assert client("XLEN", "s") == 1
    errors = client("INFO", "errorstats")
    assert isinstance(errors, bytes)
    assert b"errorstat_OOM:count=1" in errors


def test_a_client_that_waits_is_served_beyond_the_limit() -> None:
    # Given a client that waits for an entry of a group, and a store beyond its limit
    store = LocalStore()
    client, waiting = store.client(), store.client()
    client("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    waiting.send("XREADGROUP", "GROUP", "g", "c", "BLOCK", 0, "STREAMS", "s", ">")
    client("CONFIG", "SET", "maxmemory", "1")
    # When a script that may exceed the limit appends an entry
    client("EVAL", "#!lua flags=allow-oom\nreturn redis.call('xadd','s','1-1','a','b')", 0)
    # Then the client gets it
    assert waiting.reply() == [[b"s", [[b"1-1", [b"a", b"b"]]]]]


def test_trimming_ends_the_refusals() -> None:
    # Given a store with a limit a little above what it uses
    store = LocalStore()
    client = store.client()
    used = store.node.services.memory.used()
    client("CONFIG", "SET", "maxmemory", used + 2 * 2**20)
    # When entries are appended until one is refused
    text = b"x" * 100_000
    replies = [client("XADD", "s", "*", "f", text) for _ in range(100)]
    refused = [reply for reply in replies if isinstance(reply, Failure)]
    assert 50 < len(refused) < 95
    # Then a trim makes room for the next
    client("XTRIM", "s", "MAXLEN", 1)
    assert not isinstance(client("XADD", "s", "*", "f", text), Failure)


def test_settling_goes_on_and_settling_with_new_entries_does_not(full: LocalStore) -> None:
    # Given a delivered entry of a store beyond its limit
    client = full.client()
    client("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">")
    # When it is settled with an entry for another stream, and then without
    settled: list[Word] = ["XSETTLE", "s", "g", "c", "ACK", "IDS", 1, "1-1"]
    refused = client(*settled, "TO", "out", "*", "FIELDS", 1, "a", "b")
    client("MULTI")
    queued = client(*settled)
    # Then only the first is refused
    assert isinstance(refused, Failure)
    assert refused.text == OOM
    assert queued == Simple(b"QUEUED")
    assert client("EXEC") == [[[1], []]]
