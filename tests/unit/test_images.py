"""An image restores the state that it was written from: every kind of value, in bulk and in small groups."""

from __future__ import annotations

from array import array

import pytest

from headwater.common import limits
from headwater.common.model import flat_words
from headwater.engine.bodies.block_account import HOT
from headwater.engine.check import broken_invariants
from headwater.engine.facts.facts import FactBuffer
from headwater.engine.groups import pending
from headwater.engine.groups.group import ConsumerGroup
from headwater.engine.image.image import image_facts
from headwater.engine.image.image_facts import GROUP_BYTES, IMAGE_KINDS
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.engine.replay.replay import Replay
from headwater.engine.streams.stream import StoredStream
from headwater.persistence.dumping import KINDS
from tests.property.state import picture
from tests.stored import MemoryBlobs
from tests.unit.test_sealing import add, body, seal, sealed

WIRE = body(b"field", b"value")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BLOCK_MAX_BYTES", 1024)
    monkeypatch.setattr(limits, "SEALED_LEAST_BYTES", 300)
    monkeypatch.setattr(limits, "PART_LEAST_BYTES", 256)
    monkeypatch.setattr(limits, "SEALING_LAG_BYTES", 0)
    monkeypatch.setattr(pending, "PENDING_BLOCK_RECORDS", 8)


@pytest.fixture
def keyspace() -> Keyspace:
    return Keyspace(FactBuffer(muted=True))


@pytest.fixture
def stream(keyspace: Keyspace) -> StoredStream:
    return keyspace.databases[0].create_stream(b"s", keyspace.next_sid)


def restored(keyspace: Keyspace) -> Keyspace:
    """Return the state that the image of ``keyspace`` gives, which must be equal and sound."""
    again = Keyspace()
    replay = Replay(again)
    for facts in image_facts(keyspace):
        replay.apply(memoryview(facts), 0)
    assert picture(again) == picture(keyspace)
    assert broken_invariants(again) == []
    assert [list(one.values) for one in again.databases] == [
        list(one.values) for one in keyspace.databases
    ]
    return again


def one_group(stream: StoredStream) -> ConsumerGroup:
    return stream.create_group(b"g", stream.keyspace.next_gid, 0, 0, 0)


def deliver(group: ConsumerGroup, name: bytes, count: int, time: int) -> None:
    """Deliver the next ``count`` entries to a consumer."""
    consumer = group.consumers.get(name)
    if consumer is None:
        consumer = group.create_consumer(name, group.next_cid, 5)
    ms, seq = group.last_id
    spans, found = group.stream.log.spans((ms, seq + 1), group.stream.last_id, count)
    assert found == count
    group.deliver_spans(consumer, time, spans, count, group.entries_read + count, False)


def mixed(keyspace: Keyspace) -> Keyspace:
    """Fill a keyspace with a little of everything."""
    db, other = keyspace.databases[0], keyspace.databases[3]
    stream = db.create_stream(b"s", 7)
    add(stream, 60)
    stream.delete([(3, 0), (30, 0)], marks=True)
    stream.trim_through(2, 0)
    stream.idempotency.configure(50, 3)
    for iid in (b"a", b"b", b"c", b"d"):
        stream.idempotency.record(b"p", iid, (9, 0), now_ms=20)
    stream.idempotency.count_duplicate(4)
    group = stream.create_group(b"g", 5, 3, 0, 3)
    deliver(group, b"c", 10, 100)
    deliver(group, b"d", 10, 90)
    group.release(flat_words([(9, 0, 2), (8, 0, 3)]))
    group.delay(flat_words([(10, 0, 900, 1), (7, 0, 700, 2**40)]))
    group.acknowledge(flat_words([(5, 0)]))
    stream.delete([(12, 0)], marks=True)
    db.set_string(b"k", b"v")
    db.set_expiry(b"k", 5000)
    db.push(b"l", [b"a", b"b"], left=True)
    other.add_members(b"m", [b"x"])  # one: a set's order may differ after it was restored
    other.set_fields(b"h", [(b"f", b"v"), (b"g", b"")])
    other.create_stream(b"empty", 9)
    db.copy(b"s", other, b"copy", 10, [(5, 6)])
    return keyspace


