"""The effects of log mode's options on what is read."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from headwater.errors import DeclarationError
from headwater.spark.log_mode.offsets import spans_of
from headwater.spark.log_mode.streaming import allowances
from headwater.spark.source import HeadwaterSource
from tests.spark.queries import SCHEMA, Query, ranges_of
from tests.spark.stores import Shop

pytestmark = pytest.mark.peer


def read(shop: Shop, **options: str) -> list[int]:
    """Return the numbers that a batch read finds."""
    reader = HeadwaterSource({"url": shop.url, "stream": "s"} | options).reader(SCHEMA)
    return [
        number
        for part in reader.partitions()
        for batch in reader.read(part)
        for number in batch.column("n").to_pylist()
    ]


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        ({"endingId": "latest"}, range(1, 101)),
        ({"endingId": "40-1"}, range(1, 41)),
        ({"endingId": "40-0"}, range(1, 40)),
        ({"endingId": "40"}, range(1, 41)),
        ({"endingId": "999999"}, range(1, 101)),
        ({"startingId": "20-1", "endingId": "20-1"}, range(20, 21)),
        ({"startingId": "41", "endingId": "40"}, range(0)),
        ({"startingId": "5000", "endingId": "40"}, range(0)),
        ({"startingTimestamp": "60"}, range(60, 101)),
        ({"startingTimestamp": "1970-01-01T00:00:00.060Z"}, range(60, 101)),
        ({"startingTimestamp": "60", "endingTimestamp": "63"}, range(60, 63)),
        ({"startingTimestamp": "60", "endingTimestamp": "60"}, range(0)),
        ({"endingTimestamp": '{"s": 3}'}, range(1, 3)),
        ({"endingId": '{"s": "3-1"}', "startingTimestamp": '{"s": "2"}'}, range(2, 4)),
    ],
)
def test_a_batch_read_is_from_its_start_to_its_end(
    shop: Shop, options: dict[str, str], numbers: range
) -> None:
    shop.add("s", range(1, 101))
    shop.delete("s", 30)

    assert read(shop, **options) == [number for number in numbers if number != 30]


def test_each_stream_has_its_own_end(shop: Shop) -> None:
    shop.add("a", range(1, 11))
    shop.add("b", range(11, 21))

    assert read(shop, stream="a,b", endingId='{"a": "2"}') == [1, 2, *range(11, 21)]
    assert read(shop, stream="[ab]", endingTimestamp='{"a": "2", "b": "13"}') == [1, 11, 12]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"endingId": "5"}, "endingId or endingTimestamp is for batch reads"),
        ({"endingTimestamp": '{"s": "5"}'}, "endingId or endingTimestamp is for batch reads"),
        ({"pushdown": "true"}, "pushdown is for batch reads"),
    ],
)
def test_a_streaming_query_refuses_the_options_of_batches(
    shop: Shop, options: dict[str, str], said: str
) -> None:
    with pytest.raises(DeclarationError, match=said):
        HeadwaterSource({"url": shop.url, "stream": "s"} | options).streamReader(SCHEMA)


def test_a_batch_has_about_the_requested_number_of_bytes(shop: Shop) -> None:
    shop.add("s", range(1, 2001), body="x" * 500)

    sizes = [len(batch) for batch in Query(shop, maxBytesPerTrigger="100000").batches()]

    assert sum(sizes) == 2000
    assert all(80 <= size <= 250 for size in sizes[:-1]), sizes


def test_a_batch_has_at_least_one_entry_however_large_it_is(shop: Shop) -> None:
    shop.add("a", [1, 3], body="x" * 10_000)
    shop.add("b", [2, 4], body="x" * 10_000)

    batches = Query(shop, stream="a,b", maxBytesPerTrigger="1").batches()

    assert sorted(itertools.chain(*batches)) == [1, 2, 3, 4]
    assert {len(batch) for batch in batches} == {1}


def test_entries_and_bytes_both_limit_a_batch(shop: Shop) -> None:
    shop.add("s", range(1, 1001), body="x" * 500)

    by_entries = Query(shop, maxBytesPerTrigger="100000", maxEntriesPerTrigger="20").batches()
    by_bytes = Query(shop, maxBytesPerTrigger="20000", maxEntriesPerTrigger="900").batches()

    assert {len(batch) for batch in by_entries} == {20}
    assert max(map(len, by_bytes)) <= 50
    assert sum(map(len, by_bytes)) == 1000


def test_allowances_are_divided_and_include_at_least_one_entry() -> None:
    def weigh(streams: Sequence[str]) -> dict[str, int]:
        return {stream: {"a": 10, "b": 1000}[stream] for stream in streams}

    def of(entries: int | None, size: int | None) -> dict[str, int]:
        return allowances({"a": 50, "b": 50, "c": 0}, entries=entries, size=size, weigh=weigh)

    assert of(None, None) == {"a": 50, "b": 50, "c": 0}
    assert of(10, None) == {"a": 5, "b": 5, "c": 0}
    assert of(None, 4000) == {"a": 50, "b": 3, "c": 0}
    assert of(4, 4000) == {"a": 2, "b": 2, "c": 0}
    assert of(None, 1) == {"a": 1, "b": 0, "c": 0}
    assert allowances({}, entries=1, size=1, weigh=weigh) == {}


def test_a_streaming_query_starts_at_one_time_or_at_one_per_stream(shop: Shop) -> None:
    shop.add("a", range(1, 11))
    shop.add("b", range(1, 11))

    assert Query(shop, stream="a", startingTimestamp="9").batches() == [[9, 10]]
    each = Query(shop, stream="a,b", startingTimestamp='{"a": "9", "b": "10"}').batches()
    assert each == [[9, 10, 10]]


def test_a_batch_is_split_into_the_requested_number_of_tasks(shop: Shop) -> None:
    shop.add("a", range(1, 11))
    shop.add("b", range(1, 3))
    query = Query(shop, stream="a,b", minPartitions="6")
    query.plan()

    parts = query.reader.partitions({}, query.log[-1])

    assert len(parts) >= 6
    assert sum(part.count for part in ranges_of(parts)) == 12
    assert sum(span.entries for span in spans_of(query.log[-1]).values()) == 12
