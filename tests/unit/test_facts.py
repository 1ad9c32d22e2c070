"""Each mutator writes one fact with absolute values, and its bytes never change."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from headwater.common.model import flat_words
from headwater.engine.bodies.blobs import BlobPlace
from headwater.engine.check import broken_invariants
from headwater.engine.facts import facts
from headwater.engine.facts.facts import FactBuffer
from headwater.engine.keyspace.database import Database
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.engine.replay.replay import Replay
from headwater.engine.streams.idempotency import Idempotency
from headwater.engine.streams.stream import StoredStream
from headwater.engine.tier.storing import StoredRecord
from headwater.persistence.dumping import KINDS
from tests.property.state import picture
from tests.unit.keyspaces import database_of, keyspace_of

WIRE = b"$1\r\na\r\n$1\r\nb\r\n"

GOLDEN = {
    "stream_created": "10 00 01000000 01000000 73",
    "appended": "20 01000000 0500000000000000 0100000000000000 01 01000000 0e000000" + WIRE.hex(),
    "stored": "29 01000000 0500000000000000 0100000000000000 0500000000000000 0100000000000000"
    "02000000 01 00 8000000000000000 0300000000000000 4000000000000000 50000000 60000000 78563412",
    "group_created": "30 01000000 01000000 00" + "00" * 15 + "ff" * 8 + "01000000 67",
    "consumer_created": "33 01000000 01000000 e803000000000000 01000000 63",
    "delivered": "40 01000000 01000000 e803000000000000 0500000000000000 0100000000000000"
    "0500000000000000 0100000000000000 01000000 0100000000000000 00",
    "consumer_seen": "35 01000000 01000000 d007000000000000 e803000000000000",
    "owned": "42 01000000 01000000 d007000000000000 d007000000000000 01000000"
    "0500000000000000 0100000000000000 d007000000000000 0200000000000000",
    "released": "43 01000000 01000000 0500000000000000 0100000000000000 0200000000000000",
    "delayed": "44 01000000 01000000 0500000000000000 0100000000000000 b80b000000000000"
    "0200000000000000",
    "came_due": "45 01000000 01000000 0500000000000000 0100000000000000",
    "acknowledged": "41 01000000 01000000 0500000000000000 0100000000000000",
    "key_copied": "1c 00 01000000 73 01 01000000 74 02000000 01000000 01000000 02000000",
    "group_set_id": "32 01000000 0500000000000000 0000000000000000 0100000000000000",
    "consumer_deleted": "34 01000000 01000000",
    "group_destroyed": "31 01000000",
    "deleted": "22 01000000 01 01000000 0500000000000000 0100000000000000",
    "stream_set_id": "23 01000000 0900000000000000 0000000000000000 0300000000000000"
    "0500000000000000 0100000000000000",
    "iid_recorded": "25 01000000 0500000000000000 0100000000000000 01000000 70 01000000 69",
    "iid_repeated": "28 01000000 0100000000000000",
    "iids_expired": "26 01000000 01000000 01000000 70",
    "stream_configured": "24 01000000 3c000000 02000000",
    "idempotency_restored": "27 01000000 0a000000 03000000 0900000000000000 0400000000000000"
    "01000000 01000000 70 01000000 01000000 69 0500000000000000 0100000000000000",
    "trimmed": "21 01000000 0800000000000000 0000000000000000",
    "string_set": "11 00 01000000 6b 01000000 76",
    "string_written": "60 00 01000000 6b 03000000 01000000 77",
    "expiry_set": "15 00 01000000 6b 8813000000000000",
    "hash_set": "12 00 01000000 68 01000000 01000000 66 01000000 76",
    "hash_deleted": "13 00 01000000 68 01000000 01000000 66",
    "list_pushed": "17 00 01000000 6c 01 02000000 01000000 61 01000000 62",
    "list_set": "61 00 01000000 6c 01000000 01000000 63",
    "list_removed": "62 00 01000000 6c 01 01000000 01000000 62",
    "list_popped": "18 00 01000000 6c 00 01000000",
    "set_added": "19 00 01000000 6d 02000000 01000000 61 01000000 62",
    "set_removed": "1a 00 01000000 6d 01000000 01000000 62",
    "key_renamed": "1b 00 01000000 6d 00 01000000 6e",
    "key_deleted": "14 00 01000000 6b",
    "flushed": "16 00",
    "databases_swapped": "1d 00 01",
    "all_flushed": "16 ff",
}
"""The facts of `history` in a version 1 journal. Every later version must read them."""


Note = Callable[[str], None]
"""Records, under this name, the bytes that were written since the last call."""


def history() -> tuple[Keyspace, dict[str, str]]:
    """Run a history that calls every mutator once, and return the bytes that each has written."""
    keyspace = Keyspace()
    db, written, seen = keyspace.databases[0], {}, 0

    def note(name: str) -> None:
        nonlocal seen
        written[name] = keyspace.facts.data[seen:].hex()
        seen = len(keyspace.facts.data)

    stream = db.create_stream(b"s", 1)
    note("stream_created")
    stream.append(5, 1, WIRE, 1, True)
    note("appended")
    place = BlobPlace(3, 64, 80, 96)
    stream.note_stored(StoredRecord((5, 1), (5, 1), 2, "zlib", False, 128, place, 0x12345678))
    note("stored")
    _group_history(stream, note)
    stream.delete([(5, 1)], marks=True)
    note("deleted")
    stream.set_id((9, 0), 3, (5, 1))
    note("stream_set_id")
    _producers_history(stream.idempotency, note)
    stream.trim_through(8, 0)
    note("trimmed")
    _values_history(db, note)
    keyspace_of(db).flush(db.index)
    note("flushed")
    keyspace.swap(0, 1)
    note("databases_swapped")
    keyspace.flush_all()
    note("all_flushed")
    return keyspace, written


def _group_history(stream: StoredStream, note: Note) -> None:
    group = stream.create_group(b"g", 1, 0, 0, -1)
    note("group_created")
    consumer = group.create_consumer(b"c", 1, 1000)
    note("consumer_created")
    group.deliver(consumer, 1000, (5, 1), (5, 1), 1, 1, noack=False)
    note("delivered")
    group.record_seen(consumer, 2000, 1000)
    note("consumer_seen")
    group.own(consumer, flat_words([(5, 1, 2000, 2)]), 2000, 2000)
    note("owned")
    group.release(flat_words([(5, 1, 2)]))
    note("released")
    group.delay(flat_words([(5, 1, 3000, 2)]))
    note("delayed")
    group.end_delay(flat_words([(5, 1)]))
    note("came_due")
    group.acknowledge(flat_words([(5, 1)]))
    note("acknowledged")
    database_of(stream).copy(b"s", keyspace_of(stream).databases[1], b"t", 2, [(1, 2)])
    note("key_copied")
    group.set_id(5, 0, 1)
    note("group_set_id")
    group.delete_consumer(consumer)
    note("consumer_deleted")
    stream.destroy_group(b"g")
    note("group_destroyed")


def _producers_history(known: Idempotency, note: Note) -> None:
    known.record(b"p", b"i", (5, 1), now_ms=5)
    note("iid_recorded")
    known.count_duplicate(1)
    note("iid_repeated")
    known.expire(b"p", 1)
    note("iids_expired")
    known.configure(60, 2)
    note("stream_configured")
    known.restore(10, 3, 9, 4, [(b"p", [(b"i", (5, 1))])], now_ms=5)
    note("idempotency_restored")


def _values_history(db: Database, note: Note) -> None:
    db.set_string(b"k", b"v")
    note("string_set")
    db.write_string(b"k", 3, b"w")
    note("string_written")
    db.set_expiry(b"k", 5000)
    note("expiry_set")
    db.set_fields(b"h", [(b"f", b"v")])
    note("hash_set")
    db.delete_fields(b"h", [b"f"])
    note("hash_deleted")
    db.push(b"l", [b"a", b"b"], left=True)
    note("list_pushed")
    db.set_element(b"l", 1, b"c")
    note("list_set")
    db.remove_elements(b"l", b"b", [0], left=True)
    note("list_removed")
    db.pop(b"l", 1, left=False)
    note("list_popped")
    db.add_members(b"m", [b"a", b"b"])
    note("set_added")
    db.remove_members(b"m", [b"b"])
    note("set_removed")
    db.rename(b"m", db, b"n")
    note("key_renamed")
    db.delete(b"k")
    note("key_deleted")


def test_every_mutator_writes_its_fact_unchanged() -> None:
    _, written = history()
    assert written == {name: text.replace(" ", "") for name, text in GOLDEN.items()}


def test_every_kind_of_fact_is_documented_and_replayed() -> None:
    drawn = {int(kind, 16) for kind in re.findall(r"0x([1-9][\dA-F])", facts.__doc__ or "")}
    assert drawn == KINDS.keys()
    assert {bytes.fromhex(text)[0] for text in GOLDEN.values()} == KINDS.keys()


def test_journal_dump_names_the_kinds_of_facts() -> None:
    assert [KINDS[kind] for kind in sorted(KINDS)] == [
        "stream created", "string set", "hash set", "hash fields deleted", "key deleted", "expiry set", "flushed",
        "list pushed", "list popped", "set members added", "set members removed", "key renamed", "key copied",
        "databases swapped",
        "appended", "trimmed", "deleted", "stream id set", "stream configured", "iid recorded", "iids expired",
        "idempotency restored", "iid repeated", "stored",
        "group created", "group destroyed", "group id set", "consumer created", "consumer deleted", "consumer seen",
        "delivered", "acknowledged", "owned", "released", "delayed", "came due",
        "string written", "list element set", "list elements removed",
    ]  # fmt: skip


def test_a_muted_buffer_holds_nothing() -> None:
    keyspace = Keyspace(FactBuffer(muted=True))
    db = keyspace.databases[0]
    stream = db.create_stream(b"s", 1)
    stream.append(5, 1, WIRE, 1, True)
    group = stream.create_group(b"g", 1, 0, 0, -1)
    group.create_consumer(b"c", 1, 1000)
    db.set_string(b"k", b"v")
    keyspace.flush_all()
    assert not keyspace.facts.data


def test_the_fixed_part_of_a_fact_fits_into_the_headroom() -> None:
    fixed = {name: len(bytes.fromhex(text)) for name, text in GOLDEN.items() if name != "appended"}
    assert max(fixed.values()) <= facts.HEADROOM


@pytest.mark.parametrize("last", list(GOLDEN))
def test_the_state_after_each_fact_is_recovered(last: str) -> None:
    # Given the facts up to one of them
    names = list(GOLDEN)
    until = b"".join(bytes.fromhex(GOLDEN[name]) for name in names[: names.index(last) + 1])
    # When they are applied, and the facts that this wrote are applied to another keyspace
    once, twice = Keyspace(), Keyspace()
    Replay(once).apply(memoryview(until), 5)
    Replay(twice).apply(memoryview(bytes(once.facts.data)), 5)
    # Then the same bytes were written again, and both states are sound and equal
    assert once.facts.data == twice.facts.data == until
    assert picture(once) == picture(twice)
    assert broken_invariants(once) == []
