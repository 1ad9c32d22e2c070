"""Replies with many entries are written in pieces, as the client reads: the bytes are those of one piece."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.engine.bodies.bodies import place_of
from headwater.engine.check import broken_invariants
from headwater.journal.segments.segments import segment_name, segment_numbers
from headwater.testing.node import LocalClient, LocalStore, Word, request
from tests.unit.cold import (
    cold_store,
    fill,
    made,
    next_segment,
    small_blocks,
    store_all,
    stored_bytes,
)

ENTRIES = 300


@pytest.fixture(autouse=True)
def blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    small_blocks(monkeypatch)


def nothing() -> None:
    """Do nothing between two pieces."""


class SlowClient:
    """A client whose replies are written in pieces of ``piece_bytes``; it reads each before the next is written."""

    def __init__(self, store: LocalStore, *, resp: int = 2, piece_bytes: int = 3000) -> None:
        self.store = store
        self.client: LocalClient = store.client(resp=resp, kind="tcp")
        self.session = self.client.session
        self.session.output.reply.piece_bytes = piece_bytes
        store.node.clients.output_ahead_bytes = 0
        self.pieces = self.largest = 0

    def read(self, *words: Word, between: Callable[[], object] = nothing) -> bytes:
        """Send a command and return the bytes of its reply. ``between`` is called before each further piece."""
        wire = bytearray(self.store.node.exchange(self.session, request(words)))
        self.pieces, self.largest = int(bool(wire)), len(wire)
        while self.session.output.stalled or self.session.blocked:
            if wire:
                between()
            piece = self._next()
            self.pieces += bool(piece)
            self.largest = max(self.largest, len(piece))
            wire += piece
        return bytes(wire)

    def _next(self) -> bytes:
        node = self.store.node
        if not self.session.blocked:
            return node.exchange(self.session, b"")
        node.blocked.cold_reads.wait_until_idle()
        node.tick()
        return self.session.output.take_bytes()


def whole(store: LocalStore, *words: Word, resp: int = 2) -> bytes:
    """Return the reply to an embedded client, which is never written in pieces."""
    client = store.client(resp=resp)
    return store.node.exchange(client.session, request(words))


def hot() -> LocalStore:
    store = made(stream_hot_bytes=1 << 30)
    fill(store.client(), ENTRIES)
    return store


def mixed() -> LocalStore:
    """A store with a stream of which two thirds are on disk, and the end is hot."""
    store = made()
    fill(store.client(), ENTRIES * 2 // 3)
    store_all(store)
    store.node.keyspace.sealing.budget = 1 << 30
    fill(store.client(), ENTRIES // 3, first=ENTRIES * 2 // 3 + 1)
    assert store.files is not None
    store.files.reads.cold = True
    return store


COMMANDS: list[tuple[Word, ...]] = [
    ("XRANGE", "s", "-", "+"),
    ("XRANGE", "s", "20", "280", "COUNT", "200"),
    ("XREVRANGE", "s", "+", "-"),
    ("XREVRANGE", "s", "280", "20", "COUNT", "200"),
    ("XREAD", "STREAMS", "s", "t", "s", "3", "0", "100"),
    ("XREAD", "MAXSIZE", "20000", "STREAMS", "s", "t", "3", "0"),
]


@pytest.mark.parametrize("resp", [2, 3])
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(map(str, command)))
@pytest.mark.parametrize("make", [hot, cold_store, mixed])
def test_the_pieces_of_a_reply_are_the_whole_reply(
    make: Callable[[], LocalStore], command: tuple[Word, ...], resp: int
) -> None:
    # Given streams in memory, on disk, or both, with holes
    store = make()
    fill(store.client(), 5, key="t")
    for number in (1, 50, 51, 299, 300):
        store.client()("XDEL", "s", f"{number}-1")
    # When a client reads them piece by piece
    client = SlowClient(store, resp=resp)
    wire = client.read(*command)
    # Then it gets the bytes that it would get at once, and the server never held more than two pieces
    assert wire == whole(store, *command, resp=resp)
    assert client.pieces > 3
    assert client.largest < 3000 + 2 * 2048
    assert broken_invariants(store.node.keyspace) == []


def delete_some(store: LocalStore) -> None:
    draw = random.Random(5)
    for _ in range(20):
        store.client()("XDEL", "s", f"{draw.randrange(1, ENTRIES)}-1")


def store_the_rest(store: LocalStore) -> None:
    store.node.keyspace.sealing.configure(0, "zlib")
    store_all(store)


def rename_and_copy(store: LocalStore) -> None:
    store.client()("RENAME", "s", "other")
    store.client()("COPY", "other", "s")


def change_nothing(_store: LocalStore) -> None:
    """Leave the stream as it is."""


CHANGES: dict[str, Callable[[LocalStore], object]] = {
    "trimmed": lambda store: store.client()("XTRIM", "s", "MAXLEN", "10"),
    "deleted": lambda store: store.client()("DEL", "s"),
    "deleted from": delete_some,
    "appended to": lambda store: store.client()("XADD", "s", "*", "field", "later"),
    "flushed": lambda store: store.client()("FLUSHALL"),
    "stored": store_the_rest,
    "renamed and copied": rename_and_copy,
    "reloaded": lambda store: store.client()("DEBUG", "RELOAD"),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("make", [hot, cold_store, mixed])
def test_a_reply_shows_the_stream_as_it_was_when_the_command_ran(
    make: Callable[[], LocalStore], change: str
) -> None:
    # Given a client that reads a stream slowly
    store = make()
    expected = whole(store, "XRANGE", "s", "-", "+")
    client = SlowClient(store)
    changes = iter([CHANGES[change], *[change_nothing] * ENTRIES])
    # When the stream changes after the first piece
    wire = client.read("XRANGE", "s", "-", "+", between=lambda: next(changes)(store))
    # Then the reply does not
    assert wire == expected
    assert broken_invariants(store.node.keyspace) == []


@pytest.mark.slow
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_any_range_in_pieces_of_any_size_is_the_range(data: st.DataObject) -> None:
    # Given a stream of which some blocks are on disk
    monkeypatch = pytest.MonkeyPatch()
    small_blocks(monkeypatch)
    store = mixed()
    monkeypatch.undo()
    for number in data.draw(st.sets(st.integers(1, ENTRIES), max_size=40)):
        store.client()("XDEL", "s", f"{number}-1")
    first, last = data.draw(st.integers(0, ENTRIES)), data.draw(st.integers(0, ENTRIES))
    count = data.draw(st.sampled_from([(), ("COUNT", 1), ("COUNT", 50), ("COUNT", 1000)]))
    size = data.draw(st.integers(1, 20_000))
    # When it is read forward and backward
    client = SlowClient(store, piece_bytes=size)
    for command in (("XRANGE", "s", first, last, *count), ("XREVRANGE", "s", last, first, *count)):
        # Then the bytes are those of one piece
        assert client.read(*command) == whole(store, *command)
    assert client.read("XREAD", *count, "STREAMS", "s", first) == whole(
        store, "XREAD", *count, "STREAMS", "s", first
    )


@pytest.mark.parametrize("make", [hot, cold_store])
def test_entries_delivered_in_pieces_are_pending_at_once(make: Callable[[], LocalStore]) -> None:
    # Given a group at the beginning of a stream
    store = make()
    other = store.client()
    other("XGROUP", "CREATE", "s", "g", "0")
    expected = whole(store, "XREAD", "STREAMS", "s", "0")
    client = SlowClient(store)
    seen: list[object] = []

    def note() -> None:
        pending = other("XPENDING", "s", "g")
        assert isinstance(pending, list)
        seen.append(pending[0])

    # When a consumer reads all of it
    wire = client.read("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">", between=note)
    # Then all entries are pending before the second piece, and it gets each of them
    assert wire == expected
    assert len(seen) > 3
    assert set(seen) == {ENTRIES}


def test_messages_and_later_replies_follow_the_whole_reply() -> None:
    # Given a subscribed client in RESP3 that reads a stream slowly, and has sent another command
    store = hot()
    client = SlowClient(store, resp=3)
    client.read("SUBSCRIBE", "news")
    expected = whole(store, "XRANGE", "s", "-", "+", resp=3)
    publish = iter([lambda: store.client()("PUBLISH", "news", "now"), *[nothing] * ENTRIES])
    later = iter(
        [nothing, lambda: client.session.feed(request(("ECHO", "later"))), *[nothing] * ENTRIES]
    )
    # When a message arrives between two pieces
    wire = client.read("XRANGE", "s", "-", "+", between=lambda: (next(publish)(), next(later)()))
    # Then it comes after the reply, and the other reply after both
    message = b">3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$3\r\nnow\r\n"
    assert wire == expected + message + b"$5\r\nlater\r\n"


def test_messages_that_wait_for_the_end_of_a_reply_count_as_memory() -> None:
    # Given a subscriber that has read one piece of a reply
    store = hot()
    client = SlowClient(store, resp=3)
    number = client.client("CLIENT", "ID")
    client.client("SUBSCRIBE", "news")
    store.node.exchange(client.session, request(("XRANGE", "s", "-", "+")))
    used = store.node.services.memory.used()
    # When it is sent a message of a megabyte, which follows the reply
    store.client()("PUBLISH", "news", "x" * 1_000_000)
    # Then INFO and CLIENT LIST show it
    assert store.node.services.memory.used() >= used + 1_000_000
    listed = store.client()("CLIENT", "LIST", "ID", str(number))
    assert isinstance(listed, bytes)
    fields = dict(part.split(b"=", 1) for part in listed.split())
    assert int(fields[b"tot-mem"]) > 1_000_000
    assert int(fields[b"omem"]) > 1_000_000


def test_the_rest_of_a_reply_is_not_queued_up_to_the_output_limit() -> None:
    # Given a server that queues replies up to a large output limit
    store = hot()
    client = SlowClient(store)
    store.node.clients.output_ahead_bytes = 1 << 30
    # When a client requests a stream and reads nothing
    client.session.feed(request(("XRANGE", "s", "-", "+")))
    for _ in range(10):
        store.node.turn([client.session])
    # Then one piece waits for it
    assert client.session.output.unsent < 3000 + 2 * 2048
    assert client.session.output.stalled


def test_a_client_that_wants_no_replies_gets_no_piece() -> None:
    # Given a client that has switched off its replies
    store = hot()
    client = SlowClient(store)
    client.read("CLIENT", "REPLY", "OFF")
    # When it reads a stream
    assert client.read("XRANGE", "s", "-", "+") == b""
    # Then nothing of the reply is left
    assert client.read("CLIENT", "REPLY", "ON") == b"+OK\r\n"


def test_transactions_and_scripts_reply_at_once() -> None:
    # Given a stream on disk
    store = cold_store()
    client = SlowClient(store)
    expected = whole(store, "XRANGE", "s", "-", "+")
    # When it is read in a transaction and by a script
    client.read("MULTI")
    client.read("XRANGE", "s", "-", "+")
    executed = client.read("EXEC")
    pieces = client.pieces
    scripted = client.read("EVAL", "return redis.call('XRANGE', 's', '-', '+')", 0)
    # Then each reply is one piece
    assert (executed, pieces) == (b"*1\r\n" + expected, 1)
    assert (scripted, client.pieces) == (expected, 1)


def test_a_client_that_leaves_frees_what_its_reply_refers_to() -> None:
    # Given a client that has read a part of a stream, which is deleted meanwhile
    store = hot()
    client = SlowClient(store)
    sealing = store.node.keyspace.sealing
    store.node.exchange(client.session, request(("XRANGE", "s", "-", "+")))
    store.client()("DEL", "s")
    while store.node.keyspace.garbage:
        store.node.tick()
    assert sealing.hot_bytes + sealing.kept_bytes > 10_000
    # When it disconnects
    client.client.close()
    # Then its blocks are freed
    assert sealing.hot_bytes + sealing.kept_bytes == 0


@pytest.mark.parametrize("change", ["trimmed", "deleted", "flushed"])
def test_entries_that_only_a_reply_refers_to_leave_memory(change: str) -> None:
    # Given a client that has read a part of a hot stream
    store = hot()
    expected = whole(store, "XRANGE", "s", "-", "+")
    sealing, left = store.node.keyspace.sealing, []
    segments: dict[int, int] = {}

    def remove_and_store() -> None:
        CHANGES[change](store)
        while store.node.keyspace.garbage:
            store.node.tick()
        store_the_rest(store)
        left.append(sealing.hot_bytes + sealing.kept_bytes)
        assert stored_bytes(store) > 20_000
        next_segment(store)
        store.node.services.storage.checkpoints.write_now()
        segments.update(sealing.segments())

    # When the stream is gone, blocks are stored and checkpoints are written
    later = iter([remove_and_store, *[nothing] * ENTRIES])
    client = SlowClient(store)
    wire = client.read("XRANGE", "s", "-", "+", between=lambda: next(later)())  # noqa: PLW0108 (a new one each time)
    # Then what the client has not read is on disk only, and it gets the whole reply
    assert left[0] < 3 * 4096
    assert list(segments) == [1, 2]
    assert wire == expected
    # And afterwards nothing of it is left, and nothing is recovered
    store.node.services.storage.checkpoints.write_now()
    assert store.files is not None
    assert sealing.segments().get(1, 0) < segments[1] / 5
    assert segment_numbers(store.files) == list(sealing.segments())
    length = store.client()("XLEN", "s")
    store.crash()
    assert store.client()("XLEN", "s") == length
    assert broken_invariants(store.node.keyspace) == []


def _damage_last_block(store: LocalStore) -> None:
    """Damage the body of the last block that is on disk."""
    (stream,) = store.node.keyspace.streams.values()
    found = [block.packed for block in stream.log.blocks if block.packed is not None]
    place = place_of(found[-1])
    at = place.offset + place.head_bytes + place.body_bytes // 2
    assert store.files is not None
    store.files.corrupt(segment_name(place.segment), at, b"damage")


def test_damage_in_a_later_piece_ends_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    # Given a stream on disk, of which a client has read a part
    store = cold_store()
    client = SlowClient(store)
    damage = iter([nothing, lambda: _damage_last_block(store), *[nothing] * ENTRIES])
    # When a later block turns out to be damaged
    wire = client.read("XRANGE", "s", "-", "+", between=lambda: next(damage)())  # noqa: PLW0108 (a new one each time)
    # Then the connection is closed, and the log says why and where
    assert client.session.closing
    assert whole(cold_store(), "XRANGE", "s", "-", "+").startswith(wire)
    assert "in the middle of a reply" in caplog.text
    assert "segment-" in caplog.text
    # And other clients are served
    assert store.client()("XLEN", "s") == ENTRIES
