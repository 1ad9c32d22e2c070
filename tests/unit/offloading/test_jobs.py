"""Offloaded jobs have the same results as immediate ones, their clients wait, and nothing hangs."""

from __future__ import annotations

import logging
import os
import threading

import pytest

from headwater.commands import dump, restore
from headwater.commands.call import Call
from headwater.common.steps import Steps
from headwater.engine.check import broken_invariants
from headwater.errors import ForkedStore, NodePoisoned
from headwater.testing.node import LocalClient, LocalStore
from headwater.testing.replies import Failure, Simple
from tests.unit.offloading.jobs import (
    ENTRIES,
    OK,
    dumped,
    fill,
    join,
    paused,
    reach_build,
    settled,
    shown,
)

# --- the same results as immediate jobs --------------------------------------------------------------


def test_an_offloaded_dump_equals_an_immediate_one(store: LocalStore, client: LocalClient) -> None:
    # Given a large stream
    fill(client)

    # When it is dumped by a client that can wait
    client.send("DUMP", "s")
    assert client.reply() is None

    # Then its payload equals that of an embedded client and that in a transaction
    payload = dumped(store)
    assert settled(store, client) == payload
    client("MULTI")
    client("DUMP", "s")
    assert client("EXEC") == [payload]


@pytest.mark.slow
def test_an_offloaded_restore_equals_an_immediate_one(
    store: LocalStore, client: LocalClient
) -> None:
    # Given the payload of a large stream
    fill(client)
    payload = dumped(store)
    groups = len(store.facts())

    # When it is restored off the loop, over another key and with a time to live
    client("SET", "t", "old")
    client.send("RESTORE", "t", 60_000, payload, "REPLACE")
    assert client.reply() is None
    assert settled(store, client) == OK

    # Then all of it is there, with its time to live, in one record group, and after a crash as well
    store.client()("RESTORE", "u", 0, payload)
    assert len(store.facts()) == groups + 3
    assert dumped(store, "t") == dumped(store, "u") == payload
    assert shown(store, "t") == shown(store, "u")
    assert broken_invariants(store.node.keyspace) == []
    store.crash()
    assert dumped(store, "t") == dumped(store, "u") == payload
    assert broken_invariants(store.node.keyspace) == []
    assert store.client()("PTTL", "t") == 60_000


def test_a_restored_stream_behaves_like_any_other(store: LocalStore, client: LocalClient) -> None:
    # Given a large stream with delayed and released entries, restored off the loop
    fill(client)
    client("XSETTLE", "s", "g", "DELAY", 5000, "IDS", 1, "7-0")
    client("XNACK", "s", "g", "SILENT", "IDS", 1, "8-0")
    client.send("RESTORE", "t", 0, dumped(store))
    assert settled(store, client) == OK

    # When its group reads, entries are added and removed, and time passes
    assert client("XADD", "t", "99999-0", "a", "1") == b"99999-0"
    assert client("XDEL", "t", "99999-0") == 1
    assert client("XACK", "t", "g", "1-0") == 1
    store.advance(6)

    # Then it behaves like any stream, and the source is unchanged
    assert broken_invariants(store.node.keyspace) == []
    assert client("XLEN", "t") == client("XLEN", "s") == ENTRIES
    client("DEL", "t")
    while store.node.keyspace.garbage:
        store.node.tick()
    assert broken_invariants(store.node.keyspace) == []


