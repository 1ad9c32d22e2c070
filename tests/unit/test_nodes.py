"""Redis's nodes: sizes in the listpack format, and which entries belong to which node.

Whole histories are compared with a real server in tests/conformance/test_nodes.py.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.engine.accounts.weights import element_bytes, integer_bytes
from headwater.engine.redis_nodes.entry_fields import elements
from headwater.engine.redis_nodes.nodes import NodeIndex

ID = tuple[int, int]

SIZES = {
    b"": 2,
    b"a": 3,
    b"0": 2,
    b"127": 2,
    b"128": 3,
    b"-1": 3,
    b"4095": 3,
    b"4096": 4,
    b"-4096": 3,
    b"-4097": 4,
    b"32767": 4,
    b"32768": 5,
    b"8388607": 5,
    b"8388608": 6,
    b"2147483647": 6,
    b"2147483648": 10,
    b"9223372036854775807": 10,
    b"-9223372036854775808": 10,
    b"9223372036854775808": 21,
    b"00": 4,
    b"01": 4,
    b"-0": 4,
    b"+1": 4,
    b"1.0": 5,
    b"--1": 5,
    b"x" * 63: 65,
    b"x" * 64: 67,
    b"x" * 125: 128,
    b"x" * 126: 130,
    b"x" * 4095: 4099,
    b"x" * 4096: 4103,
    b"x" * 16377: 16384,
    b"x" * 16378: 16386,
    b"x" * 2097145: 2097153,
    b"x" * 2097146: 2097155,
}


def wire(*texts: bytes) -> bytes:
    return b"".join(b"$%d\r\n%b\r\n" % (len(text), text) for text in texts)


@pytest.mark.parametrize("text", SIZES, ids=lambda text: repr(text[:24]))
def test_an_element_has_the_size_of_its_encoding(text: bytes) -> None:
    assert element_bytes(text) == SIZES[text]


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_number_has_the_size_of_its_text(number: int) -> None:
    assert element_bytes(b"%d" % number) == integer_bytes(number)


@given(st.lists(st.binary(max_size=200), max_size=8))
def test_fields_are_read_back_from_their_wire(texts: list[bytes]) -> None:
    assert elements(wire(*texts)) == texts


class Nodes:
    """An index with the given bounds, to which entries 1-0, 2-0 and so on are added."""

    def __init__(self, *, max_bytes: int = 0, max_entries: int = 0) -> None:
        self.index = NodeIndex()
        self.max_bytes, self.max_entries = max_bytes, max_entries
        self.next = 1

    def add(self, *texts: bytes) -> bool:
        body = bytearray(wire(*texts))
        opens = self.index.opens(body, 0, len(body), self.max_bytes, self.max_entries)
        self.index.add(self.next, 0, body, 0, len(body), opens)
        self.next += 1
        return opens

    def live_counts(self) -> list[int]:
        return [self.index.live(node) for node in range(len(self.index))]


def test_a_full_node_is_followed_by_another() -> None:
    nodes = Nodes(max_entries=3)
    assert [nodes.add(b"a", b"b") for _ in range(7)] == [True, False, False] * 2 + [True]
    assert nodes.live_counts() == [3, 3, 1]


def test_deleted_entries_count_towards_a_full_node() -> None:
    # Given a node of three entries, one of them deleted
    nodes = Nodes(max_entries=3)
    for _ in range(3):
        nodes.add(b"a", b"b")
    nodes.index.drop(2, 0)
    # Then the next entry opens another node
    assert nodes.add(b"a", b"b")
    assert nodes.live_counts() == [2, 1]


def test_the_node_in_which_a_trim_ends_stays() -> None:
    # Given two nodes, of which the first ends with a deleted entry
    nodes = Nodes(max_entries=3)
    for _ in range(4):
        nodes.add(b"a", b"b")
    nodes.index.drop(3, 0)
    # When exactly the live entries of the first are trimmed
    nodes.index.trim_through(2, 0, 2)
    # Then it stays, empty, until a trim goes past its end
    assert nodes.live_counts() == [0, 1]
    nodes.index.trim_through(2, 5, 0)
    assert nodes.live_counts() == [0, 1]
    nodes.index.trim_through(3, 0, 0)
    assert nodes.live_counts() == [1]


def test_the_previous_node_is_used_again_when_the_newest_is_removed() -> None:
    # Given a node followed by another because the next entry was too large for it
    nodes = Nodes(max_bytes=200)
    nodes.add(b"a", b"b")
    assert nodes.add(b"a", b"x" * 190)
    # When that entry is deleted
    nodes.index.drop(2, 0)
    # Then the next small entry is added to the first node
    assert not nodes.add(b"a", b"c")
    assert nodes.live_counts() == [2]


def test_the_size_is_that_of_the_listpack() -> None:
    # Given frame 7, count and deleted 2 each, one field: 2 + 3, its end 2
    nodes = Nodes()
    nodes.add(b"a", b"b")
    # Then an entry adds flags 2, differences 2 each, the value 3, its count 2
    assert nodes.index.size(0) == 7 + 4 + 2 + 3 + 2 + (2 + 2 + 2 + 3 + 2)
    # And an entry with another field also adds the number of fields and the field
    nodes.add(b"c", b"127")
    assert nodes.index.size(0) == 29 + (2 + 2 + 2 + 2 + 3 + 2 + 2)


def test_counters_above_127_take_a_byte_more() -> None:
    nodes = Nodes()
    for _ in range(127):
        nodes.add(b"a", b"b")
    before = nodes.index.size(0)
    nodes.add(b"a", b"b")
    assert nodes.index.size(0) == before + 11 + 1
    nodes.index.drop(5, 0)
    assert nodes.index.size(0) == before + 11


@given(
    st.lists(st.one_of(st.none(), st.integers(0, 40)), max_size=60),
    st.integers(1, 4),
    st.integers(0, 10),
)
def test_live_counts_equal_a_recount(
    steps: list[int | None], max_entries: int, trimmed: int
) -> None:
    # Given entries (None) and deletions by number, with each node's ids recorded by the test
    nodes = Nodes(max_entries=max_entries)
    expected: list[set[int]] = []
    for step in steps:
        if step is None:
            if nodes.add(b"a", b"b"):
                expected.append(set())
            expected[-1].add(nodes.next - 1)
        elif any(step in node for node in expected):
            nodes.index.drop(step, 0)
            for node in expected:
                node.discard(step)
            expected = [node for node in expected if node]
    # When the oldest are trimmed
    oldest = sorted(entry for node in expected for entry in node)[:trimmed]
    bound = oldest[-1] if oldest else 0
    lasts = [nodes.index.last(at) for at in range(len(expected))]
    nodes.index.trim_through(bound, 0, len(oldest))
    # Then each node has its remaining entries, and the node in which the trim ends stays even if empty
    expected = [
        node - set(oldest)
        for node, last in zip(expected, lasts, strict=True)
        if node - set(oldest) or (bound in node and (bound, 0) < last)
    ]
    assert nodes.live_counts() == [len(node) for node in expected]
    assert all(
        nodes.index.first(at) <= (min(node), 0) and (max(node), 0) <= nodes.index.last(at)
        for at, node in enumerate(expected)
        if node
    )


def test_nodes_do_not_overlap_when_ids_go_back_below_deleted_ones() -> None:
    # Given a node whose last entry was deleted, and last_id set back below it
    index, body = NodeIndex(), bytearray(wire(b"a", b"b"))
    index.add(1, 0, body, 0, len(body), True)
    index.add(5, 0, body, 0, len(body), False)
    index.drop(5, 0)
    # When an entry below that opens a node
    index.add(2, 0, body, 0, len(body), True)
    # Then the nodes do not overlap, and the entry is found
    assert index.last(0) < index.first(1) == (2, 0)
    index.drop(2, 0)
    assert (len(index), index.live(0)) == (1, 1)


def test_nodes_without_live_entries_do_not_stay_after_a_lower_id() -> None:
    # Given a node that stayed without its entry, and last_id set back below it
    index, body = NodeIndex(), bytearray(wire(b"a", b"b"))
    for ms in (1, 5, 6):
        index.add(ms, 0, body, 0, len(body), True)
    index.drop(5, 0, stays=True)
    index.drop(6, 0, stays=True)
    # When an entry below it opens a node
    index.add(2, 0, body, 0, len(body), True)
    # Then the nodes are in the order of their ids, and all have a live entry
    assert [index.first(node) for node in range(len(index))] == [(1, 0), (2, 0)]
    assert [index.live(node) for node in range(len(index))] == [1, 1]


def test_an_empty_tree_has_its_root_and_one_key_two_nodes() -> None:
    index = NodeIndex()
    assert index.radix_tree_nodes() == 1
    body = bytearray(wire(b"a", b"b"))
    index.add(5, 0, body, 0, len(body), True)
    assert index.radix_tree_nodes() == 2


def test_removing_the_first_nodes_does_not_move_the_others() -> None:
    # Given ten nodes with different field names
    nodes = Nodes(max_entries=1)
    for number in range(10):
        nodes.add(b"f%d" % number, b"v")
    # When the first nodes are removed, one by one or together
    nodes.index.drop(1, 0)
    nodes.index.trim_through(4, 0, 3)
    # Then the remaining ones are counted from the first of them
    assert nodes.live_counts() == [1] * 6
    assert nodes.index.first(0) == (5, 0)
    assert elements(nodes.index.names_of(0)) == [b"f4"]
    assert nodes.index.gone == 4
    # And also in a copy, which has no space for removed nodes
    copy = nodes.index.copy()
    assert copy.gone == 0
    assert (len(copy), copy.first(0), elements(copy.names_of(5))) == (6, (5, 0), [b"f9"])
    # And removed nodes take at most as much space as the others
    nodes.index.trim_through(6, 0, 2)
    assert (nodes.index.gone, len(nodes.index), nodes.index.first(0)) == (0, 4, (7, 0))
    nodes.index.trim_through(10, 0, 4)
    assert nodes.add(b"f", b"v")
    assert nodes.live_counts() == [1]
