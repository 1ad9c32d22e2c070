"""Which blocks are compressed, which are not, and what is known about them without opening one."""

from __future__ import annotations

import gc
import random
import tracemalloc
from collections.abc import Iterator

import pytest

from headwater.common import limits
from headwater.engine.bodies.block_account import HOT, KEPT
from headwater.engine.check import broken_invariants
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.engine.streams.stream import StoredStream
from headwater.engine.tier.sealing import Sealing
from tests.unit.keyspaces import database_of, keyspace_of

BLOCK = 1024


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BLOCK_MAX_BYTES", BLOCK)
    monkeypatch.setattr(limits, "SEALED_LEAST_BYTES", 300)
    monkeypatch.setattr(limits, "PART_LEAST_BYTES", 256)
    monkeypatch.setattr(limits, "SEALED_MOST_BYTES", 4096)
    monkeypatch.setattr(limits, "SEALING_LAG_BYTES", 0)


@pytest.fixture
def stream() -> StoredStream:
    return Keyspace().databases[0].create_stream(b"s", 1)


def body(*words: bytes) -> bytes:
    return b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


def add(stream: StoredStream, count: int, value: bytes = b"value") -> None:
    for _ in range(count):
        stream.append(stream.last_ms + 1, 0, body(b"field", value), 1, stream.length == 0)


def seal(stream: StoredStream, budget: int = 0, codec: str = "zlib") -> Sealing:
    sealing = stream.keyspace.sealing
    sealing.configure(budget, codec)
    for _ in range(3):  # A block that is still written to is skipped once.
        sealing.help(10_000)
    assert broken_invariants(keyspace_of(stream)) == []
    return sealing


def sealed(stream: StoredStream) -> list[bool]:
    return [block.packed is not None for block in stream.log.blocks]


def whole(stream: StoredStream) -> bytes:
    spans, _ = stream.log.spans((0, 0), stream.last_id)
    return b"".join(bytes(span.data()[span.start() : span.stop()]) for span in spans)


def test_nothing_is_sealed_without_a_codec(stream: StoredStream) -> None:
    add(stream, 1000)
    assert seal(stream, 0, "none").sealed_bytes == 0
    assert not any(sealed(stream))


@pytest.mark.parametrize("size", [1, 30, 200])
def test_a_block_that_is_written_to_is_accounted_with_its_arrays(
    stream: StoredStream, size: int
) -> None:
    # Given a block that is nearly full
    while not stream.log.blocks or len(stream.log.blocks[0].data) < BLOCK - 2 * size - 100:
        add(stream, 1, bytes(size))
    (block,) = stream.log.blocks
    assert not block.closed
    # Then it is accounted with its contents and with the objects around them
    contents = len(block.data) + 20 * len(block.offsets)
    assert contents < block.booked < 1.3 * contents + 800


