"""Packing the ids of a sealed block, and finding its entries in its bytes."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from itertools import accumulate
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headwater.engine.bodies.sealed_block import SealedBlock, marks_of, start_in
from headwater.native.memory import append_entry
from headwater.native.packing import find_packed, index_entries, pack_ids, unpack_ids

MOST = 2**64 - 1
IDS = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 3), st.integers(0, MOST)),
        st.one_of(st.integers(0, 3), st.integers(0, MOST)),
    ),
    unique=True,
).map(sorted)


@given(IDS)
def test_packed_ids_are_unpacked_unchanged(found: list[tuple[int, int]]) -> None:
    ids = array("Q", [word for entry_id in found if entry_id != (0, 0) for word in entry_id])
    again: array[int] = array("Q")
    unpack_ids(pack_ids(ids), len(ids) // 2, again)
    assert again == ids


@pytest.mark.parametrize(
    ("steps", "most"),
    [
        ([(1, 0)] * 1000, 1000),  # one entry a millisecond
        ([(0, 1)] * 1000, 1000),  # all in one millisecond
        ([(3, 0), (0, 1), (0, 1), (0, 1)] * 250, 1600),  # a few per millisecond
        ([(n * 7919 % 5000 + 1, 0) for n in range(1000)], 4100),  # at irregular intervals
    ],
)
def test_packed_ids_of_clocks_take_a_few_bytes(steps: list[tuple[int, int]], most: int) -> None:
    ids = list(
        accumulate(
            steps,
            lambda at, step: (at[0] + step[0], step[1] if step[0] else at[1] + step[1]),
            initial=(1_526_569_498_055, 1),
        )
    )
    assert len(pack_ids(array("Q", [word for entry_id in ids for word in entry_id]))) < most + 20


@given(IDS, st.one_of(st.integers(0, 3), st.integers(0, MOST)), st.integers(0, 3))
@example([(5, 1), (5, MOST)], 5, MOST)
@example([(1, MOST), (MOST, MOST)], MOST, MOST)
def test_ids_are_counted_without_unpacking_them(
    found: list[tuple[int, int]], ms: int, seq: int
) -> None:
    # Given packed ids
    ids = [entry_id for entry_id in found if entry_id != (0, 0)]
    packed = pack_ids(array("Q", [word for entry_id in ids for word in entry_id]))
    # Then as many as unpacked are less than any id, also than each of them and its neighbours
    near = [(one[0], min(MOST, max(0, one[1] + step))) for one in ids for step in (-1, 0, 1)]
    for wanted in [(ms, seq), *near]:
        assert find_packed(packed, *wanted) == bisect_left(ids, wanted)


def opened(data: bytearray, count: int, marks: bytes = b"") -> SealedBlock:
    """Return a sealed block of ``count`` entries that are open."""
    packed = SealedBlock("none", None, b"", len(data), count, marks)
    packed.open_all(bytes(data))
    return packed


def entries(*fields: list[bytes]) -> tuple[bytearray, list[int]]:
    data, offsets = bytearray(), []
    for seq, words in enumerate(fields, 1):
        offsets.append(len(data))
        wire = bytearray(b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words))
        append_entry(data, 5, seq, len(words), wire, 0, len(wire))
    return data, offsets


@given(st.lists(st.lists(st.binary(max_size=12), min_size=2, max_size=6)))
def test_entries_are_found_whatever_their_contents(fields: list[list[bytes]]) -> None:
    data, offsets = entries(*fields)
    found: array[int] = array("I")
    index_entries(data, found)
    assert list(found) == offsets


@given(st.data())
def test_a_truncated_entry_is_refused(data: st.DataObject) -> None:
    whole, _ = entries([b"field", b"value"], [b"a", b""])
    cut = data.draw(st.integers(1, len(whole) - 1))
    if cut == len(entries([b"field", b"value"])[0]):
        return
    with pytest.raises(ValueError, match="not an entry"):
        index_entries(whole[:cut], array("I"))


@pytest.mark.parametrize("marked", [True, False])
def test_an_entry_of_a_sealed_block_is_found_in_any_order_of_searches(*, marked: bool) -> None:
    # Given entries with values of one to four digits of length
    data, offsets = bytearray(), array("I")
    sizes = [0, 1, 9, 10, 11, 99, 100, 101, 999, 1000]
    for number in range(40):
        value = b"v" * sizes[number * 7 % 10]
        data += b"*2\r\n$3\r\n5-1\r\n*2\r\n$1\r\na\r\n$%d\r\n%s\r\n" % (len(value), value)
    index_entries(data, offsets)
    marks = marks_of(offsets, len(data)) if marked else b""
    packed = opened(data, len(offsets), marks)
    # When they are searched for forwards, backwards and at random
    chance = Random(1)
    order = [*range(40), *reversed(range(40)), *(chance.randrange(40) for _ in range(200))]
    # Then each is where the index of all entries says
    assert [start_in(packed, index) for index in order] == [offsets[one] for one in order]
    # And one that is not there is an error
    with pytest.raises(ValueError, match="not an entry"):
        start_in(packed, 41)


@pytest.mark.parametrize(("size", "marks"), [(2**16, 79), (2**16 + 1, 0)])
def test_entries_are_marked_in_blocks_whose_positions_fit_into_two_bytes(
    size: int, marks: int
) -> None:
    # Given the positions of 640 entries, up to the end of a block of this size
    offsets = array("I", range(size - 640, size))
    # Then every eighth is marked, except the first, or none is
    assert len(marks_of(offsets, size)) == 2 * marks


@pytest.mark.parametrize("size", [0, 9, 10, 99, 100, 5000])
def test_a_search_beyond_a_truncated_entry_is_refused(size: int) -> None:
    # Given an entry with a value of this size
    whole, _ = entries([b"field", b"v" * size])
    # When it is cut in its headers, in its value or before its end
    for length in {*range(min(60, len(whole))), *range(len(whole) - 60, len(whole))} - {
        *range(-60, 1)
    }:
        # Then what follows it is not found
        with pytest.raises(ValueError, match="not an entry"):
            start_in(opened(whole[:length], 1), 1)
    # And behind the complete one there is an end
    assert start_in(opened(whole, 1), 1) == len(whole)


@pytest.mark.parametrize(
    "length", [b"", b"-1", b"+1", b"1 ", b"a", b"1a", b"1\n", b"123456789012345678"]
)
def test_a_length_that_is_none_is_refused(length: bytes) -> None:
    data = bytearray(b"*2\r\n$3\r\n5-1\r\n*2\r\n$1\r\na\r\n$" + length + b"\r\nvv\r\n")
    with pytest.raises(ValueError, match="not an entry"):
        start_in(opened(data, 1), 1)
