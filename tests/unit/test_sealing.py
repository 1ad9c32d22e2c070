"""Which blocks are compressed, which are not, and what is known of them without opening one."""

from __future__ import annotations

import gc
import random
import tracemalloc
from collections.abc import Iterator

import pytest

from headwater import limits
from headwater.engine.check import broken_invariants
from headwater.engine.keyspace import Keyspace
from headwater.engine.sealing import HOT, KEPT, Sealing
from headwater.engine.stream import StoredStream
from tests.unit.keyspaces import keyspace_of

BLOCK = 1024


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BLOCK_MAX_BYTES", BLOCK)
    monkeypatch.setattr(limits, "SEALED_LEAST_BYTES", 300)
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
    for _ in range(3):  # What is being written to is passed over once.
        sealing.help(10_000)
    assert broken_invariants(keyspace_of(stream)) == []
    return sealing


def sealed(stream: StoredStream) -> list[bool]:
    return [block.packed is not None for block in stream.log.blocks]


def whole(stream: StoredStream) -> bytes:
    spans, _ = stream.log.spans((0, 0), stream.last_id)
    return b"".join(bytes(span.wire()) for span in spans)


def test_nothing_is_sealed_until_it_is_asked_for(stream: StoredStream) -> None:
    add(stream, 1000)
    assert seal(stream, 0, "none").sealed_bytes == 0
    assert not any(sealed(stream))


@pytest.mark.parametrize("size", [1, 30, 200])
def test_a_block_that_is_written_to_is_in_the_books_with_its_arrays(
    stream: StoredStream, size: int
) -> None:
    # Given a block that is nearly full
    while not stream.log.blocks or len(stream.log.blocks[0].data) < BLOCK - 2 * size - 100:
        add(stream, 1, bytes(size))
    (block,) = stream.log.blocks
    assert not block.closed
    # Then it is booked with what it holds, and with the objects around that
    held = len(block.data) + 20 * len(block.offsets)
    assert held < block.booked < 1.3 * held + 800


