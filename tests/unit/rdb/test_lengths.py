"""Lengths, strings and ids: every form is read, every bound is checked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.common.limits import MAX_RESTORED_BYTES
from headwater.rdb import lengths
from headwater.rdb.errors import BadPayload
from headwater.rdb.lengths import ByteReader, put_length, put_string
from tests.unit.rdb.old_payloads import packed


def reader(data: str) -> ByteReader:
    return ByteReader(bytes.fromhex(data))


@pytest.mark.parametrize(
    ("data", "number"),
    [
        ("00", 0),
        ("3f", 63),
        ("4000", 0),
        ("7fff", 16383),
        ("80 00010000", 65536),
        ("80 ffffffff", 2**32 - 1),
        ("81 0000000100000000", 2**32),
        ("81 ffffffffffffffff", 2**64 - 1),
    ],
)
def test_a_length_is_read_in_each_of_its_sizes(data: str, number: int) -> None:
    assert reader(data).length() == number


@pytest.mark.parametrize("data", ["", "40", "80 000000", "81 00000000000000", "82", "bf", "c0"])
def test_an_invalid_length_is_refused(data: str) -> None:
    with pytest.raises(BadPayload):
        reader(data).length()


@given(st.integers(0, 2**64 - 1))
def test_a_length_that_was_written_is_read(number: int) -> None:
    out = bytearray()
    put_length(out, number)
    assert ByteReader(bytes(out)).length() == number


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("00", b""),
        ("03 616263", b"abc"),
        ("c0 85", b"-123"),
        ("c1 0080", b"-32768"),
        ("c2 ffffff7f", b"2147483647"),
        ("c3 05 0a 01 6161 c001", b"aaaaaaaaaa"),
    ],
)
def test_a_string_is_read_in_each_of_its_forms(data: str, text: bytes) -> None:
    found = reader(data)
    assert found.string() == text
    assert found.left() == 0


@pytest.mark.parametrize("data", ["", "03 6162", "c0", "c1 00", "c3 05 0a 0161", "c4 00", "ff"])
def test_an_invalid_string_is_refused(data: str) -> None:
    with pytest.raises(BadPayload):
        reader(data).string()


@given(st.binary(max_size=20000))
def test_a_string_that_was_written_is_read(text: bytes) -> None:
    out = bytearray()
    put_string(out, text)
    assert ByteReader(bytes(out)).string() == text


def test_a_count_of_more_items_than_fit_is_refused() -> None:
    # Given a count of 2**60 items of 16 bytes, and nothing after it
    # Then it is refused before anything is allocated
    with pytest.raises(BadPayload, match="items expected"):
        reader("81 1000000000000000").count(16)


def test_the_memory_of_a_value_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a reader with room for 1,000 bytes, and strings that are small only when compressed
    found = ByteReader(packed(b"a" * 600) * 2)
    assert found.room == MAX_RESTORED_BYTES
    found.room = 1000

    # Then the second is refused
    assert found.string() == b"a" * 600
    with pytest.raises(BadPayload):
        found.string()


def test_each_item_counts_more_than_its_bytes() -> None:
    # Given ten thousand empty strings
    found = ByteReader(bytes(10_000))
    found.room = 1000 * lengths._ITEM_BYTES

    # Then a thousand of them use up the room
    for _ in range(1000):
        found.string()
    with pytest.raises(BadPayload):
        found.string()
