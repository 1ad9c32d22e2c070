"""Blocks whose bodies are on disk are recovered from the journal and from images."""

from __future__ import annotations

import pytest

from headwater.engine.bodies.blobs import BlobPlace
from headwater.engine.check import broken_invariants
from headwater.engine.facts.facts import FactBuffer
from headwater.engine.image.image import image_facts
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.engine.replay.replay import Replay
from headwater.engine.streams.stream import StoredStream
from tests.property.state import picture
from tests.stored import MemoryBlobs, places, small_stored_blocks, store, stored_blocks
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


def replayed(facts: bytearray, blobs: MemoryBlobs, *, block_bytes: int = BLOCK) -> Keyspace:
    """Return the state after these facts. The blocks of the new store have ``block_bytes``."""
    keyspace = Keyspace(FactBuffer(muted=True))
    keyspace.sealing.block_bytes = block_bytes
    keyspace.sealing.store_in(blobs, storing=True)
    Replay(keyspace).apply(memoryview(facts), 0)
    assert broken_invariants(keyspace) == []
    return keyspace


# --- recovery ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("block_bytes", [BLOCK, 700, 300, 5000])
def test_stored_blocks_are_recovered_whatever_the_blocks_of_the_new_store(
    stream: StoredStream, blobs: MemoryBlobs, block_bytes: int
) -> None:
    # Given stored blocks with tombstones, and newer ones that are not stored
    add(stream, 300)
    stream.delete([(5, 0), (77, 0), (78, 0)], marks=True)
    store(stream, blobs)
    stream.delete([(100, 0)], marks=True)
    stream.trim_through(20, 0)
    add(stream, 40)
    # When the facts are replayed
    again = replayed(stream.keyspace.facts.data, blobs, block_bytes=block_bytes)
    # Then the state is equal, and no block is in memory that was stored
    assert picture(again) == picture(keyspace_of(stream))
    before, after = stream.keyspace.sealing, again.sealing
    assert after.stored_size >= before.stored_size
    assert set(after.segments()) == set(before.segments())
    if block_bytes == BLOCK:
        assert places(again.streams[1]) == places(stream)


def test_a_range_whose_ids_are_damaged_stays_in_memory(
    stream: StoredStream, blobs: MemoryBlobs
) -> None:
    # Given a store whose first blob is damaged after it was stored
    add(stream, 100)
    store(stream, blobs)
    expected = picture(keyspace_of(stream))
    blobs.lost.add(min(blobs.blobs))
    # When a store with other blocks is recovered
    again = replayed(stream.keyspace.facts.data, blobs, block_bytes=5000)
    # Then it has all entries, and says what it could not use
    assert picture(again) == expected
    assert len(again.unread_blobs) == 1
    assert set(again.sealing.segments().values()) != {0}


def reported(stream: StoredStream, blobs: MemoryBlobs) -> list[str]:
    """Return what a recovery into other blocks reports of blobs."""
    again = replayed(stream.keyspace.facts.data, blobs, block_bytes=5000)
    return [one.problem for one in again.unread_blobs if one.matters(again.streams)]


def test_a_damaged_blob_is_reported_as_long_as_a_stream_or_a_copy_has_its_entries(
    stream: StoredStream, blobs: MemoryBlobs
) -> None:
    # Given a damaged blob of a stream that was copied, and whose copy was copied and renamed
    add(stream, 100)
    store(stream, blobs)
    damaged = min(blobs.blobs)
    blobs.lost.add(damaged)
    database, other = database_of(stream), keyspace_of(stream).databases[1]
    database.copy(b"s", other, b"t", 2, [])
    other.copy(b"t", other, b"u", 3, [])
    other.rename(b"u", database, b"v")
    # When one after the other is deleted, then it is reported until the last one is
    for last in (database, b"s"), (other, b"t"), (database, b"v"):
        assert reported(stream, blobs) == [f"the blob at {damaged} is damaged"]
        last[0].delete(last[1])
    assert reported(stream, blobs) == []


