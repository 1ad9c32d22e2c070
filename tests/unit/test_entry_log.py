"""Blocks of entries compared with a dict, with block sizes far below the real ones."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.engine.check import broken_invariants
from headwater.engine.entries.entry_log import EntryLog
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.engine.streams.stream import StoredStream
from headwater.engine.tier.sealing import Sealing
from tests.blocks import tiny_blocks
from tests.unit.keyspaces import keyspace_of

ID = tuple[int, int]

WIRE = b"$1\r\na\r\n$%d\r\n%b\r\n"
ids = st.tuples(st.integers(0, 12), st.integers(0, 2))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 3), st.integers(1, 60)),
        st.tuples(st.just("delete"), ids, st.none()),
        st.tuples(st.just("trim"), ids, st.none()),
        st.tuples(st.just("seal"), st.integers(1, 9), st.sampled_from(["zlib", "auto"])),
        st.tuples(st.just("copy"), st.none(), st.none()),
    ),
    max_size=60,
)


def wire(size: int) -> bytes:
    return WIRE % (size, b"x" * size)


def append(log: EntryLog, ms: int, seq: int, body: bytes) -> None:
    log.append(ms, seq, bytearray(body), 0, len(body), 1)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_blocks(monkeypatch, block_bytes=200)


class Naive:
    """The same stream twice: as a dict and as the engine's stream."""

    def __init__(self) -> None:
        self.entries: dict[ID, bytes] = {}
        self.stream: StoredStream = Keyspace().databases[0].create_stream(b"s", 1)
        self.log: EntryLog = self.stream.log
        self.others: list[tuple[EntryLog, dict[ID, bytes]]] = []

    def append(self, step: int, size: int) -> None:
        ms, seq = self.stream.last_id
        entry_id = (ms + step, 0) if step else (ms, seq + 1)
        body = bytearray(wire(size))
        opens = self.stream.nodes.opens(body, 0, len(body), 0, 3)
        self.stream.append(*entry_id, wire(size), 1, opens)
        name = b"%d-%d" % entry_id
        header = b"*2\r\n$%d\r\n%b\r\n*2\r\n" % (len(name), name)
        self.entries[entry_id] = header + wire(size)

    def delete(self, entry_id: ID) -> None:
        there = entry_id in self.entries
        assert self.log.contains(*entry_id) == there
        if there:
            self.stream.delete([entry_id], marks=True)
            del self.entries[entry_id]
        else:
            assert not self.log.delete(*entry_id)

    def trim(self, entry_id: ID) -> None:
        self.stream.trim_through(*entry_id)
        self.entries = {at: body for at, body in self.entries.items() if at > entry_id}

    def seal(self, most: int, codec: str) -> None:
        sealing = self.stream.keyspace.sealing
        sealing.configure(0, codec)
        sealing.help(most)

    def copy(self) -> None:
        """Continue with a copy of the log, which shares the original's blocks."""
        self.others.append((self.log, dict(self.entries)))
        self.log = self.stream.log = self.log.copy()

    def do(self, what: str, first: Any, second: Any) -> None:
        if what == "append":
            self.append(first, second)
        elif what == "delete":
            self.delete(first)
        elif what == "trim":
            self.trim(first)
        elif what == "seal":
            self.seal(first, second)
        else:
            self.copy()


@pytest.mark.slow
@given(steps)
@settings(max_examples=150)
def test_entries_that_were_appended_and_not_removed_are_there(
    steps: list[tuple[str, Any, Any]],
) -> None:
    # Given any history of a stream
    naive = Naive()
    for step in steps:
        naive.do(*step)
        # Then after each step its counters, ends and nodes agree with a recount
        assert broken_invariants(keyspace_of(naive.stream)) == []
        assert naive.log.length == len(naive.entries)
        assert naive.log.first() == min(naive.entries, default=(0, 0))
        assert naive.log.last() == max(naive.entries, default=(0, 0))
    # And each entry is there with its bytes, in copies too
    for log, entries in (*naive.others, (naive.log, naive.entries)):
        assert log.length == len(entries)
        for entry_id, body in entries.items():
            assert log.get(*entry_id) == body


