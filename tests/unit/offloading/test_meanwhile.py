"""Other clients' commands while a DUMP or RESTORE runs off the loop."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from headwater.commands import dump, restore
from headwater.common.steps import Steps
from headwater.engine.check import broken_invariants
from headwater.testing.node import LocalClient, LocalStore
from headwater.testing.replies import Failure, Nil
from tests.unit.offloading.jobs import (
    BUSY,
    ENTRIES,
    OK,
    dumped,
    fill,
    join,
    paused,
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
def test_a_dump_has_the_value_at_the_time_of_the_command(
    store: LocalStore,
    client: LocalClient,
    other: LocalClient,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
    sealed: bool,
) -> None:
    # Given a stream, hot or sealed
    sealing = store.node.keyspace.sealing
    sealing.block_bytes, sealing.least = 4096, 512
    fill(client)
    if sealed:
        sealing.configure(10_000, "zlib")
        while sealing.due():
            with store.node.lock:
                store.node.sealer.step()
                store.node.sealer.settle(1000)
    before = dumped(store)
    with paused(monkeypatch, dump, "_payload"):
        client.send("DUMP", "s")

        # When it is changed before the DUMP's job has begun, and all its blocks are sealed
        other(*command)
        with store.node.lock:
            sealing.configure(0, "zlib")
            sealing.help(1000)
            sealing.lag = 0
            sealing.help(1000)

    # Then the payload is that of the unchanged value
    assert settled(store, client) == before
    assert broken_invariants(store.node.keyspace) == []


def test_a_restore_is_refused_if_its_key_was_created_meanwhile(
    store: LocalStore, client: LocalClient, other: LocalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a RESTORE whose value is being built
    fill(client)
    payload = dumped(store)
    with paused(monkeypatch, restore, "_build"):
        client.send("RESTORE", "t", 0, payload)
        reach_build(store)

        # When another client creates the key
        other("SET", "t", "mine")
    groups = len(store.facts())

    # Then the RESTORE is refused, and has written nothing
    assert settled(store, client) == BUSY
    assert other("GET", "t") == b"mine"
    assert len(store.facts()) == groups
    assert broken_invariants(store.node.keyspace) == []


def test_a_restore_replaces_a_key_that_changed_meanwhile(
    store: LocalStore, client: LocalClient, other: LocalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a RESTORE whose value is being built
    fill(client)
    payload = dumped(store)
    watcher = store.client(kind="tcp")
    with paused(monkeypatch, restore, "_build"):
        client.send("RESTORE", "t", 0, payload, "REPLACE")
        reach_build(store)

        # When all keys are deleted, new streams and groups are created, and a client watches the key
        other("FLUSHALL")
        other("XGROUP", "CREATE", "t", "mine", "0", "MKSTREAM")
        other("XGROUP", "CREATE", "v", "mine", "0", "MKSTREAM")
        watcher("WATCH", "t")
    assert settled(store, client) == OK

    # Then the restored value is complete, and the watching client's transaction does not run
    assert dumped(store, "t") == payload
    watcher("MULTI")
    assert watcher("EXEC") is Nil.ARRAY
    assert broken_invariants(store.node.keyspace) == []
    store.crash()
    assert dumped(store, "t") == payload
    assert broken_invariants(store.node.keyspace) == []


def test_a_restored_key_may_expire_before_its_job_ends(
    store: LocalStore, client: LocalClient, other: LocalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a RESTORE with an absolute expiry, and one with a relative one
    fill(client)
    payload = dumped(store)
    at_ms = store.clock.now_ms() + 1000
    with paused(monkeypatch, restore, "_build"):
        client.send("RESTORE", "t", at_ms, payload, "ABSTTL")
        other.send("RESTORE", "u", 1000, payload)
        reach_build(store)

        # When both times pass
        store.clock.advance(2)

    # Then the first key has expired, and the second one's time begins when its value is there
    assert settled(store, client) == OK
    assert settled(store, other) == OK
    assert client("EXISTS", "t", "u") == 1
    assert client("PTTL", "u") == 1000


def test_a_restore_waits_for_the_end_of_a_pause(
    store: LocalStore, client: LocalClient, other: LocalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a RESTORE and a DUMP in progress
    fill(client)
    payload = dumped(store)
    reader = store.client(kind="tcp")
    with paused(monkeypatch, restore, "_read"):
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


def test_a_restore_is_refused_if_its_user_lost_the_permission(
    store: LocalStore, client: LocalClient, other: LocalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a user's RESTORE in progress
    fill(client)
    payload = dumped(store)
    admin = store.client()
    admin("ACL", "SETUSER", "al", "on", "nopass", "~*", "+@all")
    assert client("AUTH", "al", "x") == OK
    with paused(monkeypatch, restore, "_read"):
        client.send("RESTORE", "t", 0, payload)

        # When the user loses the permission for the key
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
    with paused(monkeypatch, restore, "_build"):
        client.send("RESTORE", "t", 0, payload)
        reach_build(store)

        # When the disk is full by the end of the job
        client.session.call.admission = lambda _size: "MISCONF no space left"
    refused = settled(store, client)

    # Then the RESTORE is refused, and nothing has changed
    assert isinstance(refused, Failure)
    assert refused.text.startswith(b"MISCONF")
    assert client("EXISTS", "t") == 0
    assert broken_invariants(store.node.keyspace) == []


def test_a_job_survives_debug_reload(
    store: LocalStore, client: LocalClient, other: LocalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a RESTORE whose value is being built
    fill(client)
    payload = dumped(store)
    with paused(monkeypatch, restore, "_build"):
        client.send("RESTORE", "t", 0, payload)
        reach_build(store)

        # When the journal is replayed into another keyspace, where other streams are created
        store.node.reload()
        other("XGROUP", "CREATE", "v", "mine", "0", "MKSTREAM")
        other("XGROUP", "CREATE", "w", "mine", "0", "MKSTREAM")

    # Then the stream is there, and no number was assigned twice
    assert settled(store, client) == OK
    assert dumped(store, "t") == payload
    assert broken_invariants(store.node.keyspace) == []
    store.crash()
    assert dumped(store, "t") == payload


def test_streams_restored_at_the_same_time_have_different_numbers(
    store: LocalStore, client: LocalClient, other: LocalClient
) -> None:
    # Given two clients that send a RESTORE each
    fill(client)
    payload = dumped(store)
    client.send("RESTORE", "t", 0, payload)
    other.send("RESTORE", "u", 0, payload)

    # Then both streams are there
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
    # Given three queued RESTOREs, of which the first is to be built next
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

    # When the thread continues, then it builds that value before it reads the third payload
    go_on.set()
    assert [settled(store, one) for one in (client, other, third)] == [OK, OK, OK]
    assert done[:3] == ["read", "read", "build"]
    assert sorted(done) == ["build"] * 3 + ["read"] * 3
