"""Nodes of a stream, and pending entries in columns, compared with a simple implementation."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.rdb import pending as columns
from headwater.rdb.errors import BadPayload
from headwater.rdb.stream_nodes import NodeReader, NodeWriter
from tests.unit.rdb.plain_images import (
    Entry,
    Owned,
    entries_of,
    node_of,
    pending_of,
    plain_node,
)

NUMBERS = st.one_of(
    st.integers(-(2**64), 2**64),
    st.sampled_from(
        [edge + step for n in range(65) for edge in (2**n, -(2**n)) for step in (-1, 0)]
    ),
)
TEXTS = st.one_of(
    NUMBERS.map(lambda number: b"%d" % number),
    st.binary(max_size=70),
    st.sampled_from([b"", b"-", b"-0", b"00", b"+1", b" 1", b"1_0", b"x" * 4095, b"x" * 4096]),
    st.sampled_from([125, 126, 16380, 16383]).map(lambda size: b"y" * size),
)
IDS = st.tuples(*[st.one_of(st.integers(0, 9), st.integers(0, 2**64 - 1))] * 2)


@st.composite
def plain_entries(draw: st.DrawFn) -> list[Entry]:
    """Entries of a node, most of them with the field names of the first."""
    names = draw(st.lists(TEXTS, min_size=1, max_size=4))
    found = []
    for entry_id in draw(st.lists(IDS, min_size=1, max_size=12)):
        own = names if draw(st.integers(0, 3)) else draw(st.lists(TEXTS, min_size=1, max_size=4))
        parts = [part for name in own for part in (name, draw(TEXTS))]
        found.append(Entry(entry_id, tuple(parts), draw(st.booleans())))
    return found


@settings(suppress_health_check=list(HealthCheck))
@given(plain_entries(), st.integers(1, 5))
def test_a_node_is_written_as_its_description_says_and_read_in_any_steps(
    listed: list[Entry], most: int
) -> None:
    # Given any entries of a node
    first = listed[0].id

    # When the node is written, at most ``most`` entries at a time
    writer = NodeWriter(node_of(first, listed))
    while writer.step(most):
        pass

    # Then it equals the one written element by element, and the same entries are read from it
    assert bytes(writer.pack) == plain_node(first, listed)
    reader = NodeReader(first, writer.pack, most=10**6, size=0, most_bytes=10**9)
    while reader.step(most):
        pass
    assert entries_of(reader.node()) == listed


@settings(suppress_health_check=list(HealthCheck))
@given(plain_entries(), st.data())
def test_a_mutated_node_is_read_or_refused(listed: list[Entry], data: st.DataObject) -> None:
    # Given a node in which some bytes were changed
    pack = bytearray(plain_node(listed[0].id, listed))
    for _ in range(data.draw(st.integers(1, 3))):
        pack[data.draw(st.integers(6, len(pack) - 1))] = data.draw(st.integers(0, 255))

    # Then it is read or refused, without other exceptions
    try:
        reader = NodeReader(listed[0].id, pack, most=10**6, size=0, most_bytes=10**9)
        while reader.step(3):
            pass
        entries_of(reader.node())
    except BadPayload:
        pass


@given(st.integers(0, 40), st.integers(1, 7), st.data())
def test_owned_entries_are_ordered_by_time_and_id(
    count: int, consumers: int, data: st.DataObject
) -> None:
    # Given pending entries with any times and owners
    rows = [
        Owned((5, at), data.draw(st.integers(0, 5)), 1, data.draw(st.integers(0, consumers)))
        for at in range(count)
    ]
    entries_in_columns = pending_of(rows)

    # When two parts of them are ordered and merged
    cut = data.draw(st.integers(0, count))
    order = columns.merged(
        entries_in_columns,
        columns.owned(entries_in_columns, 0, cut),
        columns.owned(entries_in_columns, cut, count),
    )

    # Then the owned ones are ordered by time, and by id within one time
    owned = [at for at in range(count) if rows[at].owner]
    assert list(order) == sorted(owned, key=lambda at: (rows[at].time, at))

    # And the entries of each owner are adjacent
    begins, of_each = columns.of_each(entries_in_columns, consumers)
    for owner in range(consumers + 1):
        found = list(of_each[begins[owner] : begins[owner + 1]])
        assert found == [at for at in range(count) if rows[at].owner == owner]
