"""Ownership in a group: every pending entry has one owner, or is released, or is delayed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.common.model import UNKNOWN, flat_words, id_pairs
from headwater.engine.check import broken_invariants
from headwater.engine.groups.consumer import NEVER, GroupConsumer
from headwater.engine.groups.group import ConsumerGroup
from headwater.engine.groups.pending import NOWHERE
from headwater.engine.keyspace.keyspace import Keyspace
from headwater.engine.streams.stream import StoredStream
from tests.unit.keyspaces import keyspace_of

WIRE = b"$1\r\na\r\n$1\r\nb\r\n"
ID = tuple[int, int]


@pytest.fixture
def stream() -> Iterator[StoredStream]:
    """A stream with entries 1-0 to 6-0. Checks its invariants after the test."""
    made = Keyspace().databases[0].create_stream(b"s", 1)
    for ms in range(1, 7):
        made.append(ms, 0, WIRE, 1, ms == 1)
    yield made
    assert broken_invariants(keyspace_of(made)) == []


@pytest.fixture
def group(stream: StoredStream) -> ConsumerGroup:
    return stream.create_group(b"g", 1, 0, 0, 0)


@pytest.fixture
def ann(group: ConsumerGroup) -> GroupConsumer:
    return group.create_consumer(b"ann", 1, 0)


@pytest.fixture
def bob(group: ConsumerGroup) -> GroupConsumer:
    return group.create_consumer(b"bob", 2, 0)


def owners(group: ConsumerGroup) -> dict[ID, bytes | None]:
    found: dict[ID, bytes | None] = {}
    at = group.pel.seek(0, 0)
    while at != NOWHERE:
        consumer = group.consumer_of(at)
        found[group.pel.id(at)] = None if consumer is None else consumer.name
        at = group.pel.after(at)
    return found


def record(group: ConsumerGroup, ms: int) -> tuple[int, int]:
    """Return time and delivery count of a pending entry."""
    at = group.pel.find(ms, 0)
    return group.pel.time(at), group.pel.delivery_count(at)


def ids(group: ConsumerGroup, now_ms: int) -> list[ID]:
    """Return the ids that are due."""
    return id_pairs(group.due(now_ms))


def test_delivered_entries_are_owned(group: ConsumerGroup, ann: GroupConsumer) -> None:
    group.deliver(ann, 50, (1, 0), (3, 0), 3, 3, noack=False)
    assert owners(group) == {(1, 0): b"ann", (2, 0): b"ann", (3, 0): b"ann"}
    assert (group.last_id, group.entries_read, ann.pending) == ((3, 0), 3, 3)
    assert (ann.seen_time, ann.active_time) == (50, 50)
    assert record(group, 2) == (50, 1)


def test_with_noack_nothing_becomes_pending(group: ConsumerGroup, ann: GroupConsumer) -> None:
    group.deliver(ann, 50, (1, 0), (3, 0), 3, 3, noack=True)
    assert owners(group) == {}
    assert (group.last_id, ann.seen_time, ann.active_time) == ((3, 0), 50, NEVER)


def test_an_entry_delivered_as_new_again_gets_a_new_owner_and_count_1(
    group: ConsumerGroup, ann: GroupConsumer, bob: GroupConsumer
) -> None:
    group.deliver(ann, 50, (1, 0), (2, 0), 2, 2, noack=False)
    group.own(ann, flat_words([(1, 0, 60, 5)]), 60, 60)
    group.set_id(0, 0, UNKNOWN)
    group.deliver(bob, 70, (1, 0), (1, 0), 1, 1, noack=False)
    assert owners(group) == {(1, 0): b"bob", (2, 0): b"ann"}
    assert record(group, 1) == (70, 1)
    assert (ann.pending, bob.pending) == (1, 1)


def test_an_acknowledged_entry_is_removed_whatever_its_owner(
    group: ConsumerGroup, ann: GroupConsumer
) -> None:
    group.deliver(ann, 50, (1, 0), (4, 0), 4, 4, noack=False)
    group.release(flat_words([(1, 0, 1)]))
    group.delay(flat_words([(2, 0, 900, 1)]))
    group.acknowledge(flat_words([(1, 0), (2, 0), (3, 0)]))
    assert owners(group) == {(4, 0): b"ann"}
    assert (group.released, group.delayed, group.keyspace.delaying) == ({}, {}, {})


def test_released_entries_are_in_order_of_their_release(
    group: ConsumerGroup, ann: GroupConsumer
) -> None:
    group.deliver(ann, 50, (1, 0), (4, 0), 4, 4, noack=False)
    group.release(flat_words([(3, 0, 1), (1, 0, 1)]))
    group.release(flat_words([(2, 0, 1), (3, 0, 7)]))
    assert list(group.released) == [(1, 0), (2, 0), (3, 0)]
    assert record(group, 3) == (0, 7)
    assert owners(group)[3, 0] is None
    assert ann.pending == 1


def test_delays_end_in_order_of_due_time_and_id(group: ConsumerGroup, ann: GroupConsumer) -> None:
    # Given three delayed entries and one that was released before
    group.deliver(ann, 50, (1, 0), (4, 0), 4, 4, noack=False)
    group.delay(flat_words([(3, 0, 200, 1), (1, 0, 200, 2), (2, 0, 100, 3)]))
    group.release(flat_words([(4, 0, 1)]))
    assert (group.next_due(), ids(group, 99), ids(group, 100)) == (100, [], [(2, 0)])
    assert ids(group, 200) == [(2, 0), (1, 0), (3, 0)]
    # When they are due
    group.end_delay(group.due(200))
    # Then they follow the released one in that order, with their counts
    assert list(group.released) == [(4, 0), (2, 0), (1, 0), (3, 0)]
    assert (group.next_due(), group.delayed, group.keyspace.delaying) == (None, {}, {})
    assert [record(group, ms) for ms in (1, 2, 3)] == [(0, 2), (0, 3), (0, 1)]


def test_a_delayed_entry_can_be_delayed_again_released_or_owned(
    group: ConsumerGroup, ann: GroupConsumer
) -> None:
    group.deliver(ann, 50, (1, 0), (3, 0), 3, 3, noack=False)
    group.delay(flat_words([(ms, 0, 100, 1) for ms in (1, 2, 3)]))
    group.delay(flat_words([(1, 0, 300, 2)]))
    group.release(flat_words([(2, 0, 2)]))
    group.own(ann, flat_words([(3, 0, 120, 2)]), 120, 120)
    assert group.delayed == {(1, 0): 300}
    assert list(group.released) == [(2, 0)]
    assert owners(group)[3, 0] == b"ann"
    assert group.next_due() == 300


def test_deleting_a_consumer_drops_its_entries_and_no_others(
    group: ConsumerGroup, ann: GroupConsumer, bob: GroupConsumer
) -> None:
    group.deliver(ann, 50, (1, 0), (4, 0), 4, 4, noack=False)
    group.own(bob, flat_words([(2, 0, 60, 2)]), 60, 60)
    group.release(flat_words([(3, 0, 1)]))
    group.see(ann, 70)
    group.delete_consumer(ann)
    assert owners(group) == {(2, 0): b"bob", (3, 0): None}
    assert group.keyspace.unseen == {}
    assert group.consumers == {b"bob": bob}


def test_the_number_of_a_consumer_is_not_assigned_twice(
    group: ConsumerGroup, ann: GroupConsumer
) -> None:
    group.delete_consumer(ann)
    assert group.next_cid == 2


def test_only_the_owner_owns_an_entry(
    group: ConsumerGroup, ann: GroupConsumer, bob: GroupConsumer
) -> None:
    group.deliver(ann, 50, (1, 0), (2, 0), 2, 2, noack=False)
    group.release(flat_words([(2, 0, 1)]))
    assert group.owns(ann, 1, 0)
    assert not group.owns(bob, 1, 0)
    assert not group.owns(ann, 2, 0)
    assert not group.owns(ann, 9, 0)
    assert not group.owns(None, 1, 0)


def test_a_consumer_that_was_only_seen_is_noted_as_unwritten(
    group: ConsumerGroup, ann: GroupConsumer
) -> None:
    written = len(group.facts.data)
    group.see(ann, 77)
    assert (len(group.facts.data), group.keyspace.unseen) == (written, {1: {1: None}})
    # Until a fact that names the consumer includes its seen time
    group.deliver(ann, 80, (1, 0), (1, 0), 1, 1, noack=False)
    assert group.keyspace.unseen == {}


@given(
    st.lists(st.integers(1, 8), max_size=4),
    st.integers(0, 8),
    st.integers(0, 9),
    st.integers(-1, 8),
    st.integers(1, 8),
)
@settings(max_examples=400)
def test_entries_read_after_many_equals_that_after_single_deliveries(
    deleted: list[int], trimmed: int, position: int, entries_read: int, count: int
) -> None:
    # Given a stream with gaps and a group at some position in it
    stream = Keyspace().databases[0].create_stream(b"s", 1)
    for ms in range(1, 9):
        stream.append(ms, 0, WIRE, 1, ms == 1)
    stream.delete([(ms, 0) for ms in dict.fromkeys(deleted)], marks=bool(deleted))
    stream.trim_through(trimmed, 0)
    group = stream.create_group(b"g", 1, position, 0, entries_read)
    spans, _ = stream.log.spans((position, 1), (99, 0), count)
    # When the next entries are delivered at once
    at_once = group.entries_read_after(spans, sum(span.end - span.first for span in spans))
    # Then entries_read is the same as after one delivery per entry
    consumer = group.create_consumer(b"c", 1, 0)
    for entry_id in [entry_id for span in spans for entry_id in span.ids()]:
        read = group.entries_read_after(stream.log.spans(entry_id, entry_id)[0], 1)
        group.deliver(consumer, 5, entry_id, entry_id, 1, read, noack=True)
    assert at_once == group.entries_read


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.sampled_from(["add", "delete", "trim", "read"]), st.integers(1, 5))),
    st.integers(0, 3),
)
@settings(max_examples=400)
def test_the_lag_is_exact_or_unknown(steps: list[tuple[str, int]], position: int) -> None:
    # Given any history that does not set counters explicitly
    stream = Keyspace().databases[0].create_stream(b"s", 1)
    for ms in range(1, 4):
        stream.append(ms, 0, WIRE, 1, ms == 1)
    group = stream.create_group(b"g", 1, position, 0, UNKNOWN)
    consumer = group.create_consumer(b"c", 1, 0)
    for what, number in steps:
        spans, there = stream.log.spans((0, 0), (99, 0))
        ids = [entry_id for span in spans for entry_id in span.ids()]
        if what == "add":
            stream.append(stream.last_id[0] + 1, 0, WIRE, 1, there == 0)
        elif what == "delete" and there:
            stream.delete([ids[number % there]], marks=True)
        elif what == "trim" and there:
            stream.trim_through(*ids[number % there])
        elif what == "read":
            new = [entry_id for entry_id in ids if entry_id > group.last_id][:number]
            if new:
                read = group.entries_read_after(stream.log.spans(new[0], new[-1])[0], len(new))
                group.deliver(consumer, 5, new[0], new[-1], len(new), read, noack=True)
        # Then after each step the lag is the number of unread entries, or None
        unread = stream.log.count_range((group.last_id[0], group.last_id[1] + 1), (99, 0))
        assert group.lag() in (None, unread)
