"""The segments of a store: which are removed, and when; what a full or broken disk does."""

from __future__ import annotations

import pytest

from headwater.common import limits
from headwater.engine.check import broken_invariants
from headwater.journal.segments.segments import segment_name, segment_numbers
from headwater.persistence.checking import check_store
from headwater.persistence.reading import keyspace_at
from headwater.server.services.storage import compactions, sealer
from headwater.testing.node import LocalStore
from tests.unit.cold import (
    fill,
    finish_segment,
    made,
    next_segment,
    small_blocks,
    store_all,
    stored_bytes,
)


@pytest.fixture(autouse=True)
def blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    small_blocks(monkeypatch)
    monkeypatch.setattr(compactions, "LEAST_BYTES", 1)


def segments_of(store: LocalStore) -> list[int]:
    """Return the numbers of the segments on disk."""
    assert store.files is not None
    return segment_numbers(store.files)


def filled(count: int = 300) -> LocalStore:
    """Return a store with ``count`` entries of stream ``s``, most of them on disk."""
    store = made()
    fill(store.client(), count)
    store_all(store)
    return store


def info(store: LocalStore) -> bytes:
    """Return the section ``persistence`` of INFO."""
    found = store.client()("INFO", "persistence")
    assert isinstance(found, bytes)
    return found


def checkpoint(store: LocalStore) -> None:
    """Write an image in this process."""
    store.node.services.storage.checkpoints.write_now()


def test_a_crash_loses_nothing_that_is_on_disk() -> None:
    # Given a store with entries on disk
    store = filled()
    before = store.client()("XRANGE", "s", "-", "+")
    size = stored_bytes(store)
    # When it crashes, before and after a checkpoint
    store.crash()
    assert store.client()("XRANGE", "s", "-", "+") == before
    assert stored_bytes(store) == size
    checkpoint(store)
    store.crash()
    # Then the same entries are on disk, and the same replies are given
    assert store.client()("XRANGE", "s", "-", "+") == before
    assert stored_bytes(store) == size
    assert broken_invariants(store.node.keyspace) == []


def test_the_image_has_no_entries_that_are_on_disk() -> None:
    # Given a store with far more entries on disk than in memory
    store = filled(2000)
    # When an image is written
    checkpoint(store)
    # Then it has only their ids
    journal = store.node.journal
    assert journal is not None
    image = journal.image
    assert image is not None
    assert image.size < stored_bytes(store) // 5


def test_a_segment_is_removed_after_the_checkpoint_that_follows_its_last_entry() -> None:
    # Given two segments, and a trim of all entries of the first one
    store = filled()
    finish_segment(store)
    client = store.client()
    fill(client, 300, first=1001)
    store_all(store)
    assert segments_of(store) == [1, 2]
    client("XTRIM", "s", "MINID", "1001-0")
    # When nothing but the trim has happened
    # Then the first one is still there: the last image may refer to it
    assert segments_of(store) == [1, 2]
    # And it is removed after a checkpoint
    checkpoint(store)
    assert segments_of(store) == [2]
    before = client("XRANGE", "s", "-", "+")
    store.crash()
    assert store.client()("XRANGE", "s", "-", "+") == before


@pytest.mark.parametrize("removal", [("DEL", "s"), ("FLUSHALL",), ("XTRIM", "s", "MAXLEN", "0")])
def test_entries_that_were_read_last_keep_no_segment_after_their_removal(
    removal: tuple[str, ...],
) -> None:
    # Given entries on disk, all of which are open for reading
    store = made(stream_cold_cache_bytes=1 << 20)
    client = store.client()
    fill(client, 300)
    store_all(store)
    next_segment(store)
    client("XRANGE", "s", "-", "+")
    assert store.node.keyspace.sealing.bodies.open_bytes() > 20_000
    # When they are removed
    client(*removal)
    while store.node.keyspace.garbage:
        store.node.tick()
    # Then they take no memory, and the next checkpoint removes their segment
    assert store.node.keyspace.sealing.bodies.open_bytes() == 0
    checkpoint(store)
    assert segments_of(store) == [2]
    assert broken_invariants(store.node.keyspace) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [("CONFIG", "SET", "stream-cold-cache-bytes", "0"), ("MEMORY", "PURGE")]
)
def test_open_entries_leave_memory_at_once_when_they_are_to(command: tuple[str, ...]) -> None:
    # Given entries on disk that are open for reading
    store = made(stream_cold_cache_bytes=1 << 20)
    client = store.client()
    fill(client, 300)
    store_all(store)
    client("XRANGE", "s", "-", "+")
    bodies = store.node.keyspace.sealing.bodies
    assert bodies.open_bytes() > 20_000
    # When the bound is lowered, or the memory purged
    client(*command)
    # Then none is open
    assert bodies.open_bytes() == 0