@pytest.mark.parametrize("codec", ["zlib", "auto"])
def test_the_newest_blocks_stay_unsealed(stream: StoredStream, codec: str) -> None:
    # Given many blocks
    add(stream, 1000)
    before = whole(stream)
    taken = stream.keyspace.sealing.hot_bytes
    # When the budget covers a quarter of them
    sealing = seal(stream, taken // 4, codec)
    # Then these are the last ones, the accounting is right, and every byte is there
    form = sealed(stream)
    assert form == sorted(form, reverse=True)
    assert sealing.hot_bytes <= taken // 4 < sealing.hot_bytes + 3 * BLOCK
    assert 0 < sealing.sealed_bytes < sealing.sealed_size
    assert whole(stream) == before


def test_a_block_that_is_written_to_is_skipped_once(stream: StoredStream) -> None:
    # Given two streams whose blocks are not full
    add(stream, 12)
    other = database_of(stream).create_stream(b"t", 2)
    add(other, 12)
    sealing = stream.keyspace.sealing
    sealing.configure(0, "zlib")
    # When both are chosen twice
    assert sealing.choose(2) != [] or sealing.choose(2) != []
    # Then they are closed, and the next entry opens another block
    add(stream, 1)
    assert len(stream.log.blocks) == 2
    assert broken_invariants(keyspace_of(stream)) == []


def test_blocks_that_are_too_small_too_large_or_incompressible_stay_unsealed(
    stream: StoredStream,
) -> None:
    # Given an entry above the largest sealed size, random bytes, and a small stream
    noise = random.Random(1)
    add(stream, 1, b"x" * 10_000)
    add(stream, 20, noise.randbytes(500))
    little = database_of(stream).create_stream(b"t", 2)
    add(little, 1)
    for _ in range(40):
        add(stream, 1, noise.randbytes(300))
    # When the budget is 0
    sealing = seal(stream)
    # Then they stay unsealed, are accounted separately, and are not chosen again
    assert not stream.log.blocks[0].packed
    assert not little.log.blocks[0].packed
    assert {block.books for block in stream.log.blocks if block.packed is None} == {KEPT}
    assert sealing.hot_bytes == 0
    assert not sealing.due()


def test_counts_and_ids_open_no_block(stream: StoredStream) -> None:
    # Given a stream that is sealed except for its end
    add(stream, 500)
    sealing = seal(stream)
    before = sealing.bodies.opened_count
    log = stream.log
    # When counts and ids are read, and entries are removed
    assert log.count_range((0, 0), (400, 0)) == 400
    assert log.nth((10, 0), [0, 100, 300]) == [(10, 0), (110, 0), (310, 0)]
    assert log.contains(250, 0)
    assert not log.contains(250, 1)
    assert log.first() == (1, 0)
    assert log.last() == (500, 0)
    spans, total = log.spans((3, 0), (300, 0))
    assert [entry_id for span in spans for entry_id in span.ids()] == [
        (ms, 0) for ms in range(3, 301)
    ]
    backward, _ = log.backward((3, 0), (300, 0), 5)
    found = [entry_id for span in backward for entry_id in span.ids()[::-1]]
    assert found == [(ms, 0) for ms in range(300, 295, -1)]
    stream.delete([(77, 0), (500, 0)], marks=True)
    stream.trim_through(30, 0)
    assert log.first() == (31, 0)
    assert log.last() == (499, 0)
    assert (total, stream.length) == (298, 468)
    # Then no block is opened
    assert sealing.bodies.opened_count == before
    assert broken_invariants(keyspace_of(stream)) == []


def test_a_sealed_block_of_mostly_deleted_entries_is_rewritten(stream: StoredStream) -> None:
    # Given sealed blocks
    add(stream, 200)
    sealing = seal(stream)
    before = sealing.sealed_bytes
    # When all but every fourth entry is deleted
    gone = [(ms, 0) for ms in range(1, 201) if ms % 4]
    for entry_id in gone:
        stream.delete([entry_id], marks=True)
    # Then the blocks have only the rest, and are sealed if they are large enough
    assert sealing.sealed_bytes < before
    assert sum(len(block.entries()) for block in stream.log.blocks) < BLOCK * 4
    seal(stream)
    assert whole(stream) == b"".join(stream.log.get(ms, 0) or b"missing" for ms in range(4, 201, 4))


def test_a_trimmed_head_is_not_opened(stream: StoredStream) -> None:
    add(stream, 200)
    sealing = seal(stream)
    before = sealing.bodies.opened_count
    for ms in range(1, 150):
        stream.trim_through(ms, 0)
    assert sealing.bodies.opened_count == before
    assert stream.length == 51


def test_a_job_whose_block_has_changed_is_dropped(stream: StoredStream) -> None:
    # Given a compression job
    add(stream, 200)
    sealing = stream.keyspace.sealing
    sealing.configure(0, "zlib")
    (job,) = sealing.choose(1)
    # When its block is compacted before the job is settled
    for ms in range(1, len(job.block.offsets)):
        stream.delete([(ms, 0)], marks=True)
    assert job.block.data is not job.data
    sealing.settle(job, "zlib", b"compressed")
    # Then the compressed bytes are not used
    assert job.block.packed is None
    del job
    seal(stream)
    assert stream.length == len(list(entries_of(stream)))


def entries_of(stream: StoredStream) -> Iterator[tuple[int, int]]:
    for span in stream.log.spans((0, 0), stream.last_id)[0]:
        yield from span.ids()


def test_a_block_whose_compression_failed_stays_unsealed(stream: StoredStream) -> None:
    add(stream, 200)
    sealing = stream.keyspace.sealing
    sealing.configure(0, "zlib")
    (job,) = sealing.choose(1)
    assert job.block.books == HOT
    sealing.settle(job, "zlib", None)
    assert job.block.books == KEPT
    assert whole(stream)


def test_few_blocks_are_open_at_a_time(stream: StoredStream) -> None:
    stream.keyspace.sealing.bodies.most_bytes = 3 * BLOCK
    add(stream, 500)
    sealing = seal(stream)
    whole(stream)
    assert sealing.bodies.opened_count >= 10
    opened = [b for b in stream.log.blocks if b.packed is not None and b.packed.data is not None]
    assert len(opened) == 3
    # And reading in small steps opens a block once
    before = sealing.bodies.opened_count
    for ms in range(1, 21):
        assert stream.log.get(ms, 0)
    assert sealing.bodies.opened_count - before <= 2


def test_deleted_blocks_are_removed_from_the_accounting() -> None:
    # Given sealed, closed, open and copied blocks
    stream = Keyspace().databases[0].create_stream(b"s", 1)
    add(stream, 300)
    sealing = seal(stream)
    add(stream, 50)
    copy = stream.log.copy()
    copy.delete(20, 0)
    # When all of it is deleted
    database_of(stream).delete(b"s")
    keyspace = keyspace_of(stream)
    keyspace.garbage.clear()
    del stream, copy
    # Then nothing is left in the accounting
    sums = (sealing.hot_bytes, sealing.kept_bytes, sealing.sealed_bytes, sealing.sealed_size)
    assert sums == (0, 0, 0, 0)
    assert broken_invariants(keyspace) == []


@pytest.mark.slow
@pytest.mark.parametrize("budget", [0, 10**9])
def test_the_accounting_equals_the_allocated_memory(
    budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given blocks of the default size
    monkeypatch.undo()
    keyspace = Keyspace()
    stream = keyspace.databases[0].create_stream(b"s", 1)
    rng = random.Random(1)
    bodies = [
        body(b"customer", b"c-%012d" % rng.randrange(10**12), b"note", rng.randbytes(20).hex().encode())
        for _ in range(100)
    ]  # fmt: skip
    gc.collect()
    tracemalloc.start()
    try:
        # When many entries are added
        before = tracemalloc.get_traced_memory()[0]
        for ms in range(1, 20_000):
            stream.log.append(ms, 0, bytearray(bodies[ms % 100]), 0, len(bodies[ms % 100]), 2)
        monkeypatch.setattr(keyspace.sealing, "lag", 0)
        keyspace.sealing.configure(budget, "zlib")
        for _ in range(3):
            keyspace.sealing.help(10_000)
        gc.collect()
        real = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    # Then the accounted bytes match what was allocated
    sealing = keyspace.sealing
    accounted = sealing.hot_bytes + sealing.kept_bytes + sealing.sealed_bytes
    assert abs(accounted - real) < 0.1 * real