def test_a_damaged_blob_is_reported_as_long_as_one_of_its_entries_is_there(
    stream: StoredStream, blobs: MemoryBlobs
) -> None:
    # Given a damaged blob
    add(stream, 100)
    store(stream, blobs)
    blobs.lost.add(min(blobs.blobs))
    block = stream.log.blocks[0]
    last = block.last_ms
    # When its entries are deleted, then it is reported until the last one is
    stream.trim_through(last - 2, 0)
    assert len(reported(stream, blobs)) == 1
    stream.delete([(last, 0)], marks=True)
    assert len(reported(stream, blobs)) == 1
    stream.delete([(last - 1, 0)], marks=True)
    assert reported(stream, blobs) == []


def test_ids_that_are_used_again_are_not_those_of_a_missing_blob(
    stream: StoredStream, blobs: MemoryBlobs
) -> None:
    # Given a stream all of whose entries were deleted, after which their blobs were removed
    add(stream, 100)
    store(stream, blobs)
    stream.trim_through(100, 0)
    blobs.lost.update(blobs.blobs)
    # When XSETID allows the same ids again
    stream.set_id((0, 0), 100, (0, 0))
    add(stream, 100)
    # Then nothing is reported
    assert reported(stream, blobs) == []


def test_a_blob_that_was_moved_is_not_missed_at_its_old_place(
    stream: StoredStream, blobs: MemoryBlobs
) -> None:
    # Given a stream and a copy, all of whose blobs were moved, after which their segments were removed
    add(stream, 100)
    store(stream, blobs)
    keyspace = keyspace_of(stream)
    database_of(stream).copy(b"s", database_of(stream), b"t", 2, [])
    for block in list(stream.log.blocks):
        assert block.packed is not None
        assert block.packed.blob is not None
        old = block.packed.blob.place()
        new = old._replace(segment=99 + old.segment)
        blobs.blobs[new] = blobs.blobs[old]
        blobs.lost.add(old)
        assert keyspace.move(1, block, old, new)
    # Then nothing is reported, also of the copy alone
    assert reported(stream, blobs) == []
    database_of(stream).delete(b"s")
    assert reported(stream, blobs) == []


def test_an_id_that_is_used_again_does_not_get_the_bytes_of_the_blob(
    stream: StoredStream, blobs: MemoryBlobs
) -> None:
    # Given a job for a block, whose last entry is then deleted and added again with other bytes
    add(stream, 10)
    keyspace = keyspace_of(stream)
    keyspace.sealing.configure(0, "zlib")
    assert keyspace.sealing.choose(1) == []
    (job,) = keyspace.sealing.choose(1)
    stream.delete([(10, 0)], marks=False)
    stream.set_id((9, 0), 10, (0, 0))
    add(stream, 1, b"other")
    # When the block is stored, and the facts are replayed
    assert blobs.store(keyspace, job)
    again = replayed(keyspace.facts.data, blobs)
    # Then the newer entry is read
    assert b"other" in (again.streams[1].log.get(10, 0) or b"")
    assert picture(again) == picture(keyspace)


def test_a_block_that_changed_before_it_was_stored_gets_no_record(
    stream: StoredStream, blobs: MemoryBlobs
) -> None:
    # Given jobs of a stream that is compacted, and of one that is deleted meanwhile
    add(stream, 100)
    other = database_of(stream).create_stream(b"t", 2)
    add(other, 100)
    keyspace = keyspace_of(stream)
    keyspace.sealing.configure(0, "zlib")
    jobs = keyspace.sealing.choose(100)
    one, two = jobs[0], next(job for job in jobs if job.origin == 2)
    for ms in range(1, one.entries):
        stream.delete([(ms, 0)], marks=False)
    database_of(stream).delete(b"t")
    # When they are done, then nothing is recorded
    size = len(keyspace.facts.data)
    assert not blobs.store(keyspace, one)
    assert not blobs.store(keyspace, two)
    assert len(keyspace.facts.data) == size
    # And nothing of them stays on disk once they are freed
    keyspace.garbage.clear()
    del one, two, jobs, other
    assert keyspace.sealing.segments() == {}


