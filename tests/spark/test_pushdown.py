"""Pushed filters narrow a read to exactly the rows that Spark would keep, or Spark applies them too."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from headwater.common.model import MAX_ID, MIN_ID, IDRange, StreamID
from headwater.spark.decoding.page import MAX_TIMESTAMP_MS
from headwater.spark.log_mode.pushdown import PushdownReader, id_bounds, timestamp_bounds
from headwater.spark.source import HeadwaterSource
from tests.spark.queries import SCHEMA
from tests.spark.stores import Shop

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
COMPARISONS: dict[type[Filter], Any] = {
    EqualTo: lambda left, right: left == right,
    EqualNullSafe: lambda left, right: left == right,
    LessThan: lambda left, right: left < right,
    LessThanOrEqual: lambda left, right: left <= right,
    GreaterThan: lambda left, right: left > right,
    GreaterThanOrEqual: lambda left, right: left >= right,
    In: lambda left, right: left in right,
}

microseconds = st.integers(-3000, 12_000)
ids = st.builds(StreamID, st.integers(0, 12), st.sampled_from([0, 1, 10, 2**64 - 1]))


def at(us: int) -> dt.datetime:
    return EPOCH + dt.timedelta(microseconds=us)


def holds(one: Any, value: Any) -> bool:
    return bool(COMPARISONS[type(one)](value, one.value))


def check(one: Any, found: tuple[IDRange, bool], id_: StreamID, value: Any) -> None:
    """Check that no kept row is excluded and, for exact bounds, that no other row is included."""
    bounds, exact = found
    inside = bounds.start <= id_ <= bounds.end
    assert inside or not holds(one, value)
    assert not exact or inside == holds(one, value)


@given(st.data(), ids)
def test_a_filter_on_the_timestamp_keeps_the_same_rows_as_spark(
    data: st.DataObject, id_: StreamID
) -> None:
    kind: Any = data.draw(st.sampled_from(list(COMPARISONS)))
    times = st.builds(at, st.one_of(microseconds, microseconds.map(lambda us: us // 1000 * 1000)))
    one = kind(("timestamp",), data.draw(st.lists(times).map(tuple) if kind is In else times))

    check(one, timestamp_bounds(one), id_, at(id_.ms * 1000))


@given(st.data(), ids)
def test_a_filter_on_the_id_keeps_the_same_rows_as_spark(
    data: st.DataObject, id_: StreamID
) -> None:
    kind: Any = data.draw(st.sampled_from(list(COMPARISONS)))
    texts = st.one_of(ids.map(str), st.sampled_from(["", "5", "05-1", "5-x", "9"]))
    one = kind(("id",), data.draw(st.lists(texts).map(tuple) if kind is In else texts))

    check(one, id_bounds(one), id_, str(id_))


def test_an_id_beyond_the_last_timestamp_matches_no_comparison() -> None:
    beyond = StreamID(MAX_TIMESTAMP_MS + 1, 0)

    for one in (GreaterThan(("timestamp",), EPOCH), IsNotNull(("timestamp",))):
        bounds, exact = timestamp_bounds(one)
        assert exact
        assert bounds.end < beyond
    assert id_bounds(IsNotNull(("id",))) == (IDRange(MIN_ID, MAX_ID), True)


def reader_of(shop: Shop, **options: str) -> PushdownReader:
    given = {"url": shop.url, "stream": "a,b", "pushdown": "true"} | options
    reader = HeadwaterSource(given).reader(SCHEMA)
    assert isinstance(reader, PushdownReader)
    return reader


def rows(reader: PushdownReader) -> list[tuple[str, int]]:
    return [
        (row["stream"], row["n"])
        for part in reader.partitions()
        for batch in reader.read(part)
        for row in batch.to_pylist()
    ]


@pytest.mark.peer
def test_only_the_remaining_entries_are_read(shop: Shop) -> None:
    shop.add("a", range(1, 101))
    shop.add("b", range(50, 61))

    def left(*filters: Filter, **options: str) -> tuple[list[tuple[str, int]], list[Filter]]:
        reader = reader_of(shop, **options)
        again = list(reader.pushFilters(list(filters)))
        return rows(reader), again

    from_40 = GreaterThanOrEqual(("timestamp",), at(40_000))
    upto_41 = LessThan(("timestamp",), at(41_001))
    assert left(IsNotNull(("timestamp",)), from_40, upto_41) == ([("a", 40), ("a", 41)], [])
    assert left(EqualTo(("stream",), "b"), upto_41) == ([], [])
    assert left(In(("stream",), ("b", "c")), EqualTo(("id",), "55-1")) == ([("b", 55)], [])
    assert left(EqualTo(("id",), "none")) == ([], [])
    assert left(from_40, startingId="42-0", endingId="43") == ([("a", 42), ("a", 43)], [])
    some = In(("id",), ("59-1", "60-1", "x"))
    assert left(some) == ([("a", 59), ("a", 60), ("b", 59), ("b", 60)], [some])
    others: list[Filter] = [
        GreaterThan(("id",), "59-1"),
        EqualTo(("n",), 5),
        Not(EqualTo(("stream",), "a")),
        StringStartsWith(("stream",), "a"),
        EqualTo(("timestamp",), dt.datetime(2013, 1, 31)),  # noqa: DTZ001 - no zone, as Spark's NTZ
    ]
    read, again = left(*others)
    assert len(read) == 111
    assert again == others