def test_no_entry_stays_open_after_a_command_without_a_cache() -> None:
    # Given a store that may keep nothing open
    store = filled()
    client = store.client()
    # When entries on disk are read, together and one at a time
    for command in (
        ("XRANGE", "s", "-", "+"),
        ("XRANGE", "s", "5", "5-9"),
        ("XREAD", "STREAMS", "s", "7"),
    ):
        assert client(*command)
        # Then nothing is open after the command
        assert store.node.keyspace.sealing.bodies.open_bytes() == 0


def test_a_copy_keeps_the_segment_of_its_source() -> None:
    # Given a stream on disk and its copy
    store = filled()
    finish_segment(store)
    client = store.client()
    fill(client, 50, key="other")
    store_all(store)
    before = client("XRANGE", "s", "-", "+")
    assert client("COPY", "s", "copy") == 1
    # When the source is deleted
    client("DEL", "s")
    checkpoint(store)
    # Then the copy has everything, also after crashes
    store.crash()
    checkpoint(store)
    store.crash()
    assert store.client()("XRANGE", "copy", "-", "+") == before


def test_a_start_removes_what_nothing_refers_to() -> None:
    # Given a segment that no record names
    store = filled()
    store.client()("DEL", "s")
    checkpoint(store)
    assert store.files is not None
    store.files.create(segment_name(7), 100)
    store.files.sync(segment_name(7))
    store.files.sync_directory()
    # When the store starts
    store.crash()
    # Then it is gone, and its number is not used again
    assert segments_of(store) == []
    fill(store.client(), 300)
    store_all(store)
    assert segments_of(store) == [8]


def test_a_start_keeps_what_the_image_refers_to() -> None:
    # Given an image that refers to a segment, and a later deletion of its entries
    store = filled()
    checkpoint(store)
    store.client()("DEL", "s")
    # When the store starts
    store.crash()
    # Then the segment is there until the next image
    assert segments_of(store) == [1]
    checkpoint(store)
    assert segments_of(store) == []


def test_a_start_keeps_what_the_journal_refers_to() -> None:
    # Given entries on disk that were deleted, which the journal has in this order
    store = filled()
    length = store.client()("XLEN", "s")
    before_ms = store.node.services.times.now()
    store.advance(1)
    store.client()("DEL", "s")
    # When the store starts, again and again
    for _ in range(2):
        store.crash()
        # Then the segment is there until the next image, and the time before can be read
        assert segments_of(store) == [1]
    assert store.files is not None
    (image,) = store.files.crash_images(seed=0, count=1)
    (stream,) = keyspace_at(image, before_ms).streams.values()
    assert len([block.entries() for block in stream.log.blocks]) > 1
    assert stream.length == length
    checkpoint(store)
    assert segments_of(store) == []


REMOVALS: tuple[tuple[tuple[str, ...], ...], ...] = (
    (("DEL", "s"), ("DEL", "copy")),
    (("FLUSHALL",),),
    (("XTRIM", "s", "MAXLEN", "0"), ("XTRIM", "copy", "MAXLEN", "0")),
    (("SET", "s", "x"), ("RENAME", "s", "copy")),
    (("RENAME", "s", "copy"), ("SWAPDB", "0", "1"), ("FLUSHALL",)),
    (("MOVE", "s", "1"), ("MOVE", "copy", "1"), ("FLUSHALL",)),
    (("PEXPIRE", "s", "1"), ("COPY", "empty", "copy", "REPLACE")),
)


@pytest.mark.parametrize("removal", REMOVALS, ids=str)
@pytest.mark.parametrize("cuts", [True, False])
def test_a_segment_is_missed_only_while_its_entries_are_there(
    removal: tuple[tuple[str, ...], ...],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    *,
    cuts: bool,
) -> None:
    # Given entries on disk that a copy has, too, and whose segment is missing; blocks are cut elsewhere or not
    store = filled()
    client = store.client()
    client("XADD", "empty", "1-1", "field", "x")
    client("COPY", "s", "copy")
    store_all(store)
    if cuts:
        monkeypatch.setattr(limits, "BLOCK_MAX_BYTES", 5000)
    assert store.files is not None
    for number in segments_of(store):
        store.files.remove(segment_name(number))
    store.files.sync_directory()
    # When the store starts, then the log says so
    store.crash()
    assert "segment-000001" in caplog.text
    # And not after a start that finds the entries deleted
    caplog.clear()
    for command in removal:
        store.client()(*command)
    store.advance(1)
    store.crash()
    (image,) = store.files.crash_images(seed=0, count=1)
    assert check_store(image).notes == []
    assert caplog.text == ""