# --- keys -----------------------------------------------------------------------------------------


def test_every_kind_of_value_is_restored(keyspace: Keyspace) -> None:
    # Given a store with a little of everything, which continues with larger numbers than it uses
    mixed(keyspace)
    keyspace.next_sid, keyspace.next_gid = 50, 60
    # When it is restored from its image, then the state is equal
    again = restored(keyspace)
    assert (again.next_sid, again.next_gid) == (50, 60)
    # And an image of the restored store is the same again
    assert list(image_facts(again)) == list(image_facts(keyspace))


def test_an_empty_store_is_restored(keyspace: Keyspace) -> None:
    assert restored(keyspace).next_sid == 1


def test_a_scan_continues_at_the_same_cursor(keyspace: Keyspace) -> None:
    # Given keys of which some were deleted and created again, and a scan that has begun
    db = keyspace.databases[0]
    for at in range(9):
        db.set_string(b"%d" % at, b"v")
    for at in (0, 4):
        db.delete(b"%d" % at)
        db.set_string(b"%d" % at, b"v")
    cursor, _ = db.order.scan(0, 3)
    # When the store is restored, then the scan returns the same keys, and new keys get higher numbers
    again = restored(keyspace).databases[0]
    assert sorted(again.order.scan(cursor, 99)[1]) == sorted(db.order.scan(cursor, 99)[1])
    assert again.order.numbers[0] < cursor < again.order.numbers[3]
    assert again.order.next_number == db.order.next_number


def test_expiries_are_noted(keyspace: Keyspace) -> None:
    db = keyspace.databases[0]
    for key, at in ((b"a", 500), (b"b", 300)):
        db.set_string(key, b"v")
        db.set_expiry(key, at)
    assert restored(keyspace).next_expiry() == 300


@pytest.mark.parametrize("kind", ["list", "set", "hash"])
def test_a_large_value_is_split_into_groups(keyspace: Keyspace, kind: str) -> None:
    # Given a value several times as large as a record group
    db, items = keyspace.databases[0], [b"%0100d" % at for at in range(12_000)]
    if kind == "list":
        db.push(b"k", items, left=False)
    elif kind == "set":
        db.add_members(b"k", items)
    else:
        db.set_fields(b"k", [(item, item[::-1]) for item in items])
    # When its image is written, then no group is much larger than intended
    sizes = [len(facts) for facts in image_facts(keyspace)]
    assert len(sizes) >= 3
    assert max(sizes) <= 2 * GROUP_BYTES
    # And the value is restored
    restored(keyspace)


def test_a_string_that_is_larger_than_a_group_is_one_fact(keyspace: Keyspace) -> None:
    keyspace.databases[0].set_string(b"before", b"v")
    keyspace.databases[0].set_string(b"large", bytes(3 * GROUP_BYTES))
    keyspace.databases[0].set_string(b"behind", b"v")
    restored(keyspace)
    assert len(list(image_facts(keyspace))) == 2


# --- streams --------------------------------------------------------------------------------------


def test_open_closed_and_sealed_blocks_are_restored_in_their_form(stream: StoredStream) -> None:
    # Given a stream of sealed blocks, closed ones and an open one, with deleted entries in each
    add(stream, 60)
    seal(stream)
    stream.keyspace.sealing.configure(0, "none")
    add(stream, 60)
    stream.delete([(at, 0) for at in range(2, 119, 7)], marks=True)
    stream.trim_through(4, 0)
    forms = [(block.packed is not None, block.closed) for block in stream.log.blocks]
    assert set(forms) == {(True, True), (False, True), (False, False)}
    marks = sum(len(block.packed.marks) for block in stream.log.blocks if block.packed)
    assert marks
    # When it is restored, then every block has its form, and the accounts are the same without marks
    again = restored(keyspace_of_stream(stream))
    other = again.streams[stream.sid]
    assert [(block.packed is not None, block.closed) for block in other.log.blocks] == forms
    assert again.sealing.sealed_bytes == stream.keyspace.sealing.sealed_bytes - marks
    assert again.sealing.sealed_size == stream.keyspace.sealing.sealed_size
    # And entries can be appended and deleted
    add(other, 40)
    other.delete([(3 * at, 0) for at in range(2, 40) if other.log.contains(3 * at, 0)], marks=True)
    assert broken_invariants(again) == []


