"""A group's checksum is CRC-32C, the same as the library's."""

from __future__ import annotations

from struct import unpack_from

import google_crc32c
from hypothesis import given
from hypothesis import strategies as st

from headwater.journal.format.records import GROUP_HEADER_BYTES, begin_group, seal_group


@given(
    ahead=st.binary(max_size=20),
    facts=st.binary(min_size=1, max_size=300) | st.integers(1, 5000).map(bytes),
    turn=st.integers(0, 2**64 - 1),
    now_ms=st.integers(0, 2**64 - 1),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_checksum_of_a_sealed_group_equals_that_of_the_library(
    ahead: bytes, facts: bytes, turn: int, now_ms: int, seed: int
) -> None:
    # Given a group of any length at any offset of the buffer
    buffer = bytearray(ahead)
    mark = begin_group(buffer)
    buffer += facts

    # When it is sealed
    assert seal_group(buffer, mark, turn, now_ms, seed)

    # Then its header has the checksum of the bytes after it, begun from seed XOR length
    length, checksum, *times = unpack_from("<IIQQ", buffer, mark)
    assert (length, times) == (len(facts), [turn, now_ms])
    assert checksum == google_crc32c.extend(seed ^ length, bytes(buffer[mark + 8 :]))
    assert len(buffer) == mark + GROUP_HEADER_BYTES + len(facts)