def test_a_missing_segment_is_reported_and_prevents_no_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Given a store whose image refers to a segment, which was removed
    store = filled()
    checkpoint(store)
    assert store.files is not None
    store.files.remove(segment_name(1))
    store.files.sync_directory()
    # When it starts
    store.crash()
    # Then the log names the file, and ids and new entries are usable
    assert "memory:/segment-000001 is missing" in caplog.text
    client = store.client()
    assert client("XLEN", "s") == 300
    assert client("XADD", "s", "9999-1", "a", "b") == b"9999-1"


def test_a_failed_fsync_of_a_segment_costs_memory_only(caplog: pytest.LogCaptureFixture) -> None:
    # Given a disk that fails while a segment is made durable
    store = made()
    assert store.files is not None
    failing = store.files

    def on_operation(line: str) -> None:
        if line == "sync segment-000001":
            failing.fail("sync")

    failing.on_operation = on_operation
    client = store.client()
    # When blocks are to be stored
    fill(client, 300)
    store_all(store)
    # Then they stay in memory, nothing is lost, and the log says so
    assert stored_bytes(store) == 0
    assert "because no segment can be written: [Errno 5]" in caplog.text
    found = client("XRANGE", "s", "-", "+")
    assert isinstance(found, list)
    assert len(found) == 300
    # And a restart stores them
    store.crash()
    assert store.client()("XRANGE", "s", "-", "+") == found
    store_all(store)
    assert stored_bytes(store) > 5000


def test_storing_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    # Given a disk that was full when a block was to be stored
    store = made()
    assert store.files is not None
    client = store.client()
    used = store.files.used_bytes()
    store.files.capacity = used
    fill(client, 100)
    store_all(store)
    assert stored_bytes(store) == 0
    assert "because no segment can be written" in caplog.text
    assert b"segment_failure:[Errno 28]" in info(store)
    # When it has space again
    store.files.capacity = None
    store.advance(sealer.PAUSE_S + 1)
    fill(client, 10, first=101)
    store_all(store)
    # Then what was sealed in memory is stored
    assert stored_bytes(store) > 5000
    store.client()("SET", "durable", "1")
    assert b"segment_failure:\r\n" in info(store)
    before = client("XRANGE", "s", "-", "+")
    store.crash()
    assert store.client()("XRANGE", "s", "-", "+") == before


def test_a_sparse_segment_is_compacted_and_removed() -> None:
    # Given a segment of which a tenth is live
    store = filled(1000)
    finish_segment(store)
    client = store.client()
    fill(client, 50, key="other")
    store_all(store)
    client("XTRIM", "s", "MAXLEN", "100")
    before = client("XRANGE", "s", "-", "+")
    # When it is compacted
    compacting = store.node.services.storage.compactions
    with store.node.lock:
        compacting.begin()
    compacting.wait()
    # Then nothing refers to it, and it is removed by a checkpoint that begins by itself
    assert 1 not in store.node.keyspace.sealing.segments()
    assert compacting.moved_bytes > 0
    client("PING")
    assert 1 not in segments_of(store)
    # And the entries are in another one, also after a crash
    assert client("XRANGE", "s", "-", "+") == before
    assert broken_invariants(store.node.keyspace) == []
    store.crash()
    assert store.client()("XRANGE", "s", "-", "+") == before


def test_a_compaction_moves_copies_with_their_source() -> None:
    # Given a sparse segment to which a stream and its copy refer
    store = filled(1000)
    finish_segment(store)
    client = store.client()
    fill(client, 50, key="other")
    store_all(store)
    client("XTRIM", "s", "MAXLEN", "100")
    client("COPY", "s", "copy")
    client("XDEL", "copy", "950-1")
    before = [client("XRANGE", key, "-", "+") for key in ("s", "copy")]
    # When it is compacted, a checkpoint removes it, and the store crashes
    compacting = store.node.services.storage.compactions
    with store.node.lock:
        compacting.begin()
    compacting.wait()
    checkpoint(store)
    store.crash()
    # Then both have their entries
    client = store.client()
    assert [client("XRANGE", key, "-", "+") for key in ("s", "copy")] == before