def keyspace_of_stream(stream: StoredStream) -> Keyspace:
    assert isinstance(stream.keyspace, Keyspace)
    return stream.keyspace


def test_closed_blocks_are_sealed_in_the_image_of_a_store_that_seals(stream: StoredStream) -> None:
    # Given a store that may keep all blocks uncompressed
    stream.keyspace.sealing.configure(10**9, "zlib")
    add(stream, 100)
    assert not any(sealed(stream))
    plain = stream.keyspace.sealing.hot_bytes
    # When it is restored, then all but the last block are sealed
    again = restored(keyspace_of_stream(stream))
    forms = sealed(again.streams[stream.sid])
    assert forms == [True] * (len(forms) - 1) + [False]
    assert again.sealing.sealed_bytes < plain


@pytest.mark.parametrize("megabytes", [1, 70, 150])
def test_an_entry_of_any_size_is_restored(stream: StoredStream, megabytes: int) -> None:
    # Given a store with segments, which packs blocks of any size, and a large entry before another
    keyspace = keyspace_of_stream(stream)
    keyspace.sealing.store_in(MemoryBlobs(), storing=True)
    keyspace.sealing.configure(10**9, "zlib")
    wire = body(b"field", b"v" * (megabytes * 10**6))
    stream.append(1, 0, wire, 1, True)
    stream.append(2, 0, WIRE, 1, True)
    # When it is restored
    again = Keyspace()
    replay = Replay(again)
    for facts in image_facts(keyspace):
        replay.apply(memoryview(facts), 0)
    # Then its block is packed, and has the entry
    (large, _small) = again.streams[stream.sid].log.blocks
    assert large.packed is not None
    assert large.packed.size > len(wire)
    assert again.streams[stream.sid].length == 2