@pytest.mark.parametrize("kind", ["list", "set", "hash", "string"])
def test_large_values_of_other_types_are_dumped_and_restored(
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

    # Then it is the same value, after a crash as well
    assert dumped(store, "l") == payload
    store.crash()
    assert dumped(store, "l") == payload
    assert broken_invariants(store.node.keyspace) == []


# --- which clients wait -----------------------------------------------------------------------------


def test_requests_after_a_job_wait_and_other_clients_are_served(
    store: LocalStore, client: LocalClient, other: LocalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a client that has sent more requests after its DUMP
    fill(client)
    with paused(monkeypatch, dump, "_payload"):
        client.send("DUMP", "s")
        client.send("PING")

        # When other clients are served meanwhile, then it waits and does not count as blocked
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


def test_a_job_of_a_disconnected_client_changes_nothing(
    store: LocalStore, client: LocalClient, other: LocalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a RESTORE in progress, once while its payload is read and once while its value is built
    fill(client)
    payload = dumped(store)
    for name in ("_read", "_build"):
        leaving = store.client(kind="tcp")
        with paused(monkeypatch, restore, name):
            leaving.send("RESTORE", "t", 0, payload)
            if name == "_build":
                reach_build(store)

            # When its client disconnects
            leaving.close()
        join(store)
        store.node.tick()

        # Then the job is dropped, and the next one is served
        assert len(store.node.blocked.offloading) == 0
        assert other("EXISTS", "t") == 0
    other.send("RESTORE", "t", 0, payload)
    assert settled(store, other) == OK


def test_a_killed_client_gets_no_reply_and_its_restore_is_dropped(
    store: LocalStore, client: LocalClient, other: LocalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a RESTORE in progress
    fill(client)
    payload = dumped(store)
    with paused(monkeypatch, restore, "_read"):
        client.send("RESTORE", "t", 0, payload)

        # When its client is killed
        assert other("CLIENT", "KILL", "ID", client.session.id) == 1
    join(store)
    store.node.tick()

    # Then there is no reply and no key
    assert client.reply() is None
    assert other("EXISTS", "t") == 0
    assert not client.session.blocked


@pytest.mark.parametrize("mode", ["OFF", "SKIP"])
def test_a_job_of_a_client_without_replies_is_not_answered(
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


# --- failures ---------------------------------------------------------------------------------------


def test_a_broken_payload_is_refused_with_the_same_error(
    store: LocalStore, client: LocalClient
) -> None:
    # Given a large payload with a wrong checksum
    fill(client)
    payload = bytearray(dumped(store))
    payload[-1] ^= 1
    client.send("RESTORE", "t", 0, bytes(payload))
    assert settled(store, client) == Failure(b"ERR DUMP payload version or checksum are wrong")
    assert client("EXISTS", "t") == 0


def in_a_step(*_values: object) -> Steps[bytes]:
    yield
    raise ZeroDivisionError("planted")


def at_the_end(_call: Call, _payload: bytes) -> None:
    raise ZeroDivisionError("planted")


@pytest.mark.parametrize(("name", "fault"), [("_payload", in_a_step), ("_answer", at_the_end)])
def test_an_unexpected_exception_in_a_job_is_an_error_reply(
    name: str,
    fault: object,
    store: LocalStore,
    client: LocalClient,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Given a job that raises an unexpected exception, in its thread or when its command goes on
    fill(client)

    with monkeypatch.context() as planted, caplog.at_level(logging.ERROR):
        planted.setattr(dump, name, fault)
        client.send("DUMP", "s")
        refused = settled(store, client)

    # Then its client gets an error, the log has the cause, and the store continues
    assert isinstance(refused, Failure)
    assert refused.text.startswith(b"ERR internal error")
    assert "planted" in caplog.text
    client.send("DUMP", "s")
    assert isinstance(settled(store, client), bytes)


def test_a_poisoned_node_answers_clients_that_wait_for_a_job(
    store: LocalStore, client: LocalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a RESTORE in progress
    fill(client)
    payload = dumped(store)
    with paused(monkeypatch, restore, "_read"):
        client.send("RESTORE", "t", 0, payload)

        # When the journal fails
        store.node.state.poisoned = NodePoisoned("planted")

    # Then its client gets an error
    refused = settled(store, client)
    assert isinstance(refused, Failure)
    assert refused.text.startswith(b"MISCONF")


def test_closing_a_node_ends_its_jobs(
    store: LocalStore, client: LocalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a RESTORE in progress
    fill(client)
    payload = dumped(store)
    with paused(monkeypatch, restore, "_read"):
        client.send("RESTORE", "t", 0, payload)
        closing = threading.Thread(target=store.node.close)
        closing.start()
    closing.join()

    # Then the node is closed, and its journal has no record of the key
    store.crash()
    assert store.client()("EXISTS", "t") == 0
    assert dumped(store) == payload


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_does_not_run_jobs(
    store: LocalStore, client: LocalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a RESTORE in progress
    fill(client)
    payload = dumped(store)
    with paused(monkeypatch, restore, "_read"):
        client.send("RESTORE", "t", 0, payload)

        # When the process forks
        child = os.fork()
        if not child:
            try:
                store.node.tick()
            except ForkedStore:
                store.node.close()
                os._exit(0)
            os._exit(1)

        # Then the child gets an error and its copy is closed, and the parent continues
        assert os.waitpid(child, 0)[1] == 0
    assert settled(store, client) == OK


def test_a_finished_job_leaves_no_memory_accounted(store: LocalStore, client: LocalClient) -> None:
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

    # Then the accounting matches what is in memory
    sealing = store.node.keyspace.sealing
    assert sealing.hot_bytes + sealing.kept_bytes == hot
    assert broken_invariants(store.node.keyspace) == []