@given(steps, ids, ids, st.sampled_from([-1, 0, 1, 2, 5]))
@settings(max_examples=300)
def test_a_range_equals_that_of_a_list(
    steps: list[tuple[str, Any, Any]], start: ID, end: ID, count: int
) -> None:
    # Given any history
    naive = Naive()
    for step in steps:
        naive.do(*step)
    inside = [at for at in sorted(naive.entries) if start <= at <= end]
    most = len(inside) if count < 0 else count
    # When it is read forward, backward and counted
    forward, found = naive.log.spans(start, end, count)
    backward, found_back = naive.log.backward(start, end, count)
    # Then ids, bytes and counts equal those of the list
    assert [at for span in forward for at in span.ids()] == inside[:most]
    assert b"".join(bytes(span.data()[span.start() : span.stop()]) for span in forward) == b"".join(
        naive.entries[at] for at in inside[:most]
    )
    assert [at for span in backward for at in span.ids()[::-1]] == inside[::-1][:most]
    assert found == found_back == len(inside[:most])
    assert naive.log.count_range(start, end) == len(inside)


@given(steps, ids, st.sets(st.integers(0, 20), max_size=4))
@settings(max_examples=150)
def test_the_nth_entry_is_found_by_counts(
    steps: list[tuple[str, Any, Any]], start: ID, wanted: set[int]
) -> None:
    naive = Naive()
    for step in steps:
        naive.do(*step)
    there = [at for at in sorted(naive.entries) if at >= start]
    numbers = sorted(number for number in wanted if number < len(there))
    assert naive.log.nth(start, numbers) == [there[number] for number in numbers]


def test_ids_rise_in_a_block_although_last_id_was_set_back() -> None:
    # Given a block whose last entry was deleted without a mark, and last_id set back below it
    naive = Naive()
    for _ in range(5):
        naive.append(1, 1)
    naive.stream.delete([(4, 0), (5, 0)], marks=False)
    naive.stream.set_id((3, 0), 5, (0, 0))
    # When the next entry gets an id that was used before
    naive.append(1, 1)
    # Then it is found, and the block is in order
    assert naive.log.get(4, 0) is not None
    assert naive.log.last() == (4, 0)
    assert broken_invariants(keyspace_of(naive.stream)) == []


def test_dead_bytes_never_outweigh_the_live_ones() -> None:
    # Given a hundred entries in one block
    log = EntryLog()
    for seq in range(100):
        append(log, 1, seq, wire(1))
    before = sum(len(block.data) for block in log.blocks)
    # When all but every tenth are deleted
    for seq in range(100):
        if seq % 10:
            log.delete(1, seq)
    # Then their space is freed
    assert sum(len(block.data) for block in log.blocks) < before / 4


def test_an_entry_larger_than_a_block_gets_a_separate_block() -> None:
    log = EntryLog()
    for seq, size in enumerate((1, 1000, 1)):
        append(log, 1, seq, wire(size))
    assert log.length == 3
    assert log.last() == (1, 2)


def test_the_greatest_id_can_be_trimmed_away() -> None:
    most = 2**64 - 1
    log = EntryLog()
    append(log, most, most, wire(1))
    assert log.trim_through(most, most) == 1
    assert log.blocks == []


@pytest.mark.parametrize("sealed", [False, True])
def test_a_log_and_its_copy_change_independently(sealed: bool) -> None:
    # Given a log of several blocks and a copy of it
    sealing = Sealing()
    sealing.configure(0, "zlib" if sealed else "none")
    log = EntryLog(sealing)
    for seq in range(20):
        append(log, 1, seq, WIRE % (1, b"b"))
    sealing.help(9)
    sealing.help(9)
    assert all((block.packed is not None) == sealed for block in log.blocks[:-1])
    copy = log.copy()
    assert all(one is other for one, other in zip(log.blocks, copy.blocks, strict=True))

    def bytes_of(one: EntryLog) -> bytes:
        return b"".join(
            bytes(span.data()[span.start() : span.stop()]) for span in one.spans((0, 0), (9, 9))[0]
        )

    whole = bytes_of(log)
    # When each is changed by every operation
    for one, seq in ((log, 20), (copy, 21)):
        other, before = (copy, bytes_of(copy)) if one is log else (log, bytes_of(log))
        append(one, 1, seq, WIRE % (1, b"b"))
        one.delete(1, 10)
        one.delete(1, seq)
        one.trim_through(1, 1)
        assert bytes_of(other) == before
    # Then each has what it would have without the other
    assert (
        bytes_of(log) == bytes_of(copy) == b"".join(log.get(1, seq) or b"" for seq in range(2, 20))
    )
    assert len(whole) > len(bytes_of(log))
    # And a copy of the copy, made after the last entries were deleted, works as well
    copy.delete(1, 19)
    third = copy.copy()
    for seq in range(2, 19):
        third.delete(1, seq)
    append(third, 1, 30, WIRE % (1, b"b"))
    assert third.length == 1
    assert copy.length == 16
