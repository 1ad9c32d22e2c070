"""Blocks whose bodies are on disk: what is known without reading them, and how they are recovered."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from headwater.common import limits
from headwater.engine.bodies.codecs import make_codec
from headwater.engine.bodies.sealed_block import ColdBlocks, SealedBlock
from headwater.engine.check import broken_invariants
from headwater.engine.image.image import image_facts
from headwater.engine.image.snapshot import StreamSnapshot
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.engine.streams.stream import StoredStream
from headwater.engine.tier.warming import warm
from headwater.errors import JournalDamaged
from tests.stored import MemoryBlobs, places, small_stored_blocks, store
from tests.unit.keyspaces import database_of, keyspace_of
from tests.unit.test_sealing import BLOCK, add, whole


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    small_stored_blocks(monkeypatch)


@pytest.fixture
def blobs() -> MemoryBlobs:
    return MemoryBlobs()


@pytest.fixture
def stream(blobs: MemoryBlobs) -> StoredStream:
    keyspace = Keyspace()
    keyspace.sealing.store_in(blobs, storing=True)
    return keyspace.databases[0].create_stream(b"s", 1)


# --- what leaves memory -----------------------------------------------------------------------------


def test_a_stored_block_has_only_its_ids_in_memory(
    stream: StoredStream, blobs: MemoryBlobs
) -> None:
    # Given entries
    add(stream, 300)
    before, sealing = whole(stream), stream.keyspace.sealing
    # When all blocks are stored
    store(stream, blobs)
    # Then a fraction of their bytes is in memory, and what is on disk is counted by segment
    assert None not in places(stream)
    assert sealing.hot_bytes == 0
    assert sealing.stored_size > len(before) * 0.9
    assert sum(sealing.segments().values()) == sum(
        2 * place.head_bytes + place.body_bytes + 4 for place in blobs.blobs
    )
    # And each entry is there
    assert whole(stream) == before


def test_incompressible_and_large_entries_are_stored_and_small_blocks_are_not(
    stream: StoredStream, blobs: MemoryBlobs
) -> None:
    # Given random bytes, an entry above the largest sealed size, and a small stream
    noise = random.Random(1)
    for _ in range(20):
        add(stream, 1, noise.randbytes(300))
    add(stream, 1, noise.randbytes(10_000))
    little = database_of(stream).create_stream(b"t", 2)
    add(little, 1)
    before = whole(stream)
    # When blocks are stored
    store(stream, blobs)
    # Then only the small one stays in memory
    assert None not in places(stream)
    assert places(little) == [None]
    assert {block.packed.codec for block in stream.log.blocks if block.packed} == {"none"}
    assert whole(stream) == before


def test_blocks_that_turns_have_compressed_are_stored_later(
    stream: StoredStream, blobs: MemoryBlobs
) -> None:
    # Given blocks that were sealed in memory, because the thread lagged behind
    add(stream, 300)
    sealing = stream.keyspace.sealing
    sealing.configure(0, "zlib")
    sealing.help(10)
    assert sum(block.packed is not None for block in stream.log.blocks) == 10
    assert sealing.due()
    # When blocks are stored, then those are stored, too, as they are
    store(stream, blobs)
    assert None not in places(stream)
    assert not sealing.due()


def test_a_job_whose_disk_is_full_is_offered_again(
    stream: StoredStream, blobs: MemoryBlobs
) -> None:
    # Given jobs whose bodies could not be written
    add(stream, 300)
    keyspace = keyspace_of(stream)
    keyspace.sealing.configure(0, "zlib")
    for job in keyspace.sealing.choose(3):
        assert not keyspace.store(job, "zlib", make_codec("zlib").compress(job.data), None)
    assert stream.keyspace.facts.data.count(b"\x29") == 0 or places(stream)[:3] == [None] * 3
    # Then the blocks are sealed in memory, and stored when the disk has space again
    assert all(block.packed is not None for block in stream.log.blocks[:3])
    store(stream, blobs)
    assert None not in places(stream)


def test_a_store_without_compression_stores_blocks_as_they_are(
    stream: StoredStream, blobs: MemoryBlobs
) -> None:
    add(stream, 300)
    before = whole(stream)
    blobs.store_all(keyspace_of(stream), codec="none")
    assert None not in places(stream)
    assert whole(stream) == before


# --- what needs no body -----------------------------------------------------------------------------


def test_no_change_of_a_stored_block_reads_a_body(stream: StoredStream, blobs: MemoryBlobs) -> None:
    # Given a stored stream whose bodies are all damaged, and a group
    add(stream, 300)
    group = stream.create_group(b"g", 1, 0, 0, 0)
    blobs.store_all(keyspace_of(stream))
    blobs.lost.update(blobs.blobs)
    # When entries are delivered, deleted, most of a block one by one, trimmed, copied and renamed
    consumer = group.create_consumer(b"c", 1, 5)
    group.deliver(consumer, 5, (1, 0), (50, 0), 50, 50, noack=False)
    for ms in range(60, 90):
        stream.delete([(ms, 0)], marks=True)
    stream.delete([(300, 0)], marks=True)
    stream.trim_through(100, 0)
    database_of(stream).copy(b"s", database_of(stream), b"t", 2, [(1, 2)])
    copy = keyspace_of(stream).streams[2]
    copy.delete([(101, 0)], marks=True)
    copy.trim_through(150, 0)
    database_of(stream).rename(b"s", database_of(stream), b"u")
    stream.set_id((500, 0), 400, (400, 0))
    add(stream, 10)
    # Then counts and ids are right
    assert stream.length == 199 + 10
    assert copy.length == 149
    assert stream.log.first() == (101, 0)
    assert copy.log.first() == (151, 0)
    assert stream.log.count_range((101, 0), (299, 0)) == 199
    assert list(image_facts(keyspace_of(stream)))
    # And no body was read
    assert blobs.reads == 0
    # And the rest of the state is sound once the bodies can be read
    blobs.lost.clear()
    assert broken_invariants(keyspace_of(stream)) == []


def test_a_damaged_body_concerns_only_its_block(stream: StoredStream, blobs: MemoryBlobs) -> None:
    # Given a stored stream in which one body is damaged
    add(stream, 100)
    store(stream, blobs)
    damaged = stream.log.blocks[1]
    there = places(stream)[1]
    assert there is not None
    stream.keyspace.sealing.bodies.most_bytes = 0
    whole(stream)
    blobs.lost.add(there)
    # Then its entries cannot be read, and all others can
    with pytest.raises(JournalDamaged):
        stream.log.get(*damaged.first())
    assert stream.log.get(1, 0)
    assert stream.log.get(100, 0)


# --- reading ----------------------------------------------------------------------------------------


def test_a_command_that_may_not_wait_names_all_blocks_that_it_needs(
    stream: StoredStream, blobs: MemoryBlobs
) -> None:
    # Given a stored stream of which nothing is in the page cache
    add(stream, 300)
    before = whole(stream)
    blobs.store_all(keyspace_of(stream))
    bodies = stream.keyspace.sealing.bodies
    bodies.may_wait, blobs.cached = False, 0.0
    spans, _ = stream.log.spans((10, 0), (150, 0))
    # When a range is opened
    with pytest.raises(ColdBlocks) as raised:
        warm(stream.keyspace.sealing, ((stream.log, spans),))
    # Then the blocks of the range are wanted, and those after it will be
    stored = [block.packed for block in stream.log.blocks]
    wanted, ahead = raised.value.wanted, list(raised.value.ahead)
    assert wanted == stored[: len(wanted)]
    assert ahead == stored[len(wanted) :]
    # When they are delivered, which is more than the cache holds
    codec = make_codec("zlib")
    bodies.deliver([bodies.load(packed, codec) for packed in wanted])
    # Then the command can read all of them
    warm(stream.keyspace.sealing, ((stream.log, spans),))
    text = b"".join(bytes(span.data()[span.start() : span.stop()]) for span in spans)
    assert text in before
    # And afterwards the cache keeps its bound
    bodies.release()
    opened = [one for one in stored if one is not None and one.data is not None]
    assert sum(one.size for one in opened) <= 2 * BLOCK
    assert len(opened) >= 1


def test_a_backward_scan_reads_ahead_what_is_before(
    stream: StoredStream, blobs: MemoryBlobs
) -> None:
    add(stream, 300)
    blobs.store_all(keyspace_of(stream))
    stream.keyspace.sealing.bodies.may_wait, blobs.cached = False, 0.0
    spans, _ = stream.log.backward((0, 0), (200, 0), 3)
    with pytest.raises(ColdBlocks) as raised:
        warm(stream.keyspace.sealing, ((stream.log, spans),), backward=True)
    at = stream.log.find_block(*spans[-1].ids()[0])
    assert list(raised.value.ahead) == [block.packed for block in stream.log.blocks[:at][::-1]]


def test_held_blocks_stay_open_while_others_are_opened(
    stream: StoredStream, blobs: MemoryBlobs
) -> None:
    # Given blocks of a command, held, in a cache that is too small for them
    add(stream, 300)
    blobs.store_all(keyspace_of(stream))
    spans, _ = stream.log.spans((1, 0), (150, 0))
    warm(stream.keyspace.sealing, ((stream.log, spans),))
    stream.keyspace.sealing.bodies.may_wait, blobs.cached = False, 0.0
    before = blobs.reads
    # When they are read, entry by entry
    for ms in range(1, 151):
        assert stream.log.get(ms, 0)
    # Then nothing is read again
    assert blobs.reads == before


def read(stream: StoredStream, first: int, last: int) -> None:
    """Read a range as a command does."""
    spans, _ = stream.log.spans((first, 0), (last, 0))
    warm(stream.keyspace.sealing, ((stream.log, spans),))
    for span in spans:
        assert span.data()
    stream.keyspace.sealing.bodies.release()


def test_a_client_that_reads_a_whole_stream_does_not_close_what_others_read(
    stream: StoredStream, blobs: MemoryBlobs
) -> None:
    # Given a cache of six blocks, and two that clients have read in turn
    add(stream, 500)
    blobs.store_all(keyspace_of(stream))
    stream.keyspace.sealing.bodies.resize(6 * BLOCK)
    for _ in range(2):
        read(stream, 1, 1)
        read(stream, 100, 100)
    # When another one reads all entries, in steps
    for first in range(1, 500, 10):
        read(stream, first, first + 9)
    # Then the two are still open
    before = blobs.reads
    read(stream, 1, 1)
    read(stream, 100, 100)
    assert blobs.reads == before
    # And it has read each block once
    assert before == len(stream.log.blocks)


def test_blocks_that_are_read_in_turn_stay_open_as_far_as_the_cache_reaches(
    stream: StoredStream, blobs: MemoryBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a cache of eight blocks, of which one is for what was read once
    monkeypatch.setattr(limits, "READ_ONCE_BYTES", BLOCK)
    add(stream, 500)
    blobs.store_all(keyspace_of(stream))
    bodies = stream.keyspace.sealing.bodies
    bodies.resize(8 * BLOCK)
    # When five clients read their blocks in turn
    for _ in range(10):
        for entry in (1, 100, 200, 300, 400):
            read(stream, entry, entry)
    # Then each block was read twice: when it had been closed, it was known to be needed
    assert blobs.reads <= 2 * 5
    assert bodies.open_bytes() <= 8 * BLOCK


def _flip(packed: SealedBlock) -> None:
    assert packed.data is not None
    packed.data = packed.data[:5] + bytes([packed.data[5] ^ 1]) + packed.data[6:]


OPEN_FAULTS: dict[str, tuple[Callable[[SealedBlock], None], str]] = {
    "bytes": (_flip, "differ from the block's"),
    "place": (lambda one: setattr(one, "opened_at", 1), "from byte 1 on are open"),
    "end": (lambda one: setattr(one, "opened_to", one.count), "bytes from byte 0 on are open"),
    "copy": (lambda one: setattr(one, "wire", one.rest), "in memory twice"),
}


@pytest.mark.parametrize("name", OPEN_FAULTS)
def test_a_fault_of_what_is_open_is_reported(
    stream: StoredStream, blobs: MemoryBlobs, name: str
) -> None:
    # Given a stored block of which a part is open
    add(stream, 100)
    blobs.store_all(keyspace_of(stream))
    assert stream.log.get(1, 0)
    assert broken_invariants(keyspace_of(stream)) == []
    stream.keyspace.sealing.bodies.close_all()
    assert stream.log.get(1, 0)
    packed = stream.log.blocks[0].packed
    assert packed is not None
    # When what is open is damaged
    plant, sentence = OPEN_FAULTS[name]
    plant(packed)
    # Then the check says so
    found = broken_invariants(keyspace_of(stream))
    assert any(sentence in one for one in found), found


def text_of(snapshot: StreamSnapshot) -> bytearray:
    """Return the bytes of all live entries."""
    found = bytearray()
    for _, block, first, end in snapshot.live_runs():
        stop = block.offsets[end] if end < len(block.offsets) else len(block.data)
        found += block.data[block.offsets[first] : stop]
    return found


def test_a_snapshot_is_complete_while_a_part_of_a_block_is_open(
    stream: StoredStream, blobs: MemoryBlobs
) -> None:
    # Given a stored stream of which one entry was read
    add(stream, 100)
    expected = whole(stream)
    blobs.store_all(keyspace_of(stream))
    assert stream.log.get(1, 0)
    packed = stream.log.blocks[0].packed
    assert packed is not None
    assert packed.has_open(0, 1)
    assert not packed.has_open(0, packed.count)
    # Then a snapshot has all of them
    assert text_of(StreamSnapshot(stream)) == expected


def test_a_snapshot_is_read_after_its_stream_was_deleted(
    blobs: MemoryBlobs,
) -> None:
    # Given a snapshot of a stored stream, which is then deleted
    keyspace = Keyspace()
    keyspace.sealing.store_in(blobs, storing=True)
    stream = keyspace.databases[0].create_stream(b"s", 1)
    add(stream, 100)
    store(stream, blobs)
    expected = whole(stream)
    snapshot = StreamSnapshot(stream)
    database_of(stream).delete(b"s")
    keyspace.garbage.clear()
    del stream
    # Then its segments are still in use
    assert keyspace.sealing.segments()
    assert text_of(snapshot) == expected
    # And no longer, once it was read
    del snapshot
    assert keyspace.sealing.segments() == {}
