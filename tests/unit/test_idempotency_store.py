"""Idempotent producers in a whole store: expiry, hits, moved and copied streams, settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headwater.commands.idempotency import content_hash
from headwater.engine.check import broken_invariants
from headwater.engine.keyspace import events
from headwater.server.services import timers
from headwater.testing.clock import START_MS
from headwater.testing.node import LocalClient, LocalStore
from headwater.testing.replies import Failure, Simple
from tests.conformance.side_effects import take_events
from tests.crash.journal_tools import WatchedJournal

OK = Simple(b"OK")


@pytest.fixture
def store() -> Iterator[LocalStore]:
    made = LocalStore()
    yield made
    assert broken_invariants(made.node.keyspace) == []


def tracked(client: LocalClient, key: str = "s") -> dict[bytes, Any]:
    """Return the six fields of XINFO STREAM about idempotent producers."""
    reply = client("XINFO", "STREAM", key)
    assert isinstance(reply, list)
    pairs = dict(zip(reply[::2], reply[1::2], strict=True))
    return {name: pairs[name] for name in pairs if isinstance(name, bytes) and b"id" in name[:4]}


# --- expiry -----------------------------------------------------------------------------------------


def test_there_is_no_deadline_without_iids(store: LocalStore, client: LocalClient) -> None:
    client("XADD", "s", "*", "a", "1")
    assert store.node.next_deadline() is None
    client("XADD", "s", "IDMP", "p", "1", "*", "a", "1")
    assert store.seconds_ahead() == 100
    store.advance(100)
    assert store.node.next_deadline() is None


def test_an_idle_embedded_store_expires_iids_at_the_next_command(
    store: LocalStore, client: LocalClient
) -> None:
    client("XADD", "s", "IDMP", "p", "1", "*", "a", "1")
    store.clock.advance(100)  # without a tick
    assert client("XADD", "s", "IDMP", "p", "1", "*", "a", "1") == b"%d-0" % (START_MS + 100_000)


def test_a_sweep_is_a_fact_without_an_fsync(
    store: LocalStore, client: LocalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given entries of two producers, and a journal that records whether it was told to fsync
    client("XADD", "s", "IDMP", "p", "1", "*", "a", "1")
    client("XADD", "s", "IDMP", "q", "1", "*", "a", "1")
    journal = store.node.journal
    assert journal is not None
    syncs: list[bool] = []
    watched = WatchedJournal(journal, lambda _buffer, sync: syncs.append(sync))
    monkeypatch.setattr(store.node.records, "journal", watched)
    dirty = store.node.keyspace.dirty
    # When their iids expire
    store.advance(100)
    # Then one record group without an fsync says so, no change is counted, and it is recovered
    assert syncs == [False]
    assert store.node.keyspace.dirty == dirty
    assert tracked(client)[b"pids-tracked"] == 0
    client("SET", "mark", "1")
    store.crash()
    assert tracked(store.client())[b"iids-tracked"] == 0


def test_a_sweep_of_many_producers_is_split(
    store: LocalStore, client: LocalClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given more producers than one sweep removes
    monkeypatch.setattr(timers, "MAX_IIDS_A_SWEEP", 3)
    for number in range(8):
        client("XADD", "s", "IDMP", f"p{number}", "1", "*", "a", "1")
    # When their iids expire, then they are removed in three sweeps without a delay between them
    left = []
    store.advance(100)
    while store.node.next_deadline() is not None:
        left.append(tracked(store.client())[b"pids-tracked"])
        assert store.seconds_ahead() == 0
        store.node.tick()
    assert left == [2]  # each command was a turn, and a turn sweeps too
    assert tracked(client)[b"pids-tracked"] == 0


def test_a_sweep_on_a_full_disk_is_repeated_a_second_later(
    store: LocalStore, client: LocalClient
) -> None:
    client("XADD", "s", "IDMP", "p", "1", "*", "a", "1")
    records = store.node.records
    admission = records.admission
    records.admission = lambda _size: "MISCONF no space"
    store.advance(100)
    assert store.seconds_ahead() == 1
    records.admission = admission
    store.advance(1)
    assert tracked(client)[b"pids-tracked"] == 0


def test_the_window_of_an_id_in_the_far_future_is_as_long_as_any(
    store: LocalStore, client: LocalClient
) -> None:
    client("XADD", "s", f"{2**64 - 1}-5", "a", "1")
    assert client("XADD", "s", "IDMP", "p", "1", "*", "a", "1") == b"18446744073709551615-6"
    assert store.seconds_ahead() == 100
    store.advance(100)
    assert client("XADD", "s", "IDMP", "p", "1", "*", "a", "1") == b"18446744073709551615-7"


def test_the_window_of_an_entry_recorded_by_xidmprecord_begins_at_its_id(
    store: LocalStore, client: LocalClient
) -> None:
    # Given an entry added 60 s ago, and a later one
    old = client("XADD", "s", "*", "a", "1")
    store.advance(60)
    client("XADD", "s", "*", "a", "2")
    # When an iid is recorded for the older one, then it is known for the rest of 100 s, as in Redis
    assert isinstance(old, bytes)
    client("XIDMPRECORD", "s", "p", "1", old)
    assert store.seconds_ahead() == 40
    # And also after a restart, and in a restored payload
    store.crash()
    assert store.seconds_ahead() == 40
    again = store.client()
    payload = again("DUMP", "s")
    assert isinstance(payload, bytes)
    again("DEL", "s")
    again("RESTORE", "t", 0, payload)
    assert store.seconds_ahead() == 40


# --- hits -------------------------------------------------------------------------------------------


def test_what_counts_as_a_change(store: LocalStore, client: LocalClient) -> None:
    """INFO counts what Redis propagates: a hit, but not an XCFGSET or XIDMPRECORD without effect."""
    counted = []
    for words in (
        "XADD s IDMP p 1 * a 1",
        "XADD s IDMP p 1 * a 1",
        "XADD s IDMP p 1 MAXLEN 0 * a 1",
        "XCFGSET s IDMP-DURATION 100",
        "XCFGSET s IDMP-DURATION 99",
        f"XIDMPRECORD s p 1 {START_MS}-0",
        f"XIDMPRECORD s p 1 {START_MS}-0",
        f"XIDMPRECORD s p 1 {START_MS}-1",
        "XADD none NOMKSTREAM IDMP p 1 * a 1",
    ):
        before = store.node.keyspace.dirty
        client(*words.split())
        counted.append(store.node.keyspace.dirty - before)
    assert counted == [1, 1, 1, 0, 1, 1, 0, 0, 0]


def test_neither_a_hit_nor_configuring_is_an_event(store: LocalStore, client: LocalClient) -> None:
    seen = take_events(store.node)
    store.node.keyspace.notified = events.ALL
    client("XADD", "s", "IDMP", "p", "1", "*", "a", "1")
    assert seen == [b"s: xadd"]
    client("XADD", "s", "IDMP", "p", "1", "MAXLEN", "0", "*", "a", "1")
    client("XCFGSET", "s", "IDMP-MAXSIZE", "5")
    client("XIDMPRECORD", "s", "p", "1", f"{START_MS}-0")
    store.advance(100)
    assert seen == [b"s: xadd"]
    client("XADD", "s", "IDMP", "p", "1", "MAXLEN", "1", "*", "a", "1")
    assert seen == [b"s: xadd", b"s: xadd", b"s: xtrim"]


def test_a_hit_needs_room_in_the_journal_for_its_count(
    store: LocalStore, client: LocalClient
) -> None:
    client("XADD", "s", "IDMP", "p", "1", "*", "a", "1")
    admission = client.session.call.admission
    client.session.call.admission = lambda _size: "MISCONF no space"
    reply = client("XADD", "s", "IDMP", "p", "1", "*", "a", "1")
    assert isinstance(reply, Failure)
    assert reply.text.startswith(b"MISCONF")
    client.session.call.admission = admission
    assert tracked(client)[b"iids-duplicates"] == 0


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (["RENAME s t"], "t"),
        (["COPY s t"], "t"),
        (["COPY s t"], "s"),
        (["MOVE s 1", "SELECT 1"], "s"),
        (["SWAPDB 0 1", "SELECT 1"], "s"),
        (["XSETID s 1700000000001-0"], "s"),
        (["PERSIST s", "EXPIRE s 1000"], "s"),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0].split()[0],
)
def test_iids_are_moved_and_copied_with_their_stream(
    store: LocalStore, client: LocalClient, words: list[str], key: str
) -> None:
    client("XADD", "s", "IDMP", "p", "1", "*", "a", "1")
    client("XCFGSET", "s", "IDMP-MAXSIZE", "7")
    client("XADD", "s", "IDMP", "p", "2", "*", "a", "2")
    for line in words:
        assert not isinstance(client(*line.split()), Failure)
    assert client("XADD", key, "IDMP", "p", "2", "*", "a", "3") == b"%d-1" % START_MS
    there = tracked(client, key)
    assert (there[b"idmp-maxsize"], there[b"iids-added"], there[b"iids-duplicates"]) == (7, 2, 1)
    # And the iids expire there too
    store.advance(100)
    assert tracked(client, key)[b"pids-tracked"] == 0


def test_a_dump_contains_the_iids(store: LocalStore, client: LocalClient) -> None:
    client("XADD", "s", "IDMP", "p", "1", "*", "a", "1")
    client("XADD", "s", "IDMPAUTO", "q", "*", "a", "1")
    client("XCFGSET", "s", "IDMP-DURATION", "10")
    client("XADD", "s", "IDMP", "p", "2", "*", "a", "2")
    client("XADD", "s", "IDMP", "p", "2", "*", "a", "2")
    payload = client("DUMP", "s")
    assert isinstance(payload, bytes)
    assert client("RESTORE", "t", 0, payload) == OK
    assert tracked(client, "t") == tracked(client, "s")
    assert client("XADD", "t", "IDMP", "p", "2", "*", "a", "2") == b"%d-2" % START_MS
    store.advance(10)
    assert tracked(client, "t")[b"pids-tracked"] == 0


def test_both_options_share_one_map(client: LocalClient) -> None:
    first = client("XADD", "s", "IDMPAUTO", "p", "*", "a", "1")
    assert client("XADD", "s", "IDMP", "p", content_hash([b"a", b"1"]), "*", "b", "2") == first


# --- settings ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("makes", ["XADD s * a 1", "XGROUP CREATE s g $ MKSTREAM"])
def test_a_new_stream_has_the_configured_settings_also_after_recovery(
    store: LocalStore, client: LocalClient, makes: str
) -> None:
    client("CONFIG", "SET", "stream-idmp-duration", "5", "stream-idmp-maxsize", "6")
    client(*makes.split())
    store.crash()
    fields = tracked(store.client())
    assert (fields[b"idmp-duration"], fields[b"idmp-maxsize"]) == (5, 6)


def test_a_stream_created_by_xsettle_has_the_configured_settings(
    store: LocalStore, client: LocalClient
) -> None:
    client("XADD", "s", "1-1", "a", "1")
    client("XGROUP", "CREATE", "s", "g", "0")
    client("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">")
    client("CONFIG", "SET", "stream-idmp-maxsize", "6")
    settling = "XSETTLE s g c ACK IDS 1 1-1 TO t * FIELDS 1 a 1"
    client(*settling.split())
    assert (tracked(client, "t")[b"idmp-maxsize"], tracked(client)[b"idmp-maxsize"]) == (6, 100)


def test_invariants_hold_with_many_producers(
    store: LocalStore, client: LocalClient, check: Callable[[], None]
) -> None:
    """Thousands of producers of one iid each, in several streams, over several seconds."""
    for number in range(2000):
        client("XADD", f"s{number % 3}", "IDMP", f"p{number}", "1", "*", "a", "1")
        if number % 100 == 0:
            store.advance(0.37)
            check()
    store.advance(102)
    check()
    assert [tracked(client, f"s{n}")[b"pids-tracked"] for n in range(3)] == [0, 0, 0]


@pytest.fixture
def check(store: LocalStore) -> Callable[[], None]:
    def sound() -> None:
        assert broken_invariants(store.node.keyspace) == []

    return sound
