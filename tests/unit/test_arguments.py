"""Arguments are parsed as in Redis, and returned as they were sent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.common.limits import MAX_COUNT
from headwater.errors import CommandError
from headwater.resp.arguments import ID_ERROR, INTEGER_ERROR, Arguments, parse_id
from headwater.resp.scanner import Scanner

MAX_U64 = 2**64 - 1


def one(value: bytes) -> Arguments:
    return Arguments.of(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"0", 0),
        (b"7", 7),
        (b"-7", -7),
        (b"9223372036854775807", 2**63 - 1),
        (b"-9223372036854775808", -(2**63)),
    ],
)
def test_a_decimal_integer_of_64_bits_is_read(text: bytes, value: int) -> None:
    assert one(text).integer(0) == value


NO_INTEGERS = [
    b"",
    b"-",
    b"+1",
    b" 1",
    b"1 ",
    b"01",
    b"-0",
    b"00",
    b"1.0",
    b"1_0",
    b"0x1",
    b"\xd9\xa1",
    b"9223372036854775808",
    b"-9223372036854775809",
    b"1" * 5000,
]


@pytest.mark.parametrize("text", NO_INTEGERS, ids=lambda text: repr(text[:12]))
def test_an_invalid_integer_is_refused_or_gives_the_default(text: bytes) -> None:
    with pytest.raises(CommandError) as caught:
        one(text).integer(0)
    assert str(caught.value) == INTEGER_ERROR
    with pytest.raises(CommandError, match="ERR timeout is not an integer"):
        one(text).integer(0, error="ERR timeout is not an integer or out of range")
    assert one(text).integer(0, default=-1) == -1


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_integer_of_64_bits_is_read_back(value: int) -> None:
    assert one(b"%d" % value).integer(0) == value


IDS = {
    b"5-1": (5, 1),
    b"0-0": (0, 0),
    b"007-01": (7, 1),
    b" 5-+01": (5, 1),
    b"\t\n5-1": (5, 1),
    b"5\x00-1": (5, 0),
    b"18446744073709551615-18446744073709551615": (MAX_U64, MAX_U64),
    b"5": (5, 0),
}


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_count_is_the_integer_up_to_what_no_store_holds(value: int) -> None:
    assert Arguments.of(b"%d" % value).count_at(0) == min(value, MAX_COUNT)


def test_a_count_that_is_not_an_integer_is_refused() -> None:
    with pytest.raises(CommandError, match=INTEGER_ERROR):
        Arguments.of(b"all").count_at(0)


@pytest.mark.parametrize("text", IDS)
def test_the_halves_of_an_id_are_parsed_as_in_c(text: bytes) -> None:
    assert one(text).id(0) == IDS[text]


NO_IDS = [
    b"",
    b"-",
    b"+",
    b"*",
    b"$",
    b"5-",
    b"-5",
    b"5--1",
    b"5 -1",
    b"0x5",
    b"5-1-1",
    b"5-*",
    b"a-1",
    b"18446744073709551616-0",
    b"1-18446744073709551616",
    b"1" * 128,
    b"\x005-1",
]


@pytest.mark.parametrize("text", NO_IDS, ids=lambda text: repr(text[:12]))
def test_an_invalid_id_is_refused(text: bytes) -> None:
    assert parse_id(text) is None
    with pytest.raises(CommandError) as caught:
        one(text).id(0)
    assert str(caught.value) == ID_ERROR


def test_the_ends_of_a_range_may_be_signs_and_may_lack_their_sequence() -> None:
    arguments = Arguments.of(b"-", b"+", b"5")
    assert arguments.id(0, strict=False) == (0, 0)
    assert arguments.id(1, strict=False) == (MAX_U64, MAX_U64)
    assert arguments.id(2, missing_seq=MAX_U64) == (5, MAX_U64)


@given(st.integers(0, MAX_U64), st.integers(0, MAX_U64))
def test_every_id_is_read_back(ms: int, seq: int) -> None:
    assert one(b"%d-%d" % (ms, seq)).id(0) == (ms, seq)


@given(st.lists(st.binary(max_size=300), min_size=2, max_size=20), st.data())
def test_wire_is_the_encoding_of_any_adjacent_arguments(
    values: list[bytes], data: st.DataObject
) -> None:
    start = data.draw(st.integers(1, len(values) - 1))
    end = data.draw(st.integers(start + 1, len(values)))
    arguments = Arguments.of(*values)
    expected = b"".join(b"$%d\r\n%b\r\n" % (len(value), value) for value in values[start:end])
    arguments.find_wire(start, end)
    assert arguments.buffer[arguments.wire_start : arguments.wire_end] == expected


def test_a_copy_outlives_the_buffer_it_was_read_from() -> None:
    # Given the second of two requests of one client, with many arguments
    words = [b"xadd", b"s", b"\r\n", *(b"%d" % number for number in range(200))]
    scanner, arguments = Scanner(), Arguments()
    scanner.feed(b"*1\r\n$4\r\nPING\r\n" + bytes(Arguments.of(*words).buffer))
    assert scanner.next(arguments)
    assert scanner.next(arguments)

    # When it is copied and the buffer is overwritten
    copied = arguments.copy()
    arguments.buffer[:] = b"\xff" * len(arguments.buffer)

    # Then the copy is complete, and copying it returns itself
    assert copied.values() == words
    assert copied.token(0) == b"XADD"
    assert len(copied) == len(words)
    copied.find_wire(1, 3)
    assert copied.buffer[copied.wire_start : copied.wire_end] == b"$1\r\ns\r\n$2\r\n\r\n\r\n"
    assert copied.copy() is copied