@pytest.mark.parametrize("codec", ["zlib", "auto"])
def test_the_newest_stay_as_they_were_written(stream: StoredStream, codec: str) -> None:
    # Given many blocks
    add(stream, 1000)
    before = whole(stream)
    taken = stream.keyspace.sealing.hot_bytes
    # When a quarter of them may stay
    sealing = seal(stream, taken // 4, codec)
    # Then that is the last ones, the books have it, and every byte is there
    form = sealed(stream)
    assert form == sorted(form, reverse=True)
    assert sealing.hot_bytes <= taken // 4 < sealing.hot_bytes + 3 * BLOCK
    assert 0 < sealing.sealed_bytes < sealing.sealed_size
    assert whole(stream) == before


def test_a_block_that_is_written_to_is_passed_over_once(stream: StoredStream) -> None:
    # Given two streams whose blocks are not full
    add(stream, 12)
    other = stream.db.create_stream(b"t", 2)
    add(other, 12)
    sealing = stream.keyspace.sealing
    sealing.configure(0, "zlib")
    # When the turn of both comes, and again
    assert sealing.choose(2) != [] or sealing.choose(2) != []
    # Then they are closed, and what comes next has another block
    add(stream, 1)
    assert len(stream.log.blocks) == 2
    assert broken_invariants(keyspace_of(stream)) == []


def test_what_is_too_small_too_large_or_does_not_shrink_stays(stream: StoredStream) -> None:
    # Given an entry that is larger than what is ever sealed, noise, and a little stream
    noise = random.Random(1)
    add(stream, 1, b"x" * 10_000)
    add(stream, 20, noise.randbytes(500))
    little = stream.db.create_stream(b"t", 2)
    add(little, 1)
    for _ in range(40):
        add(stream, 1, noise.randbytes(300))
    # When nothing may stay
    sealing = seal(stream)
    # Then they stay, are in books of their own, and nobody looks at them again
    assert not stream.log.blocks[0].packed
    assert not little.log.blocks[0].packed
    assert {block.books for block in stream.log.blocks if block.packed is None} == {KEPT}
    assert sealing.hot_bytes == 0
    assert not sealing.due()


def test_counts_and_ids_open_no_block(stream: StoredStream) -> None:
    # Given a stream that is sealed but for its end
    add(stream, 500)
    sealing = seal(stream)
    before = sealing.opened_count
    log = stream.log
    # When it is asked for what is known without a body, and entries are removed
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
    assert [span.ids() for span in backward] == [[(ms, 0)] for ms in range(300, 295, -1)]
    stream.delete([(77, 0), (500, 0)], marks=True)
    stream.trim_through(30, 0)
    assert log.first() == (31, 0)
    assert log.last() == (499, 0)
    assert (total, stream.length) == (298, 468)
    # Then no block was opened for it
    assert sealing.opened_count == before
    assert broken_invariants(keyspace_of(stream)) == []


def test_a_sealed_block_of_which_most_is_dead_is_written_anew(stream: StoredStream) -> None:
    # Given sealed blocks
    add(stream, 200)
    sealing = seal(stream)
    before = sealing.sealed_bytes
    # When all but every fourth entry is deleted
    gone = [(ms, 0) for ms in range(1, 201) if ms % 4]
    for entry_id in gone:
        stream.delete([entry_id], marks=True)
    # Then they hold the rest only, and are sealed when they are large enough
    assert sealing.sealed_bytes < before
    assert sum(len(block.entries()) for block in stream.log.blocks) < BLOCK * 4
    seal(stream)
    assert whole(stream) == b"".join(stream.log.get(ms, 0) or b"missing" for ms in range(4, 201, 4))


def test_a_trimmed_head_is_not_opened(stream: StoredStream) -> None:
    add(stream, 200)
    sealing = seal(stream)
    before = sealing.opened_count
    for ms in range(1, 150):
        stream.trim_through(ms, 0)
    assert sealing.opened_count == before
    assert stream.length == 51


def test_a_job_whose_block_has_changed_is_done_again(stream: StoredStream) -> None:
    # Given a job in another thread's hands
    add(stream, 200)
    sealing = stream.keyspace.sealing
    sealing.configure(0, "zlib")
    (job,) = sealing.choose(1)
    # When its block is compacted, and another goes with its stream
    for ms in range(1, len(job.block.offsets)):
        stream.delete([(ms, 0)], marks=True)
    assert job.block.data is not job.data
    sealing.settle(job, "zlib", b"compressed")
    # Then what was compressed is not taken for its bytes
    assert job.block.packed is None
    del job
    seal(stream)
    assert stream.length == len(list(entries_of(stream)))


def entries_of(stream: StoredStream) -> Iterator[tuple[int, int]]:
    for span in stream.log.spans((0, 0), stream.last_id)[0]:
        yield from span.ids()


def test_what_could_not_be_compressed_stays(stream: StoredStream) -> None:
    add(stream, 200)
    sealing = stream.keyspace.sealing
    sealing.configure(0, "zlib")
    (job,) = sealing.choose(1)
    assert job.block.books == HOT
    sealing.settle(job, "zlib", None)
    assert job.block.books == KEPT
    assert whole(stream)


def test_few_blocks_are_open_at_a_time(
    stream: StoredStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "OPENED_BLOCKS", 3)
    add(stream, 500)
    sealing = seal(stream)
    whole(stream)
    assert sealing.opened_count >= 10
    opened = [b for b in stream.log.blocks if b.packed is not None and b.packed.data is not None]
    assert len(opened) == 3
    # And what is read in small steps is opened once
    before = sealing.opened_count
    for ms in range(1, 21):
        assert stream.log.get(ms, 0)
    assert sealing.opened_count - before <= 2


def test_what_goes_leaves_the_books() -> None:
    # Given sealed, closed, open and copied blocks
    stream = Keyspace().databases[0].create_stream(b"s", 1)
    add(stream, 300)
    sealing = seal(stream)
    add(stream, 50)
    copy = stream.log.copy()
    copy.delete(20, 0)
    # When all of it goes
    stream.db.delete(b"s")
    keyspace = keyspace_of(stream)
    keyspace.garbage.clear()
    del stream, copy
    # Then nothing is left in the books
    sums = (sealing.hot_bytes, sealing.kept_bytes, sealing.sealed_bytes, sealing.sealed_size)
    assert sums == (0, 0, 0, 0)
    assert broken_invariants(keyspace) == []


@pytest.mark.parametrize("budget", [0, 10**9])
def test_the_books_say_what_blocks_take(budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given blocks of the real size
    monkeypatch.undo()
    keyspace = Keyspace()
    stream = keyspace.databases[0].create_stream(b"s", 1)
    chance = random.Random(1)
    bodies = [
        body(b"customer", b"c-%012d" % chance.randrange(10**12), b"note", chance.randbytes(20).hex().encode())
        for _ in range(100)
    ]  # fmt: skip
    gc.collect()
    tracemalloc.start()
    try:
        # When there are many entries
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
    # Then what is in the books is what the allocator was asked for
    sealing = keyspace.sealing
    told = sealing.hot_bytes + sealing.kept_bytes + sealing.sealed_bytes
    assert abs(told - real) < 0.1 * real
