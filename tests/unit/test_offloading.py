"""Jobs off the loop: DUMP and RESTORE of large values, and what may happen while one is under way.

The client is of kind ``tcp``: an embedded one does its jobs itself. `settled` waits for the thread, then
gives the node the tick that the driver of a server gives it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headwater.commands import dumping, restoring
from headwater.engine.check import broken_invariants
from headwater.errors import NodePoisoned
from headwater.server.reloading import reload_from_journal
from headwater.steps import Steps
from headwater.testing.node import LocalClient, LocalStore
from headwater.testing.replies import Failure, Nil, Reply, Simple

ENTRIES = 3000
OK = Simple(b"OK")
BUSY = Failure(b"BUSYKEY Target key name already exists.")


@pytest.fixture
def store() -> Iterator[LocalStore]:
    made = LocalStore()
    yield made
    made.node.blocked.offloading.stop()


@pytest.fixture
def client(store: LocalStore) -> LocalClient:
    return store.client(kind="tcp")


@pytest.fixture
def other(store: LocalStore) -> LocalClient:
    return store.client(kind="tcp")


def fill(client: LocalClient, key: str = "s", entries: int = ENTRIES) -> None:
    """A stream with a group; two thirds of its entries are pending, of ten consumers."""
    for number in range(1, entries + 1):
        client.send("XADD", key, f"{number}-0", "field", number, "user", f"u{number % 97}")
    client.send("XGROUP", "CREATE", key, "g", "0")
    for at in range(20):
        read = ("COUNT", entries // 30, "STREAMS", key, ">")
        client.send("XREADGROUP", "GROUP", "g", f"c{at % 10}", *read)
    client.session.take_bytes()
    while client.reply() is not None:
        pass


def dumped(store: LocalStore, key: str = "s") -> bytes:
    """The payload, made by an embedded client on the spot."""
    payload = store.client()("DUMP", key)
    assert isinstance(payload, bytes)
    return payload


def shown(store: LocalStore, key: str) -> Reply:
    return store.client()("XINFO", "STREAM", key, "FULL", "COUNT", 0)


def settled(store: LocalStore, client: LocalClient) -> Reply:
    """The reply of the client that waits for a job."""
    while client.session in store.node.blocked.offloading:
        join(store)
        store.node.tick()
    found = client.reply()
    assert found is not None
    return found


def join(store: LocalStore) -> None:
    """Wait until the thread has done all that is in its line."""
    store.node.blocked.offloading.rest()


def reach_build(store: LocalStore) -> None:
    """Let the payload be read; the node has its value built next."""
    join(store)
    store.node.tick()


@contextmanager
def held(monkeypatch: pytest.MonkeyPatch, module: object, name: str) -> Iterator[None]:
    """The steps of a job do not begin before the end of this block."""
    go_on = threading.Event()
    steps = getattr(module, name)

    def wait_first(*values: object) -> Steps[object]:
        go_on.wait()
        yield
        return (yield from steps(*values))

    monkeypatch.setattr(module, name, wait_first)
    try:
        yield
    finally:
        go_on.set()
        monkeypatch.setattr(module, name, steps)


# --- the same as on the spot ------------------------------------------------------------------------


def test_a_large_dump_is_what_is_dumped_on_the_spot(store: LocalStore, client: LocalClient) -> None:
    # Given a large stream
    fill(client)

    # When it is dumped by a client that can wait
    client.send("DUMP", "s")
    assert client.reply() is None

    # Then its payload is that of one that cannot, and within a transaction
    payload = dumped(store)
    assert settled(store, client) == payload
    client("MULTI")
    client("DUMP", "s")
    assert client("EXEC") == [payload]


def test_a_large_restore_makes_what_is_restored_on_the_spot(
    store: LocalStore, client: LocalClient
) -> None:
    # Given the payload of a large stream
    fill(client)
    payload = dumped(store)
    groups = len(store.facts())

    # When it is restored off the loop, over another key and with a time
    client("SET", "t", "old")
    client.send("RESTORE", "t", 60_000, payload, "REPLACE")
    assert client.reply() is None
    assert settled(store, client) == OK

    # Then all of it is there, with a time, in one record group, and after a crash as well
    store.client()("RESTORE", "u", 0, payload)
    assert len(store.facts()) == groups + 3
    assert dumped(store, "t") == dumped(store, "u") == payload
    assert shown(store, "t") == shown(store, "u")
    assert broken_invariants(store.node.keyspace) == []
    store.crash()
    assert dumped(store, "t") == dumped(store, "u") == payload
    assert broken_invariants(store.node.keyspace) == []
    assert store.client()("PTTL", "t") == 60_000


def test_a_restored_stream_goes_on_like_any_other(store: LocalStore, client: LocalClient) -> None:
    # Given a large stream with delayed and released entries, restored off the loop
    fill(client)
    client("XSETTLE", "s", "g", "DELAY", 5000, "IDS", 1, "7-0")
    client("XNACK", "s", "g", "SILENT", "IDS", 1, "8-0")
    client.send("RESTORE", "t", 0, dumped(store))
    assert settled(store, client) == OK

    # When its group reads on, entries come and go, and time passes
    assert client("XADD", "t", "99999-0", "a", "1") == b"99999-0"
    assert client("XDEL", "t", "99999-0") == 1
    assert client("XACK", "t", "g", "1-0") == 1
    store.advance(6)

    # Then it does what a stream does, and the source is untouched
    assert broken_invariants(store.node.keyspace) == []
    assert client("XLEN", "t") == client("XLEN", "s") == ENTRIES
    client("DEL", "t")
    while store.node.keyspace.garbage:
        store.node.tick()
    assert broken_invariants(store.node.keyspace) == []


@pytest.mark.parametrize("kind", ["list", "set", "hash", "string"])
def test_large_values_of_other_types_come_and_go(
    store: LocalStore, client: LocalClient, kind: str
) -> None:
    # Given a large value
    texts = [f"{kind}-{number * 7919 % 5003}" for number in range(5000)]
    if kind == "list":
        client("RPUSH", "k", *texts)
    elif kind == "set":
        client("SADD", "k", *texts)
    elif kind == "hash":
        client("HSET", "k", *(part for text in texts for part in (text, "v")))
    else:
        client("SET", "k", "x" * 300_000)

    # When it is dumped and restored off the loop, over a value of its type
    client.send("DUMP", "k")
    payload = settled(store, client)
    assert payload == dumped(store, "k")
    client("COPY", "k", "l")
    client.send("RESTORE", "l", 0, payload, "REPLACE")
    assert settled(store, client) == OK

    # Then it is the same, after a crash as well
    assert dumped(store, "l") == payload
    store.crash()
    assert dumped(store, "l") == payload
    assert broken_invariants(store.node.keyspace) == []


# --- who waits --------------------------------------------------------------------------------------


def test_requests_behind_a_job_wait_and_others_are_served(
    store: LocalStore, client: LocalClient, other: LocalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a client that has sent more behind its DUMP
    fill(client)
    with held(monkeypatch, dumping, "_payload"):
        client.send("DUMP", "s")
        client.send("PING")

        # When others are served meanwhile, then it waits, and does not count as blocked
        assert other("PING") == Simple(b"PONG")
        assert client.reply() is None
        info = other("INFO", "clients")
        assert isinstance(info, bytes)
        assert b"blocked_clients:0\r\n" in info
        listed = other("CLIENT", "LIST", "ID", client.session.id)
        assert isinstance(listed, bytes)
        assert b" flags=N " in listed
        assert other("CLIENT", "UNBLOCK", client.session.id) == 0
    assert settled(store, client) == dumped(store)
    assert client.reply() == Simple(b"PONG")


def test_a_job_of_a_client_that_has_gone_changes_nothing(
    store: LocalStore, client: LocalClient, other: LocalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a RESTORE under way, once while its payload is read and once while its value is built
    fill(client)
    payload = dumped(store)
    for name in ("_read", "_build"):
        leaving = store.client(kind="tcp")
        with held(monkeypatch, restoring, name):
            leaving.send("RESTORE", "t", 0, payload)
            if name == "_build":
                reach_build(store)

            # When its client goes
            leaving.close()
        join(store)
        store.node.tick()

        # Then nothing comes of it, and the next one is served
        assert len(store.node.blocked.offloading) == 0
        assert other("EXISTS", "t") == 0
    other.send("RESTORE", "t", 0, payload)
    assert settled(store, other) == OK


def test_a_killed_client_gets_no_reply_and_its_restore_is_dropped(
    store: LocalStore, client: LocalClient, other: LocalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a RESTORE under way
    fill(client)
    payload = dumped(store)
    with held(monkeypatch, restoring, "_read"):
        client.send("RESTORE", "t", 0, payload)

        # When its client is killed
        assert other("CLIENT", "KILL", "ID", client.session.id) == 1
    join(store)
    store.node.tick()

    # Then nothing is there
    assert client.reply() is None
    assert other("EXISTS", "t") == 0
    assert client.session.blocked is None


@pytest.mark.parametrize("mode", ["OFF", "SKIP"])
def test_a_job_of_a_client_that_wants_no_reply_is_not_answered(
    store: LocalStore, client: LocalClient, mode: str
) -> None:
    fill(client)
    client.send("CLIENT", "REPLY", mode)
    client.send("DUMP", "s")
    join(store)
    store.node.tick()
    assert client.reply() is None
    client.send("CLIENT", "REPLY", "ON")
    assert client.reply() == OK


# --- what others do meanwhile -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        ("DEL", "s"),
        ("FLUSHALL",),
        ("RENAME", "s", "elsewhere"),
        ("XTRIM", "s", "MAXLEN", "0"),
        ("XDEL", "s", *(f"{number}-0" for number in range(2, ENTRIES, 2))),
        ("XADD", "s", "99999-0", "a", "1"),
        ("XGROUP", "DESTROY", "s", "g"),
        ("XACK", "s", "g", *(f"{number}-0" for number in range(1, 500))),
        ("XAUTOCLAIM", "s", "g", "thief", "0", "0", "COUNT", "1000"),
    ],
    ids=lambda command: " ".join(command[:2]),
)
@pytest.mark.parametrize("sealed", [False, True], ids=["hot", "sealed"])
def test_a_dump_is_of_the_value_as_it_was(
    store: LocalStore,
    client: LocalClient,
    other: LocalClient,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
    sealed: bool,
) -> None:
    # Given a stream that is dumped
    sealing = store.node.keyspace.sealing
    sealing.block_bytes, sealing.least = 4096, 512
    fill(client)
    if sealed:
        sealing.configure(10_000, "zlib")
        while sealing.due():
            store.node.sealer.step()
    before = dumped(store)
    with held(monkeypatch, dumping, "_payload"):
        client.send("DUMP", "s")

        # When it is changed before that has begun, and all its blocks are sealed
        other(*command)
        sealing.configure(0, "zlib")
        sealing.help(1000)
        sealing.lag = 0
        sealing.help(1000)

    # Then the payload is that of the value as it was
    assert settled(store, client) == before
    assert broken_invariants(store.node.keyspace) == []


def test_a_key_that_comes_meanwhile_refuses_a_restore(
    store: LocalStore, client: LocalClient, other: LocalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a RESTORE whose value is being built
    fill(client)
    payload = dumped(store)
    with held(monkeypatch, restoring, "_build"):
        client.send("RESTORE", "t", 0, payload)
        reach_build(store)

        # When the key comes to be
        other("SET", "t", "mine")
    groups = len(store.facts())

    # Then it is refused, and has written nothing
    assert settled(store, client) == BUSY
    assert other("GET", "t") == b"mine"
    assert len(store.facts()) == groups
    assert broken_invariants(store.node.keyspace) == []


def test_a_restore_is_put_over_what_others_have_changed(
    store: LocalStore, client: LocalClient, other: LocalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a RESTORE whose value is being built
    fill(client)
    payload = dumped(store)
    watcher = store.client(kind="tcp")
    with held(monkeypatch, restoring, "_build"):
        client.send("RESTORE", "t", 0, payload, "REPLACE")
        reach_build(store)

        # When all keys go, others come with streams and groups of their own, and one watches
        other("FLUSHALL")
        other("XGROUP", "CREATE", "t", "mine", "0", "MKSTREAM")
        other("XGROUP", "CREATE", "v", "mine", "0", "MKSTREAM")
        watcher("WATCH", "t")
    assert settled(store, client) == OK

    # Then it is there wholly, and its watcher's transaction does not run
    assert dumped(store, "t") == payload
    watcher("MULTI")
    assert watcher("EXEC") is Nil.ARRAY
    assert broken_invariants(store.node.keyspace) == []
    store.crash()
    assert dumped(store, "t") == payload
    assert broken_invariants(store.node.keyspace) == []


def test_a_time_that_comes_meanwhile_ends_a_restore(
    store: LocalStore, client: LocalClient, other: LocalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a RESTORE with an absolute time, and one with a relative one
    fill(client)
    payload = dumped(store)
    at_ms = store.clock.now_ms() + 1000
    with held(monkeypatch, restoring, "_build"):
        client.send("RESTORE", "t", at_ms, payload, "ABSTTL")
        other.send("RESTORE", "u", 1000, payload)
        reach_build(store)

        # When more time passes than that
        store.clock.advance(2)

    # Then the first is over, and the second begins when its value is there
    assert settled(store, client) == OK
    assert settled(store, other) == OK
    assert client("EXISTS", "t", "u") == 1
    assert client("PTTL", "u") == 1000


def test_a_restore_waits_for_the_end_of_a_pause(
    store: LocalStore, client: LocalClient, other: LocalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a RESTORE and a DUMP under way
    fill(client)
    payload = dumped(store)
    reader = store.client(kind="tcp")
    with held(monkeypatch, restoring, "_read"):
        client.send("RESTORE", "t", 0, payload)
        reader.send("DUMP", "s")

        # When writes are paused
        other("CLIENT", "PAUSE", 100_000, "WRITE")
    assert settled(store, reader) == payload
    join(store)
    store.node.tick()

    # Then the RESTORE waits until the pause ends
    assert client.reply() is None
    assert other("EXISTS", "t") == 0
    other("CLIENT", "UNPAUSE")
    assert settled(store, client) == OK


def test_a_user_that_may_no_longer_is_refused(
    store: LocalStore, client: LocalClient, other: LocalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a RESTORE of a user under way
    fill(client)
    payload = dumped(store)
    admin = store.client()
    admin("ACL", "SETUSER", "al", "on", "nopass", "~*", "+@all")
    assert client("AUTH", "al", "x") == OK
    with held(monkeypatch, restoring, "_read"):
        client.send("RESTORE", "t", 0, payload)

        # When the key is taken from its user
        admin("ACL", "SETUSER", "al", "resetkeys", "~s")

    # Then it is refused
    refused = settled(store, client)
    assert isinstance(refused, Failure)
    assert refused.text.startswith(b"NOPERM")
    assert other("EXISTS", "t") == 0


def test_a_restore_is_refused_when_the_journal_has_no_room(
    store: LocalStore, client: LocalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a RESTORE whose value is being built
    fill(client)
    payload = dumped(store)
    with held(monkeypatch, restoring, "_build"):
        client.send("RESTORE", "t", 0, payload)
        reach_build(store)

        # When the disk is full by then
        client.session.call.admission = lambda _size: "no space left"
    refused = settled(store, client)

    # Then it is refused, and nothing has changed
    assert isinstance(refused, Failure)
    assert refused.text.startswith(b"MISCONF")
    assert client("EXISTS", "t") == 0
    assert broken_invariants(store.node.keyspace) == []


def test_a_reload_meanwhile_loses_no_job(
    store: LocalStore, client: LocalClient, other: LocalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a RESTORE whose value is being built, and numbers of streams that were given meanwhile
    fill(client)
    payload = dumped(store)
    with held(monkeypatch, restoring, "_build"):
        client.send("RESTORE", "t", 0, payload)
        reach_build(store)

        # When the journal is replayed into another keyspace, where other streams are made
        reload_from_journal(store.node)
        other("XGROUP", "CREATE", "v", "mine", "0", "MKSTREAM")
        other("XGROUP", "CREATE", "w", "mine", "0", "MKSTREAM")

    # Then the stream is there, and nobody's number was given twice
    assert settled(store, client) == OK
    assert dumped(store, "t") == payload
    assert broken_invariants(store.node.keyspace) == []
    store.crash()
    assert dumped(store, "t") == payload


def test_streams_restored_at_the_same_time_have_numbers_of_their_own(
    store: LocalStore, client: LocalClient, other: LocalClient
) -> None:
    # Given two clients that restore
    fill(client)
    payload = dumped(store)
    client.send("RESTORE", "t", 0, payload)
    other.send("RESTORE", "u", 0, payload)

    # Then both are there
    assert settled(store, client) == OK
    assert settled(store, other) == OK
    assert dumped(store, "t") == dumped(store, "u") == payload
    assert broken_invariants(store.node.keyspace) == []
    store.crash()
    assert broken_invariants(store.node.keyspace) == []


# --- what goes wrong --------------------------------------------------------------------------------


def test_a_broken_payload_is_refused_with_the_same_error(
    store: LocalStore, client: LocalClient
) -> None:
    # Given large payloads, one with another checksum, one with a sound one and no sound value
    fill(client)
    payload = bytearray(dumped(store))
    payload[-1] ^= 1
    client.send("RESTORE", "t", 0, bytes(payload))
    assert settled(store, client) == Failure(b"ERR DUMP payload version or checksum are wrong")
    assert client("EXISTS", "t") == 0


def test_a_fault_of_a_job_is_an_error_and_never_a_hang(
    store: LocalStore,
    client: LocalClient,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Given a job that fails in a way that nobody has foreseen
    fill(client)

    def fail(*_values: object) -> Steps[bytes]:
        yield
        raise ZeroDivisionError("planted")

    with monkeypatch.context() as planted, caplog.at_level(logging.ERROR):
        planted.setattr(dumping, "_payload", fail)
        client.send("DUMP", "s")
        refused = settled(store, client)

    # Then its client is told, the log says why, and the store goes on
    assert isinstance(refused, Failure)
    assert refused.text.startswith(b"ERR internal error")
    assert "planted" in caplog.text
    client.send("DUMP", "s")
    assert isinstance(settled(store, client), bytes)


def test_a_poisoned_node_answers_who_waits_for_a_job(
    store: LocalStore, client: LocalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a RESTORE under way
    fill(client)
    payload = dumped(store)
    with held(monkeypatch, restoring, "_read"):
        client.send("RESTORE", "t", 0, payload)

        # When the journal fails
        store.node.poisoned = NodePoisoned("planted")

    # Then its client hears of it
    refused = settled(store, client)
    assert isinstance(refused, Failure)
    assert refused.text.startswith(b"MISCONF")


def test_the_end_of_a_node_ends_its_jobs(
    store: LocalStore, client: LocalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a RESTORE under way
    fill(client)
    payload = dumped(store)
    with held(monkeypatch, restoring, "_read"):
        client.send("RESTORE", "t", 0, payload)
        closing = threading.Thread(target=store.node.close)
        closing.start()
    closing.join()

    # Then the node is closed, and nothing of the key stands in its journal
    store.crash()
    assert store.client()("EXISTS", "t") == 0
    assert dumped(store) == payload


def test_a_job_that_is_done_leaves_nothing_behind(store: LocalStore, client: LocalClient) -> None:
    # Given a store in which large values were restored, replaced and refused
    fill(client)
    payload = dumped(store)
    client.send("RESTORE", "t", 0, payload)
    assert settled(store, client) == OK
    hot = store.node.keyspace.sealing.hot_bytes + store.node.keyspace.sealing.kept_bytes
    for _ in range(3):
        client.send("RESTORE", "t", 0, payload, "REPLACE")
        assert settled(store, client) == OK
        while store.node.keyspace.garbage:
            store.node.tick()

    # Then its books hold what is there
    sealing = store.node.keyspace.sealing
    assert sealing.hot_bytes + sealing.kept_bytes == hot
    assert broken_invariants(store.node.keyspace) == []
