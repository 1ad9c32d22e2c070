"""The checksum that a payload of DUMP ends with."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwater.rdb.crc64 import crc64
from tests.unit.rdb.old_payloads import bitwise_crc64


def test_it_has_redis_own_check_value() -> None:
    # Given the text that checksums are named by
    # Then its checksum is the one in Redis's source
    assert crc64(b"123456789") == 0xE9C6D914C4B8D9CA
    assert crc64(b"") == 0


@given(st.binary(max_size=200))
def test_the_table_says_what_the_definition_says(data: bytes) -> None:
    assert crc64(data) == bitwise_crc64(data)
