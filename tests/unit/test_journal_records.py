"""The record format: written records are read back, and nothing else is accepted."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.common.limits import MAX_RECORD_GROUP_BYTES
from headwater.journal.format.records import (
    FILE_HEADER_BYTES,
    GROUP_HEADER_BYTES,
    SYNCED_GROUP_BYTES,
    FileHeader,
    Synced,
    begin_group,
    file_header,
    find_synced,
    flaw,
    group_at,
    holds_group,
    read_file_header,
    read_groups,
    read_synced,
    seal_group,
    synced_group,
)

SEED = 77
U64 = st.integers(0, 2**64 - 1)
SEEDS = st.integers(0, 2**32 - 1)


def sealed(facts: bytes, *, turn: int = 1, now_ms: int = 5, seed: int = SEED) -> bytearray:
    buffer = bytearray()
    mark = begin_group(buffer)
    buffer += facts
    assert seal_group(buffer, mark, turn, now_ms, seed)
    return buffer


def read(data: bytes | bytearray, *, seed: int = SEED, turn: int = 0) -> list[bytes]:
    return [bytes(group.facts) for group in read_groups(memoryview(data), 0, seed=seed, turn=turn)]


@given(
    groups=st.lists(st.tuples(st.binary(min_size=1, max_size=300), U64, U64), max_size=8),
    seed=SEEDS,
    behind=st.integers(0, 100),
)
def test_groups_are_read_back_as_they_were_written(
    groups: list[tuple[bytes, int, int]], seed: int, behind: int
) -> None:
    # Given groups whose turns do not decrease, with zeros after them
    turns = sorted(turn for _facts, turn, _now_ms in groups)
    written = [
        (facts, turn, now_ms) for (facts, _, now_ms), turn in zip(groups, turns, strict=True)
    ]
    buffer = bytearray()
    for facts, turn, now_ms in written:
        mark = begin_group(buffer)
        buffer += facts
        seal_group(buffer, mark, turn, now_ms, seed)
    size = len(buffer)
    buffer += bytes(behind)
    # When they are read
    found = list(read_groups(memoryview(bytes(buffer)), 0, seed=seed))
    # Then they are the same, adjacent, and end where the zeros begin
    assert [(bytes(group.facts), group.turn, group.now_ms) for group in found] == written
    assert [group.end for group in found] == [group.offset for group in found[1:]] + [size] * bool(
        found
    )


def test_a_command_without_facts_writes_nothing() -> None:
    buffer = sealed(b"before")
    before = bytes(buffer)
    mark = begin_group(buffer)
    assert not seal_group(buffer, mark, 1, 5, SEED)
    assert buffer == before


def test_the_layout_matches_the_documentation() -> None:
    buffer = sealed(b"\x20facts", turn=0x0102, now_ms=0x0A0B, seed=0)
    length, _checksum, turn, now_ms = struct.unpack_from("<IIQQ", buffer)
    assert (length, turn, now_ms) == (6, 0x0102, 0x0A0B)
    assert buffer[GROUP_HEADER_BYTES:] == b"\x20facts"
    assert group_at(buffer, 0) == (0x0102, 0x0A0B, len(buffer))


def test_the_checksum_is_crc32c_begun_from_seed_xor_length() -> None:
    """The test computes it bit by bit, to show that the documentation suffices to read a file."""
    buffer = sealed(b"\x20facts", seed=0xDEADBEEF)
    crc = (0xDEADBEEF ^ 6) ^ 0xFFFFFFFF
    for byte in buffer[8:]:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    assert struct.unpack_from("<I", buffer, 4)[0] == crc ^ 0xFFFFFFFF


def test_every_flipped_bit_is_detected() -> None:
    whole = sealed(b"\x20some facts of a command", turn=3)
    for bit in range(len(whole) * 8):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        assert read(flipped + bytes(100)) == []


def test_a_truncated_group_is_not_read() -> None:
    whole = sealed(b"\x20some facts")
    for size in range(len(whole)):
        assert read(whole[:size]) == []
    assert read(whole) == [b"\x20some facts"]


def test_a_group_of_another_store_is_not_read() -> None:
    assert read(sealed(b"\x20facts", seed=SEED), seed=SEED + 1) == []


def test_a_group_of_an_earlier_turn_is_not_read() -> None:
    data = sealed(b"\x20first", turn=7) + sealed(b"\x20stale", turn=6)
    assert read(data) == [b"\x20first"]
    assert read(data, turn=8) == []


@pytest.mark.parametrize("length", [MAX_RECORD_GROUP_BYTES, MAX_RECORD_GROUP_BYTES + 1, 2**32 - 1])
def test_a_length_is_checked_before_it_is_used(length: int) -> None:
    """An allocation of gigabytes would end the process before the checksum is compared."""
    data = struct.pack("<IIQQ", length, 0, 1, 1) + bytes(1000)
    assert read(data) == []
    assert str(length) in flaw(memoryview(data), 0, seed=SEED)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"abc", "3 bytes, too few for a record"),
        (bytes(100), "length 0"),
        (struct.pack("<IIQQ", 90, 1, 1, 1) + bytes(30), "runs past the end of the file at 54"),
        (bytes(sealed(b"\x20facts"))[:-1] + b"!", "checksum [0-9a-f]{8} whose bytes have"),
        (bytes(sealed(b"\x20facts", turn=4)), "turn 4 after one of turn 9"),
    ],
)
def test_the_error_describes_an_invalid_record(data: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        raise ValueError(flaw(memoryview(data), 0, seed=SEED, turn=9))


def test_a_file_header_is_read_back() -> None:
    header = file_header(3, 4096, SEED)
    assert len(header) == FILE_HEADER_BYTES
    assert read_file_header(memoryview(header + bytes(100))) == FileHeader(2, SEED, 3, 4096)


def test_a_damaged_file_header_is_not_read() -> None:
    header = file_header(3, 4096, SEED)
    for bit in range(len(header) * 8):
        flipped = bytearray(header)
        flipped[bit // 8] ^= 1 << bit % 8
        assert read_file_header(memoryview(flipped)) is None
    for size in range(len(header)):
        assert read_file_header(memoryview(header[:size])) is None


def test_a_group_is_not_read_as_a_header() -> None:
    assert read_file_header(memoryview(sealed(b"\x20" * 40, seed=0))) is None


@given(before=st.binary(max_size=200), after=st.binary(max_size=50), number=U64, offset=U64)
def test_a_synced_group_is_found_at_any_byte(
    before: bytes, after: bytes, number: int, offset: int
) -> None:
    group = synced_group(Synced(number, offset), 5, 1, SEED)
    assert len(group) == SYNCED_GROUP_BYTES
    data = memoryview(before + group + after)
    assert list(find_synced(data, 0, len(data), seed=SEED, turn=5)) == [(number, offset)]
    assert list(find_synced(data, len(before) + 1, len(data), seed=SEED, turn=5)) == []
    assert list(find_synced(data, 0, len(data), seed=SEED, turn=6)) == []
    assert list(find_synced(data, 0, len(data), seed=SEED + 1, turn=5)) == []


def test_a_synced_group_is_found_inside_a_false_match() -> None:
    """A search that continued after the false match would miss it."""
    bait = struct.pack("<I", 17) + bytes(19)
    group = synced_group(Synced(1, 2), 5, 1, SEED)
    data = memoryview(bait + group)
    assert list(find_synced(data, 0, len(data), seed=SEED, turn=0)) == [(1, 2)]


def test_a_synced_group_that_ends_in_zeros_is_found() -> None:
    data = memoryview(synced_group(Synced(1, 2), 5, 1, SEED) + bytes(100))
    assert list(find_synced(data, 0, 33, seed=SEED, turn=0)) == [(1, 2)]


@given(before=st.binary(max_size=200), facts=st.binary(min_size=1, max_size=50))
def test_a_group_is_found_at_any_byte(before: bytes, facts: bytes) -> None:
    group = bytes(sealed(facts, turn=9))
    data = memoryview(before + group + bytes(30))
    used = len(bytes(data).rstrip(b"\0"))
    assert holds_group(data, 0, used, seed=SEED, turn=9)
    assert not holds_group(data, len(before) + 1, used, seed=SEED, turn=9)
    assert not holds_group(data, 0, used, seed=SEED, turn=10)
    assert not holds_group(data, 0, used, seed=SEED + 1, turn=9)


def test_a_search_for_a_group_is_bounded() -> None:
    """Each apparent beginning would need a checksum of all that follows: hours for a file of 64 MiB."""
    begins = struct.pack("<IIQQ", 200_000, 1, 9, 1) * 10_000
    data = memoryview(begins + bytes(200_000) + bytes(sealed(b"\x20facts", turn=9)))
    assert not holds_group(data, 0, len(data), seed=SEED, turn=9)


def test_other_facts_are_not_read_as_synced() -> None:
    assert read_synced(memoryview(b"\x02" + bytes(15))) is None
    assert read_synced(memoryview(b"\x20" + bytes(16))) is None


# --- files of earlier versions ------------------------------------------------------------------

VERSION_1 = bytes.fromhex(
    "280000006db7760e000000000000000000000000000000000168656164776174"
    "6572206a6f75726e616c0100ed5e000001000000000000000010000000000000"
    "11000000fc169e830700000000000000c7f5a16e630100000201000000000000"
    "0040000000000000000f000000f7d8e5ee0700000000000000c7f5a16e630100"
    "0021616e206f70617175652066616374"
)
"""A header, a `synced` group and one group, as the first version wrote them. Never change it: later
versions write their own format and read this one."""


def test_a_file_of_version_1_is_read() -> None:
    data = memoryview(VERSION_1)
    assert read_file_header(data) == FileHeader(1, 0x5EED, 1, 4096)
    first, second = read_groups(data, FILE_HEADER_BYTES, seed=0x5EED)
    assert read_synced(first.facts) == (1, 64)
    assert (second.turn, second.now_ms) == (7, 1526569498055)
    assert bytes(second.facts) == b"\x21an opaque fact"
