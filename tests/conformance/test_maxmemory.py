"""Beyond maxmemory, commands that take more memory are refused as in Redis, and all others go on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from random import Random

import pytest

from headwater.commands.table import COMMANDS
from headwater.config.config import Config
from headwater.server.services.memory_use import STARTUP_BYTES
from headwater.server.services.storage import sealer
from headwater.testing.node import LocalStore, Word, request
from headwater.testing.replies import Failure, Simple
from headwater.testing.server import server_thread
from tests.conformance.wire import Wire, connected
from tests.peers import Peer
from tests.unit.cold import PATIENCE_S

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


def queued_until_refused(wire: Wire, admin: Wire) -> list[bytes]:
    """Queue values until the limit, 3 MB above what is used, is exceeded. Return all replies from there on."""
    info = dict(
        line.split(b":", 1) for line in admin.ask("INFO", "memory").split(b"\r\n") if b":" in line
    )
    admin.ask("CONFIG", "SET", "maxmemory", str(int(info[b"used_memory"]) + 3_000_000))
    wire.ask("MULTI")
    replies = [wire.ask("SET", "k", "v" * 100_000) for _ in range(60)]
    accepted = replies.count(b"+QUEUED\r\n")
    assert 5 < accepted < 40
    after = [reply for reply in replies[accepted:] if reply == b"+QUEUED\r\n"]
    after += [wire.ask("GET", "k"), wire.ask("SET", "k", "v" * 100_000), wire.ask("EXEC")]
    return [*after, admin.ask("SET", "k", "v")]


@pytest.mark.peer
def test_a_queue_counts_towards_the_limit(shared_peer: Callable[[str], Peer]) -> None:
    # Given Redis and a store
    with server_thread(Config(port=0, appendonly=False, save=())) as server:
        found = []
        for port in (server.port, shared_peer("redis-8.2").port):
            with connected(port) as wire, connected(port) as admin:
                # When a client queues more than the limit allows
                try:
                    found.append(queued_until_refused(wire, admin))
                finally:
                    admin.ask("CONFIG", "SET", "maxmemory", "0")
    # Then commands that need memory are refused, and the transaction is discarded, as in Redis
    first_words = [[reply.split()[0] for reply in replies] for replies in found]
    assert first_words[0] == first_words[1] == [b"+QUEUED", b"-OOM", b"-EXECABORT", b"+OK"]


@pytest.mark.parametrize("end", ["EXEC", "DISCARD", "RESET"])
def test_a_queue_refuses_the_commands_of_others_until_it_ends(end: str) -> None:
    # Given a client whose queue exceeds the limit
    store = limited(2 * 2**20, journaled=False)
    queueing, other = store.client(), store.client()
    queueing("MULTI")
    replies = [queueing("SET", f"k{n}", b"v" * 100_000) for n in range(30)]
    assert 15 < replies.count(Simple(b"QUEUED")) < 25
    # When others send commands that need memory, in the same moment
    refused = other("SET", "another", "v")
    # Then they are refused, and served when the queue is gone
    assert isinstance(refused, Failure)
    assert refused.text == OOM
    queueing(end)
    assert other("SET", "another", "v") == Simple(b"OK")


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
    # Given a store that neither stores nor compresses entries, with a limit a little above what it uses
    store = LocalStore(config=Config(port=0, stream_compression="none"), journaled=False)
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


def limited(room_bytes: int, *, journaled: bool = True) -> LocalStore:
    """Return a store with a limit that is ``room_bytes`` above what it uses."""
    store = LocalStore(config=Config(port=0, stream_compression="zlib"), journaled=journaled)
    used = store.node.services.memory.used()
    store.client()("CONFIG", "SET", "maxmemory", used + room_bytes)
    return store


@pytest.mark.slow
def test_a_history_on_disk_never_causes_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a store with a limit of a few entries, and a disk for which turns wait as long as it takes
    monkeypatch.setattr(sealer, "RELIEF_S", PATIENCE_S)
    store = limited(2 * 2**20)
    client, noise = store.client(), Random(1)
    # When ten times as much is appended that cannot be compressed
    replies = [client("XADD", "s", "*", "f", noise.randbytes(100_000)) for _ in range(200)]
    # Then every entry is accepted, and the older ones are on disk
    assert not [reply for reply in replies if isinstance(reply, Failure)]
    assert client("XLEN", "s") == 200
    assert store.node.keyspace.sealing.stored_size > 15_000_000
    assert store.node.services.memory.used() <= store.node.services.memory.limit


class _NeverAwaited(threading.Event):
    def wait(self, timeout: float | None = None) -> bool:
        raise AssertionError("a turn waits for the disk")


def test_no_turn_waits_for_the_disk_if_other_data_fills_the_memory() -> None:
    # Given a store whose memory is nearly full of strings
    store = limited(4 * 2**20)
    client, node = store.client(), store.node
    for number in range(38):
        assert client("SET", f"k{number}", b"x" * 100_000) == Simple(b"OK")
    assert node.services.memory.is_tight
    # When small entries are appended, whose blocks are stored at once
    node.sealer._reported = _NeverAwaited()
    for _ in range(30):
        assert not isinstance(client("XADD", "s", "*", "f", b"y" * 2000), Failure)
    # Then no turn waits, because that would free little
    assert node.state.poisoned is None
    assert not node.services.memory.is_pressing


def test_a_command_compresses_entries_before_it_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Given a store without a disk and a thread that does nothing, with a limit of a few entries
    monkeypatch.setattr(sealer, "MAX_QUEUED", 0)
    store = limited(2 * 2**20, journaled=False)
    client = store.client()
    # When ten times as much is appended, in turns of several entries
    text = b"words that are repeated " * 2000
    sent = b"".join(request(("XADD", "s", "*", "f", text)) for _ in range(10))
    replies = [store.node.exchange(client.session, sent) for _ in range(40)]
    # Then every entry is accepted
    assert OOM not in b"".join(replies)
    assert client("XLEN", "s") == 400


def test_a_limit_bounds_what_stays_uncompressed() -> None:
    # Given a store without a limit
    store = LocalStore()
    client, sealing = store.client(), store.node.keyspace.sealing
    budget, lag = sealing.budget, sealing.lag
    # When it gets one
    used = store.node.services.memory.used()
    client("CONFIG", "SET", "maxmemory", used + 100 * 2**20)
    # Then hot entries and those that wait for compression take a part of it
    assert 50 * 2**20 <= sealing.budget < 0.6 * 100 * 2**20 + (used - STARTUP_BYTES)
    assert sealing.budget + sealing.lag < used + 100 * 2**20 - STARTUP_BYTES
    # And less if the setting says so
    client("CONFIG", "SET", "stream-hot-bytes", "1mb")
    assert sealing.budget == 2**20
    # And the settings alone count without a limit
    client("CONFIG", "SET", "stream-hot-bytes", budget)
    client("CONFIG", "SET", "maxmemory", 0)
    assert (sealing.budget, sealing.lag) == (budget, lag)


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