def test_a_block_that_only_a_copy_has_is_recorded_for_the_copy(
    stream: StoredStream, blobs: MemoryBlobs
) -> None:
    # Given a job of a stream that is copied, and deleted, meanwhile
    add(stream, 100)
    keyspace = keyspace_of(stream)
    keyspace.sealing.configure(0, "zlib")
    job = keyspace.sealing.choose(1)[0]
    database_of(stream).copy(b"s", database_of(stream), b"t", 2, [])
    database_of(stream).delete(b"s")
    # When it is done, then the copy is recovered with it
    assert blobs.store(keyspace, job)
    again = replayed(keyspace.facts.data, blobs)
    assert picture(again) == picture(keyspace)
    assert places(again.streams[2])[0] is not None


def test_a_moved_blob_is_moved_for_all_copies(stream: StoredStream, blobs: MemoryBlobs) -> None:
    # Given a stored stream and a copy of it that has changed
    add(stream, 100)
    store(stream, blobs)
    keyspace = keyspace_of(stream)
    database_of(stream).copy(b"s", database_of(stream), b"t", 2, [])
    copy = keyspace.streams[2]
    copy.delete([(3, 0)], marks=True)
    # When the blobs of a segment are moved to another
    found = stored_blocks(stream.log, {1})
    for block in found:
        assert block.packed is not None
        assert block.packed.blob is not None
        old = block.packed.blob.place()
        new = BlobPlace(99, old.offset, old.head_bytes, old.body_bytes)
        blobs.blobs[new] = blobs.blobs[old]
        assert keyspace.move(1, block, old, new)
        assert not keyspace.move(1, block, old, new)
    # Then nothing refers to the old segment, here and after a recovery
    for one in (keyspace, replayed(keyspace.facts.data, blobs)):
        assert 1 not in one.sealing.segments()
        assert picture(one) == picture(keyspace)


def test_an_image_refers_to_blobs_and_contains_no_bodies(
    stream: StoredStream, blobs: MemoryBlobs
) -> None:
    # Given a stored stream, a changed copy, and entries that are not stored
    add(stream, 300, b"v" * 50)
    store(stream, blobs)
    database_of(stream).copy(b"s", database_of(stream), b"t", 2, [])
    keyspace_of(stream).streams[2].delete([(3, 0)], marks=True)
    add(stream, 5)
    blobs_read = blobs.reads
    image = list(image_facts(keyspace_of(stream)))
    assert blobs.reads == blobs_read
    assert sum(map(len, image)) < 0.3 * len(whole(stream))
    # When a store is restored from its image
    again = Keyspace(FactBuffer(muted=True))
    again.sealing.store_in(blobs, storing=True)
    replay = Replay(again)
    for facts in image:
        replay.apply(memoryview(facts), 0)
    # Then the state is equal, and so is the use of segments
    assert broken_invariants(again) == []
    assert picture(again) == picture(keyspace_of(stream))
    assert again.sealing.segments() == stream.keyspace.sealing.segments()


def test_deleting_what_is_stored_frees_its_segments(
    stream: StoredStream, blobs: MemoryBlobs
) -> None:
    # Given a stored stream and a copy
    add(stream, 100)
    store(stream, blobs)
    keyspace = keyspace_of(stream)
    keyspace.sealing.bodies.most_bytes = 0
    database_of(stream).copy(b"s", database_of(stream), b"t", 2, [])
    before = keyspace.sealing.segments().copy()
    # When the original is trimmed, then nothing changes; when the copy is deleted, all is free
    stream.trim_through(100, 0)
    whole(keyspace.streams[2])
    assert keyspace.sealing.segments() == before
    database_of(stream).delete(b"t")
    keyspace.garbage.clear()
    assert keyspace.sealing.segments() == {}
