"""Values parsed without Arrow equal the results of Arrow's cast, or are left to Arrow."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql.types import DataType, DecimalType, IntegerType, LongType, TimestampType

from headwater.spark.decoding import numbers
from headwater.spark.decoding.casting import cast_column, caster
from headwater.spark.decoding.page import INSTANT, MAX_TIMESTAMP_MS, ListPage, parsed

SETTINGS = settings(max_examples=200)

Parse = Callable[[pa.BinaryArray], pa.Array | None]

ODD = st.sampled_from(
    [
        "",
        " 1",
        "1 ",
        "+1",
        "-",
        "--1",
        "007",
        "-0",
        "0x11",
        "1e3",
        ".5",
        "5.",
        "1.2.3",
        "\uff11",
        "nan",
    ]
)
MILLISECONDS = st.one_of(
    st.integers(0, 2**64 - 1),
    st.integers(MAX_TIMESTAMP_MS - 1, MAX_TIMESTAMP_MS + 1),
    st.integers(0, 2 * 10**12),
)
WHOLE = st.one_of(st.integers().map(str), st.integers(-(2**64), 2**64).map(str), ODD)
DECIMAL = st.one_of(
    st.decimals(allow_nan=False, allow_infinity=False, places=2, max_value=10**9).map(str),
    st.decimals(allow_nan=False, allow_infinity=False).map(lambda number: f"{number:f}"[:60]),
    st.from_regex(r"-?[0-9]{1,20}(\.[0-9]{1,5})?", fullmatch=True),
    ODD,
)
MOMENT = st.one_of(
    st.datetimes().map(lambda time: time.isoformat() + "Z"),
    st.datetimes().map(lambda time: time.isoformat(sep=" ")),
    st.datetimes(timezones=st.just(dt.timezone(dt.timedelta(hours=2)))).map(dt.datetime.isoformat),
    st.from_regex(
        r"(0000|19[67][0-9]|2[0-9]{3})-[0-1][0-9]-[0-3][0-9][T ][0-2][0-9]:[0-6][0-9]:[0-6][0-9]"
        r"([.,][0-9]{0,10})?Z?",
        fullmatch=True,
    ),
    st.sampled_from(["2013-01-01", "soon", "", "2013-01-01T05:00Z", "2013-01-01T05:00:00z"]),
)


def whole_numbers(low: int, high: int, type_: pa.DataType) -> Parse:
    def parse(values: pa.BinaryArray) -> pa.Array | None:
        found = parsed(values, numbers.integers, pa.int64(), low, high)
        return None if found is None else found.cast(type_)

    return parse


def decimal_numbers(precision: int, scale: int) -> Parse:
    type_ = pa.decimal128(precision, scale)
    return lambda values: parsed(values, numbers.decimals, type_, precision, scale)


def agree(type_: DataType, arrow: pa.DataType, parse: Parse, texts: Sequence[str | None]) -> bool:
    """Return whether the column was parsed; if so, check it against Arrow's cast."""
    values = pa.array([None if text is None else text.encode() for text in texts], pa.binary())
    found = parse(values)
    if found is None:
        return False
    found.validate(full=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numbers, "COMPILED", False)
        expected, bad = cast_column(values, caster(type_), arrow)
    assert not bad
    assert found.equals(expected)
    return True


@SETTINGS
@given(texts=st.lists(st.one_of(st.none(), WHOLE), min_size=1, max_size=6))
@example(texts=["007"])
@example(texts=["-0"])
def test_whole_numbers(texts: list[Any]) -> None:
    agree(LongType(), pa.int64(), whole_numbers(-(2**63), 2**63 - 1, pa.int64()), texts)
    agree(IntegerType(), pa.int32(), whole_numbers(-(2**31), 2**31 - 1, pa.int32()), texts)


@pytest.mark.slow
@SETTINGS
@given(
    texts=st.lists(st.one_of(st.none(), DECIMAL), min_size=1, max_size=4),
    kind=st.sampled_from([(10, 2), (4, 2), (38, 10), (18, 0), (5, 5), (20, 18)]),
)
def test_decimals(texts: list[Any], kind: tuple[int, int]) -> None:
    agree(DecimalType(*kind), pa.decimal128(*kind), decimal_numbers(*kind), texts)


@pytest.mark.slow
@SETTINGS
@given(texts=st.lists(st.one_of(st.none(), MOMENT), min_size=1, max_size=4))
def test_times(texts: list[Any]) -> None:
    agree(TimestampType(), INSTANT, lambda values: parsed(values, numbers.instants, INSTANT), texts)


def test_every_day_of_four_centuries_is_parsed_correctly() -> None:
    first = dt.date(1970, 1, 1)
    days = [(first + dt.timedelta(days=day)).isoformat() for day in range(0, 146_097, 3)]
    texts = [f"{day}T23:59:59.5Z" for day in days]

    assert agree(
        TimestampType(), INSTANT, lambda values: parsed(values, numbers.instants, INSTANT), texts
    )


@pytest.mark.parametrize(
    ("parse", "good", "odd"),
    [
        (whole_numbers(-(2**63), 2**63 - 1, pa.int64()), "-17", "+17"),
        (whole_numbers(-128, 127, pa.int8()), "127", "128"),
        (decimal_numbers(10, 2), "-12345678.5", "123456789.5"),
        (decimal_numbers(10, 2), "0", "0.125"),
        (lambda v: parsed(v, numbers.instants, INSTANT), "2013-01-31T05:00:00.25Z", "2013-01-31"),
    ],
)
def test_common_forms_are_parsed_and_one_other_form_leaves_the_column_to_arrow(
    parse: Parse, good: str, odd: str
) -> None:
    texts = [good.encode(), None, good.encode()]

    assert parse(pa.array(texts, pa.binary())) is not None
    assert parse(pa.array([*texts, odd.encode()], pa.binary())) is None
    assert parse(pa.array([*texts, b""], pa.binary())) is None  # an empty text is not a null


@SETTINGS
@given(ids=st.lists(st.tuples(MILLISECONDS, st.integers(0, 2**64 - 1)), min_size=1))
@example(ids=[(MAX_TIMESTAMP_MS, 0)])
@example(ids=[(MAX_TIMESTAMP_MS + 1, 0)])
def test_the_times_of_ids(ids: list[tuple[int, int]]) -> None:
    page = ListPage([b"%d-%d" % id_ for id_ in ids], [[]] * len(ids))

    found = parsed(page.ids_as_binary(), numbers.id_instants, INSTANT)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numbers, "COMPILED", False)
        expected = page.moments()
    assert found is None or found.equals(expected)
    assert expected.cast(pa.int64()).to_pylist() == [
        ms * 1000 if ms <= MAX_TIMESTAMP_MS else None for ms, _seq in ids
    ]
