"""What others do while a DUMP or RESTORE is under way off the loop."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from headwater.commands import dump, restore
from headwater.engine.check import broken_invariants
from headwater.steps import Steps
from headwater.testing.node import LocalClient, LocalStore
from headwater.testing.replies import Failure, Nil
from tests.unit.offloading.jobs import (
    BUSY,
    ENTRIES,
    OK,
    dumped,
    fill,
    held,
    join,
    reach_build,
    settled,
)


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
            with store.node.lock:  # its thread makes steps of its own
                store.node.sealer.step()
    before = dumped(store)
    with held(monkeypatch, dump, "_payload"):
        client.send("DUMP", "s")

        # When it is changed before that has begun, and all its blocks are sealed
        other(*command)
        with store.node.lock:
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
    with held(monkeypatch, restore, "_build"):
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
    with held(monkeypatch, restore, "_build"):
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
    with held(monkeypatch, restore, "_build"):
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
    with held(monkeypatch, restore, "_read"):
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
    with held(monkeypatch, restore, "_read"):
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
    with held(monkeypatch, restore, "_build"):
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
    with held(monkeypatch, restore, "_build"):
        client.send("RESTORE", "t", 0, payload)
        reach_build(store)

        # When the journal is replayed into another keyspace, where other streams are made
        store.node.reload()
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


def test_a_value_is_built_before_further_payloads_are_read(
    store: LocalStore,
    client: LocalClient,
    other: LocalClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Given three RESTOREs in line, the first of which is to be built
    fill(client)
    payload = dumped(store)
    third = store.client(kind="tcp")
    done: list[str] = []
    go_on = threading.Event()
    read, build = restore._read, restore._build

    def reading(*values: Any) -> Steps[Any]:
        done.append("read")
        if len(done) == 2:
            go_on.wait()
        return (yield from read(*values))

    def building(*values: Any) -> Steps[Any]:
        done.append("build")
        return (yield from build(*values))

    monkeypatch.setattr(restore, "_read", reading)
    monkeypatch.setattr(restore, "_build", building)
    for number, one in enumerate((client, other, third)):
        one.send("RESTORE", f"t{number}", 0, payload)
    while done != ["read", "read"]:
        time.sleep(0.001)
    store.node.tick()

    # When the thread goes on, then it builds that value before it reads the third payload
    go_on.set()
    assert [settled(store, one) for one in (client, other, third)] == [OK, OK, OK]
    assert done[:3] == ["read", "read", "build"]
    assert sorted(done) == ["build"] * 3 + ["read"] * 3
