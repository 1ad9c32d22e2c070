"""Commands that read entries from disk: they wait without delaying others, and reply as if all were in memory."""

from __future__ import annotations

import pytest

from headwater.engine.bodies.bodies import place_of
from headwater.engine.check import broken_invariants
from headwater.journal.segments.segments import segment_name
from headwater.testing.node import LocalStore
from headwater.testing.replies import Failure
from tests.unit.cold import cold_store, fill, finish_reads, made, small_blocks, store_all


@pytest.fixture(autouse=True)
def blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    small_blocks(monkeypatch)


def hot_reply(*words: str) -> object:
    """Return the reply of a store with the same entries in memory."""
    client = made(stream_hot_bytes=1 << 30).client()
    fill(client, 300)
    return client(*words)


@pytest.mark.parametrize(
    "command",
    [
        ("XRANGE", "s", "10", "200"),
        ("XREVRANGE", "s", "+", "-", "COUNT", "100"),
        ("XREAD", "COUNT", "150", "STREAMS", "s", "5"),
        ("XREAD", "BLOCK", "0", "COUNT", "3", "STREAMS", "s", "0"),
    ],
    ids=lambda command: command[0],
)
def test_a_client_waits_for_the_disk_and_others_do_not(command: tuple[str, ...]) -> None:
    # Given a stream on disk
    store = cold_store()
    client, other = store.client(kind="tcp"), store.client(kind="tcp")
    # When a client reads it
    client.send(*command)
    # Then it has no reply yet, and others are served
    assert client.reply() is None
    assert other("XLEN", "s") == 300
    # And its reply comes after the read, before those to its later requests
    client.send("ECHO", "later")
    finish_reads(store)
    assert client.reply() == hot_reply(*command)
    assert client.reply() == b"later"
    assert broken_invariants(store.node.keyspace) == []


def test_a_group_gets_its_entries_once() -> None:
    # Given a group at the beginning of a stream on disk
    store = cold_store()
    client = store.client(kind="tcp")
    client("XGROUP", "CREATE", "s", "g", "0")
    # When a consumer reads new entries
    client.send("XREADGROUP", "GROUP", "g", "c", "COUNT", "250", "STREAMS", "s", ">")
    assert client.reply() is None
    assert client.session.blocked
    finish_reads(store)
    # Then they are delivered once, and pending
    found = client.reply()
    pending = store.client()("XPENDING", "s", "g")
    assert isinstance(pending, list)
    assert pending[0] == 250
    # And its history is read from disk, too, after a crash
    store.crash()
    assert store.files is not None
    store.files.reads.cold = True
    client = store.client(kind="tcp")
    client.send("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", "0")
    finish_reads(store)
    assert client.reply() == found


def test_a_wait_for_the_disk_is_not_a_blocked_client() -> None:
    # Given a client that waits for the disk
    store = cold_store()
    client, other = store.client(kind="tcp"), store.client(kind="tcp")
    client.send("XRANGE", "s", "-", "+")
    # Then nothing counts it as blocked or unblocks it
    info = other("INFO", "clients")
    assert isinstance(info, bytes)
    assert b"blocked_clients:0\r\n" in info
    assert other("CLIENT", "UNBLOCK", client.session.id) == 0
    # And if it is closed, nothing is left of it
    client.close()
    store.node.blocked.cold_reads.wait_until_idle()
    store.node.tick()
    assert not store.node.blocked.cold_reads


def test_a_command_waits_again_if_its_stream_has_changed() -> None:
    # Given a client that waits for the disk
    store = cold_store()
    client, other = store.client(kind="tcp"), store.client(kind="tcp")
    client.send("XRANGE", "s", "-", "+")
    # When other entries are under the key before it runs again
    other("DEL", "s")
    fill(store.client(), 200, first=1000)
    store_all(store)
    finish_reads(store)
    # Then it gets those
    found = client.reply()
    assert isinstance(found, list)
    assert len(found) == 200


