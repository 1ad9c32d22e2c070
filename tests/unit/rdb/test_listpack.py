"""Listpacks: every encoding of an element, and every kind of error."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.engine.accounts.weights import element_bytes
from headwater.rdb import listpack
from headwater.rdb.errors import BadPayload
from headwater.rdb.listpack import Element
from tests.unit.rdb.plain_images import backlen, plain_listpack, spelled

INTEGERS = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from(
        [edge + step for n in range(64) for edge in (2**n, -(2**n)) for step in (-1, 0)]
    ),
).filter(lambda number: -(2**63) <= number < 2**63)
TEXTS = st.one_of(
    st.binary(max_size=80),
    st.sampled_from([0, 1, 63, 64, 125, 126, 127, 4095, 4096, 16380, 2097150]).map(
        lambda n: b"x" * n
    ),
    st.integers().map(lambda number: b"%d" % number),
)


def write(elements: list[Element]) -> bytes:
    """Encode a listpack with the functions that write nodes."""
    pack = bytearray()
    listpack.begin(pack)
    for element in elements:
        if isinstance(element, int):
            listpack.put_integer(pack, element < 0, abs(element))
        else:
            listpack.put_text(pack, bytearray(b"--" + element + b"--"), 2, 2 + len(element))
    listpack.end(pack, len(elements))
    return bytes(pack)


def read(pack: bytes, **most: int) -> list[Element]:
    return listpack.read(bytearray(pack), **most)


def frame(body: str, count: int) -> bytes:
    data = bytes.fromhex(body)
    return (len(data) + 7).to_bytes(4, "little") + count.to_bytes(2, "little") + data + b"\xff"


@given(st.lists(st.one_of(INTEGERS, TEXTS), max_size=20))
def test_elements_that_were_written_are_read(elements: list[Element]) -> None:
    # Given integers and texts of all sizes
    # When they are written and read
    found = read(write(elements))

    # Then texts that spell an integer have become integers, as in Redis, and nothing else changes
    expected = [
        one if isinstance(one, int) or spelled(one) is None else spelled(one) for one in elements
    ]
    assert found == expected


@given(st.lists(st.one_of(INTEGERS, TEXTS), max_size=20))
def test_elements_are_written_as_the_description_says(elements: list[Element]) -> None:
    assert write(elements) == plain_listpack(elements)


@given(st.one_of(TEXTS))
def test_an_element_has_the_size_that_trimming_counts(text: bytes) -> None:
    assert len(write([text])) == 7 + element_bytes(text)


@pytest.mark.parametrize(
    ("body", "element"),
    [
        ("00 01", 0),
        ("7f 01", 127),
        ("80 01", b""),
        ("82 6162 03", b"ab"),
        ("df ff 02", -1),
        ("d0 00 02", -4096),
        ("cf ff 02", 4095),
        ("e0 02 6162 04", b"ab"),
        ("f0 02000000 6162 07", b"ab"),
        ("f1 0080 03", -32768),
        ("f2 ffff7f 04", 8388607),
        ("f3 00000080 05", -2147483648),
        ("f4 ffffffffffffff7f 09", 2**63 - 1),
    ],
)
def test_each_encoding_is_read(body: str, element: Element) -> None:
    assert read(frame(body, 1)) == [element]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x07\0\0\0\0\0",
        frame("", 0)[:-1],
        frame("", 0)[:-1] + b"\0",
        frame("", 0) + b"\xff",
        frame("00 01", 2),
        frame("00 02", 1),
        frame("00", 1),
        frame("82 61", 1),
        frame("e0", 1),
        frame("f0 ffffffff 61", 1),
        frame("f0 01", 1),
        frame("f4 00", 1),
        frame("f5 01", 1),
        frame("ff 01", 1),
    ],
)
def test_an_invalid_listpack_is_refused(data: bytes) -> None:
    with pytest.raises(BadPayload):
        read(data)


def test_a_count_that_does_not_fit_is_ignored() -> None:
    # Given more elements than two bytes can count
    elements: list[Element] = [1] * 70_000

    # Then all of them are read
    assert read(write(elements)) == elements


def test_the_number_of_elements_is_bounded() -> None:
    with pytest.raises(BadPayload, match="more than 10"):
        read(write([1] * 11), most=10)


@pytest.mark.parametrize("size", [1, 127, 128, 16382, 16383, 2097150, 2097151, 268435455])
def test_the_length_after_an_element_is_read_backwards(size: int) -> None:
    # Given the bytes after an element
    behind = backlen(size)

    # Then, from the last to the first, they give its size, seven bits each
    total = sum((byte & 127) << (7 * at) for at, byte in enumerate(reversed(behind)))
    assert total == size
    assert [byte >> 7 for byte in behind] == [0] + [1] * (len(behind) - 1)
