"""The checksum at the end of a payload, and compressed strings: they are decompressed completely or
refused, and never to more bytes than declared."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.rdb import codes
from headwater.rdb.codes import MOST_GROWTH, crc64
from headwater.rdb.errors import BadPayload
from tests.unit.rdb.old_payloads import bitwise_crc64, lzf

REPETITIVE = st.lists(st.sampled_from([b"a", b"bc", b"abcabc", b"x" * 300]), max_size=12)


def decompress(data: bytes, size: int) -> bytes:
    return codes.decompress(bytearray(b"--" + data + b"--"), 2, 2 + len(data), size)


def checksum(data: bytes) -> int:
    return crc64(bytearray(data), 0, len(data))


def test_the_checksum_has_the_check_value_of_redis() -> None:
    # The usual text for check values has the checksum in Redis's source
    assert checksum(b"123456789") == 0xE9C6D914C4B8D9CA
    assert checksum(b"") == 0


@given(st.binary(max_size=200), st.integers(0, 200))
def test_the_checksum_table_matches_the_definition(data: bytes, at: int) -> None:
    # Given bytes, as a whole or in two parts
    expected = bitwise_crc64(data)
    assert checksum(data) == expected
    part = min(at, len(data))
    first = crc64(bytearray(data), 0, part)
    assert crc64(bytearray(data), part, len(data), first) == expected


@pytest.mark.slow
@given(REPETITIVE)
def test_compressed_text_is_restored(parts: list[bytes]) -> None:
    # Given text with near, far, long and overlapping repetitions
    text = b"".join(parts)

    # Then it is decompressed unchanged
    assert decompress(lzf(text), len(text)) == text


@pytest.mark.slow
@given(st.binary(max_size=60), st.integers(0, 2000))
def test_any_bytes_give_the_declared_size_or_are_refused(data: bytes, size: int) -> None:
    try:
        made = decompress(data, size)
    except BadPayload:
        return
    assert len(made) == size


@pytest.mark.parametrize(
    ("data", "size"),
    [
        ("02 61 61", 3),  # a literal of three bytes with only two
        ("20 00", 3),  # a reference before the beginning
        ("00 61 20", 4),  # a reference without its distance
        ("00 61 e0 01", 12),  # a long reference without its distance
        ("00 61", 2),  # shorter than declared
        ("01 61 61", 1),  # longer
        ("00 61 e0 ff 00", 10),  # far longer
    ],
)
def test_a_wrong_compression_is_refused(data: str, size: int) -> None:
    with pytest.raises(BadPayload):
        decompress(bytes.fromhex(data), size)


def test_a_size_that_no_compression_reaches_is_refused() -> None:
    # Given three bytes with an impossibly large declared size
    # Then they are refused before anything is allocated
    with pytest.raises(BadPayload, match="cannot be"):
        decompress(b"\xe0\xff\x00", 3 * MOST_GROWTH + 1)