def test_blocks_are_sealed_in_the_order_of_their_ids(keyspace: Keyspace) -> None:
    # Given two streams that were written in turn, and not sealed
    first, second = (keyspace.databases[0].create_stream(b"%d" % sid, sid) for sid in (1, 2))
    for ms in range(1, 400):
        one = first if ms // 50 % 2 else second
        one.append(ms, 0, WIRE, 1, one.length == 0)
    # When the store is restored, and seals a part of its blocks
    again = restored(keyspace)
    again.sealing.configure(again.sealing.hot_bytes // 2, "zlib")
    again.sealing.help(1000)
    # Then those are the oldest of both streams
    blocks = [block for stream in again.streams.values() for block in stream.log.blocks]
    cold = [block.last_ms for block in blocks if block.packed is not None]
    hot = [block.last_ms for block in blocks if block.books == HOT]
    assert cold
    assert max(cold) < min(hot)


def test_blocks_that_a_copy_shares_stay_shared(keyspace: Keyspace, stream: StoredStream) -> None:
    # Given a copy of a stream that was then changed at both ends
    add(stream, 300)
    before = sum(map(len, image_facts(keyspace)))
    keyspace.databases[0].copy(b"s", keyspace.databases[1], b"t", 2, [])
    copy = keyspace.streams[2]
    add(copy, 3)
    copy.trim_through(5, 0)
    shared = [block in copy.log.blocks for block in stream.log.blocks]
    # When the store is restored, then both streams have the same blocks in memory
    again = restored(keyspace)
    one, other = again.streams[1], again.streams[2]
    assert [block in other.log.blocks for block in one.log.blocks] == shared
    assert shared.count(True) == len(shared) - 2
    # And the image is not twice as large
    assert sum(map(len, image_facts(keyspace))) < 1.5 * before
    # And a change of one does not change the other
    one.delete([(150, 0)], marks=True)
    assert other.log.contains(150, 0)
    assert broken_invariants(again) == []


def test_nodes_share_their_names(stream: StoredStream) -> None:
    # Given nodes of which neighbours have the same field names
    for at, name in enumerate((b"a", b"a", b"b", b"b", b"a"), 1):
        stream.append(at, 0, body(name, b"v"), 1, True)
    stream.trim_through(1, 0)
    # When they are restored
    nodes = restored(keyspace_of_stream(stream)).streams[1].nodes
    names = [nodes.names_of(at) for at in range(len(nodes))]
    # Then the names are equal, and stored once for neighbours
    assert names == [stream.nodes.names_of(at) for at in range(4)]
    assert names[1] is names[2]


@pytest.mark.parametrize("per_name", [1, 3])
def test_long_field_names_are_split_into_groups(stream: StoredStream, per_name: int) -> None:
    # Given nodes whose field names are larger than a record group together, and an entry with fields of several groups
    for at in range(1, 301):
        name = b"%d" % (at // per_name) + bytes(10_000)
        stream.append(at, 0, body(name, b"v"), 1, True)
    stream.append(301, 0, body(bytes(3 * GROUP_BYTES), b"v"), 1, True)
    # When they are restored, then all are there
    again = restored(keyspace_of_stream(stream))
    # And no record group is much larger than intended, or than the largest entry
    sizes = sorted(len(facts) for facts in image_facts(keyspace_of_stream(stream)))
    *others, block, node = sizes
    assert len(others) > 10
    assert max(others) < 2 * GROUP_BYTES
    assert max(block, node) < 5 * GROUP_BYTES
    # And an image of the restored store is the same again
    assert list(image_facts(again)) == list(image_facts(keyspace_of_stream(stream)))


def test_idempotent_producers_are_restored_with_their_deadlines(stream: StoredStream) -> None:
    known = stream.idempotency
    known.configure(10, 5)
    for at in range(7):
        known.record(b"p", b"%d" % at, (1000 * at, 1), now_ms=1000 * at)
    known.count_duplicate(3)
    again = restored(keyspace_of_stream(stream))
    assert again.iid_deadlines.next_sweep_ms() == 12_000
    assert again.streams[1].idempotency.tracked == 5
    assert again.streams[1].idempotency.find(b"p", b"6") == (6000, 1)


# --- groups ---------------------------------------------------------------------------------------


def test_pending_entries_are_restored_with_owner_time_and_count(stream: StoredStream) -> None:
    # Given entries of two consumers, renewed and delivered with counts beyond 32 bits
    add(stream, 100)
    group = one_group(stream)
    for at in range(9):
        deliver(group, b"ab"[at % 2 : at % 2 + 1], 10, 1000 - at)
    group.own(group.consumers[b"a"], flat_words([(15, 0, 50, 2**33), (95, 0, 60, 1)]), 60, 60)
    group.acknowledge(array("Q", [word for at in range(30, 60, 2) for word in (at, 0)]))
    # When they are restored, then a walk by delivery time and the next reads are the same
    again = restored(keyspace_of_stream(stream))
    other = again.groups[group.gid]
    assert [other.pel.id(at) for at in other.order.walk()] == [
        group.pel.id(at) for at in group.order.walk()
    ]
    for one in (group, other):
        deliver(one, b"a", 5, 2000)
        one.delete_consumer(one.consumers[b"b"])
    assert picture(again) == picture(keyspace_of_stream(stream))
    assert broken_invariants(again) == []


def test_entries_without_an_owner_are_restored_in_order(stream: StoredStream) -> None:
    # Given released and delayed entries
    add(stream, 20)
    group = one_group(stream)
    deliver(group, b"c", 20, 100)
    group.release(flat_words([(9, 0, 1), (4, 0, 1), (7, 0, 1)]))
    group.delay(flat_words([(11, 0, 900, 1), (10, 0, 700, 2), (12, 0, 700, 1)]))
    # When they are restored
    again = restored(keyspace_of_stream(stream))
    other = again.groups[group.gid]
    # Then they are claimed in the order of their release, and come due at their times
    assert list(other.released) == [(9, 0), (4, 0), (7, 0)]
    assert again.next_due() == 700
    assert again.next_due_group() is other
    other.end_delay(other.due(700))
    assert list(other.released)[3:] == [(10, 0), (12, 0)]
    assert again.next_due() == 900


def test_many_records_are_split_into_groups(stream: StoredStream) -> None:
    # Given more released, delayed and owned entries than fit into a record group
    count = 10_000
    stream.set_id((3 * count, 0), 3 * count, (0, 0))
    stream.trim_through(3 * count, 0)
    group = stream.create_group(b"g", 1, 3 * count, 0, -1)
    consumer = group.create_consumer(b"c", 1, 5)
    group.release(flat_words([(at, 0, 1) for at in range(1, count)]))
    group.delay(flat_words([(count + at, 0, at, 2**32) for at in range(count)]))
    records = [(2 * count + at, 0, 9 + at, 1) for at in range(count)]
    group.own(consumer, flat_words(records), 5, 5)
    # When they are restored, then all are there
    restored(keyspace_of_stream(stream))
    # And no record group is much larger than intended
    assert max(len(facts) for facts in image_facts(keyspace_of_stream(stream))) < 2 * GROUP_BYTES


def test_many_groups_with_long_names_are_split_into_record_groups(stream: StoredStream) -> None:
    # Given consumer groups of which none has a consumer or a pending entry
    names = [b"%d" % gid + bytes(50_000) for gid in range(1, 31)]
    for gid, name in enumerate(names, 1):
        stream.create_group(name, gid, 0, 0, -1)
    # When they are restored, then all are there
    assert [*restored(keyspace_of_stream(stream)).streams[1].groups] == names
    # And no record group is much larger than intended
    assert max(len(facts) for facts in image_facts(keyspace_of_stream(stream))) < 2 * GROUP_BYTES


# --- damage ---------------------------------------------------------------------------------------


def test_an_image_that_ends_early_is_refused_at_every_byte(keyspace: Keyspace) -> None:
    # Given the image of a small store with a stored block and sealed ones, and where its facts end
    blobs = MemoryBlobs()
    keyspace.sealing.store_in(blobs, storing=True)
    keyspace.sealing.configure(0, "zlib")
    (job,) = mixed(keyspace).sealing.choose(1)
    assert blobs.store(keyspace, job)
    keyspace.sealing.configure(10**9, "zlib")
    (facts,) = image_facts(keyspace)
    ends, whole = {0}, Replay(Keyspace())
    for size in range(len(facts)):
        replay = Replay(Keyspace())
        replay.begin(memoryview(facts)[:size], 0)
        try:
            # When it is cut at any byte
            while replay.step() >= 0:
                pass
        except ValueError:
            continue
        ends.add(size)
    # Then it is refused, except where a fact ends
    whole.begin(memoryview(facts), 0)
    kinds = []
    while (kind := whole.step()) >= 0:
        kinds.append(kind)
    assert len(ends) == len(kinds)
    assert set(kinds) >= IMAGE_KINDS


@pytest.mark.parametrize(
    "facts",
    [
        b"\x51" + bytes(200),
        b"\x5e",
        b"\x50" + bytes(16) + b"\x51" + bytes(200),
        b"\x50" + bytes(16) + b"\x57" + bytes(200),
        b"\x50" + bytes(16) + b"\x5d\x10" + bytes(200),
        b"\x50" + bytes(16) + b"\x5d\x00" + bytes(16) + b"\x01\0\0\0" + bytes(8),
    ],
)
def test_facts_of_an_image_that_refer_to_nothing_are_refused(facts: bytes) -> None:
    with pytest.raises(ValueError, match=r"does not exist|outside an image|numbers for more"):
        Replay(Keyspace()).apply(memoryview(facts), 0)


def test_an_image_is_restored_only_into_an_empty_store(keyspace: Keyspace) -> None:
    (facts,) = image_facts(keyspace)
    keyspace.databases[5].set_string(b"k", b"v")
    with pytest.raises(ValueError, match="not empty"):
        Replay(keyspace).apply(memoryview(facts), 0)


def test_an_image_does_not_share_kinds_with_a_journal() -> None:
    assert not KINDS.keys() & IMAGE_KINDS
