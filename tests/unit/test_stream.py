"""A stream's counters: what deletions, trims and XSETID change, and what they do not."""

from __future__ import annotations

import pytest

from headwater.common.model import UNKNOWN, flat_words
from headwater.engine.check import broken_invariants
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.engine.streams.stream import StoredStream
from tests.unit.keyspaces import keyspace_of

WIRE = b"$1\r\na\r\n$1\r\nb\r\n"


def stream_of(*ms: int) -> StoredStream:
    """Create a stream with the entries ``ms-0``."""
    stream = Keyspace().databases[0].create_stream(b"s", 1)
    for one in ms:
        stream.append(one, 0, WIRE, 1, one == ms[0])
    return stream


def test_an_append_raises_the_last_id_and_entries_added() -> None:
    stream = stream_of(1, 2, 5)
    assert (stream.length, stream.last_id, stream.entries_added) == (3, (5, 0), 3)


def test_an_append_with_an_id_that_does_not_rise_is_an_assertion_error() -> None:
    stream = stream_of(5)
    with pytest.raises(AssertionError):
        stream.append(5, 0, WIRE, 1, False)


def test_a_trim_changes_only_the_length() -> None:
    stream = stream_of(1, 2, 3)
    stream.trim_through(2, 0)
    assert (stream.length, stream.log.first()) == (1, (3, 0))
    assert (stream.entries_added, stream.max_deleted_id, stream.last_id) == (3, (0, 0), (3, 0))


def test_only_a_deletion_with_marks_raises_max_deleted_id() -> None:
    stream = stream_of(1, 2, 3, 4)
    stream.delete([(2, 0)], marks=False)
    assert stream.max_deleted_id == (0, 0)
    stream.delete([(3, 0), (1, 0)], marks=True)
    assert stream.max_deleted_id == (3, 0)
    assert stream.log.first() == (4, 0)


def test_deleting_a_missing_entry_is_an_assertion_error() -> None:
    stream = stream_of(1)
    with pytest.raises(AssertionError, match="7-0 does not exist"):
        stream.delete([(7, 0)], marks=True)


def test_an_emptied_stream_still_exists() -> None:
    stream = stream_of(1, 2)
    stream.delete([(1, 0), (2, 0)], marks=True)
    assert keyspace_of(stream).databases[0].values[b"s"] is stream
    assert stream.log.first() == stream.log.last() == (0, 0)
    stream.append(2, 1, WIRE, 1, True)
    assert broken_invariants(keyspace_of(stream)) == []


def test_max_trimmed_id_never_decreases() -> None:
    stream = stream_of(1, 2, 3, 4)
    stream.trim_through(2, 0)
    # XSETID may set the last id back. What was trimmed stays trimmed
    stream.set_id((4, 0), 4, (0, 0))
    stream.trim_through(1, 0)
    assert stream.max_trimmed_id == (2, 0)


def test_a_pending_block_with_a_deleted_entry_is_marked() -> None:
    stream = stream_of(1, 2, 3)
    group = stream.create_group(b"g", 1, 0, 0, 0)
    group.deliver(group.create_consumer(b"c", 1, 5), 5, (1, 0), (2, 0), 2, 2, noack=False)
    stream.delete([(3, 0)], marks=True)
    assert [block.dangling for block in group.pel.blocks] == [False]
    stream.delete([(2, 0)], marks=True)
    assert [block.dangling for block in group.pel.blocks] == [True]


@pytest.mark.parametrize(
    ("entry_id", "read"),
    [
        ((0, 0), 1),
        ((1, 9), 1),
        ((2, 0), 2),
        ((2, 1), UNKNOWN),
        ((3, 0), UNKNOWN),
        ((4, 0), 4),
        ((4, 1), UNKNOWN),
    ],
)
def test_entries_read_is_known_only_at_the_ends(entry_id: tuple[int, int], read: int) -> None:
    # Given four added entries, of which the first was trimmed
    stream = stream_of(1, 2, 3, 4)
    stream.trim_through(1, 0)
    assert stream.entries_read_at(entry_id) == read


def test_entries_read_before_a_deletion_is_unknown() -> None:
    stream = stream_of(1, 2, 3, 4)
    stream.delete([(2, 0)], marks=True)
    assert stream.entries_read_at((0, 0)) == UNKNOWN
    assert stream.entries_read_at((1, 0)) == UNKNOWN
    assert stream.entries_read_at((4, 0)) == 4


def test_entries_read_of_an_empty_stream() -> None:
    assert stream_of().entries_read_at((7, 7)) == 0
    stream = stream_of(1, 2)
    stream.trim_through(2, 0)
    assert stream.entries_read_at((1, 0)) == 2
    assert stream.entries_read_at((9, 0)) == UNKNOWN


def test_an_entry_is_referenced_while_unread_or_pending() -> None:
    stream = stream_of(1, 2)
    assert not stream.referenced((1, 0))
    group = stream.create_group(b"g", 1, 0, 0, UNKNOWN)
    assert stream.referenced((1, 0))
    consumer = group.create_consumer(b"c", 1, 0)
    group.deliver(consumer, 5, (1, 0), (2, 0), 2, 2, noack=False)
    assert stream.referenced((1, 0))
    group.acknowledge(flat_words([(1, 0)]))
    assert not stream.referenced((1, 0))
    assert stream.referenced((2, 0))


def test_destroying_a_group_removes_all_of_its_state() -> None:
    stream = stream_of(1)
    group = stream.create_group(b"g", 1, 0, 0, UNKNOWN)
    consumer = group.create_consumer(b"c", 1, 0)
    group.deliver(consumer, 5, (1, 0), (1, 0), 1, 1, noack=False)
    group.delay(flat_words([(1, 0, 99, 1)]))
    group.see(consumer, 6)
    stream.destroy_group(b"g")
    keyspace = keyspace_of(stream)
    assert (keyspace.groups, keyspace.delaying, keyspace.unseen) == ({}, {}, {})
    assert broken_invariants(keyspace) == []