def test_transactions_and_scripts_read_at_once() -> None:
    # Given a stream on disk
    store = cold_store()
    client = store.client(kind="tcp")
    expected = hot_reply("XRANGE", "s", "-", "+")
    # When it is read in a transaction, or by an embedded client
    client("MULTI")
    client("XRANGE", "s", "-", "+")
    # Then the reply comes at once
    assert client("EXEC") == [expected]
    assert store.client()("XRANGE", "s", "-", "+") == expected


def test_a_reply_that_is_skipped_stays_skipped() -> None:
    # Given a client that wants no reply to its next command
    store = cold_store()
    client = store.client(kind="tcp")
    client.send("CLIENT", "REPLY", "SKIP")
    # When that command waits for the disk
    client.send("XRANGE", "s", "-", "+")
    finish_reads(store)
    # Then only the command after it is answered
    assert client("ECHO", "x") == b"x"


def test_hits_are_counted_once() -> None:
    store = cold_store()
    client = store.client(kind="tcp")
    before = store.node.keyspace.hits
    client.send("XRANGE", "s", "-", "+")
    finish_reads(store)
    assert client.reply() is not None
    assert store.node.keyspace.hits == before + 1


def damaged(store: LocalStore) -> None:
    """Damage the body of the block of the first entries."""
    assert store.files is not None
    (stream,) = store.node.keyspace.streams.values()
    packed = stream.log.blocks[0].packed
    assert packed is not None
    place = place_of(packed)
    at = place.offset + place.head_bytes + place.body_bytes // 2
    store.files.corrupt(segment_name(place.segment), at, b"damage")


@pytest.mark.parametrize("kind", ["tcp", "embedded"])
def test_a_damaged_body_is_an_error_of_its_entries_only(kind: str) -> None:
    # Given a stream whose first block is damaged on disk
    store = cold_store()
    damaged(store)
    client = store.client(kind=kind)
    # When it is read
    client.send("XRANGE", "s", "-", "5")
    finish_reads(store)
    # Then the error names the file, the offset and the ids
    found = client.reply()
    assert isinstance(found, Failure)
    assert found.text.startswith(b"ERR entries of 's' cannot be read from disk. ")
    for part in (b"segment-000001", b"offset", b"from 1-1 to", b"stream number"):
        assert part in found.text, found.text
    # And everything else goes on
    client.send("XRANGE", "s", "290", "+")
    finish_reads(store)
    rest = client.reply()
    assert isinstance(rest, list)
    assert len(rest) == 11
    assert client("XLEN", "s") == 300
    assert client("XDEL", "s", "3-1") == 1
    assert client("XTRIM", "s", "MAXLEN", "100") == 199
    client.send("XRANGE", "s", "-", "+")
    finish_reads(store)
    rest = client.reply()
    assert isinstance(rest, list)
    assert len(rest) == 100
    # And after a restart, too
    store.crash()
    assert store.client()("XLEN", "s") == 100


def test_info_counts_reads_from_disk() -> None:
    # Given a read from disk
    store = cold_store()
    client = store.client(kind="tcp")
    client.send("XRANGE", "s", "-", "+")
    finish_reads(store)
    # Then INFO says how much is on disk, and how much was read
    text = store.client()("INFO", "everything")
    assert isinstance(text, bytes)
    fields = dict(line.split(b":", 1) for line in text.split(b"\r\n") if b":" in line)
    assert int(fields[b"cold_waits"]) == 1
    assert int(fields[b"cold_reads"]) > 5
    assert int(fields[b"cold_read_bytes"]) == int(fields[b"cold_read_bytes"]) > 500
    assert fields[b"cold_read_failures"] == b"0"
    assert fields[b"segments"] == b"1"
    assert fields[b"segment_failure"] == b""
    sealing = store.node.keyspace.sealing
    assert int(fields[b"stream_stored_entries_bytes"]) == sealing.stored_size > 0
