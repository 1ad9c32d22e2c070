"""A task that reads many small streams reads each of them once, over one connection."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from headwater.common.model import MAX_ID, MIN_ID, IDRange
from headwater.errors import DataLoss, HeadwaterError
from headwater.spark.core.ddl import parse_schema
from headwater.spark.core.options import SourceOptions, parse_options
from headwater.spark.core.ranges import EntryRange
from headwater.spark.decoding.columns import RowShape
from headwater.spark.decoding.reading import read_ranges
from tests.spark.stores import Shop

pytestmark = pytest.mark.peer

EVERYTHING = IDRange(MIN_ID, MAX_ID)


def options_of(shop: Shop, **more: str) -> SourceOptions:
    return parse_options({"url": shop.url, "stream": "m*", **more})


def rows_of(options: SourceOptions, parts: Sequence[EntryRange], schema: str) -> list[Any]:
    shape = RowShape.of(parse_schema(schema), options)
    return [row for batch in read_ranges(options, shape, parts) for row in batch.to_pylist()]


def filled(shop: Shop, lengths: Sequence[int]) -> list[EntryRange]:
    """Streams of these lengths, as the ranges of a task."""
    for number, length in enumerate(lengths):
        shop.add(f"m{number}", range(1, length + 1))
    return [EntryRange(f"m{n}", EVERYTHING, length) for n, length in enumerate(lengths)]


def test_each_row_has_the_stream_and_the_value_of_its_entry(shop: Shop) -> None:
    # Given streams of one page, of several, and of exactly one
    lengths = [3, 1, 64, 500, 63, 65, 2]
    parts = filled(shop, lengths)

    # When a task reads them
    found = rows_of(options_of(shop), parts, "stream string, n bigint")

    # Then each entry is there once, in the order of the ranges
    assert found == [
        {"stream": f"m{number}", "n": value}
        for number, length in enumerate(lengths)
        for value in range(1, length + 1)
    ]


def test_a_task_opens_one_connection(shop: Shop) -> None:
    parts = filled(shop, [2] * 100)
    before = int(shop.client.info("stats")["total_connections_received"])

    assert len(rows_of(options_of(shop), parts, "n bigint")) == 200

    assert int(shop.client.info("stats")["total_connections_received"]) - before <= 1


def test_a_lost_connection_repeats_the_range_that_was_asked_for_ahead(shop: Shop) -> None:
    # Given a task that has read its first range, and asked for the next
    parts = filled(shop, [2] * 10)
    options = options_of(shop)
    batches = read_ranges(options, RowShape.of(parse_schema("stream string"), options), parts)
    seen = next(batches).to_pylist()

    # When the server closes the connection
    shop.client.client_kill_filter(_type="normal", skipme=True)
    seen += [row for batch in batches for row in batch.to_pylist()]

    # Then nothing is lost or repeated
    assert [row["stream"] for row in seen] == [f"m{n}" for n in range(10) for _ in range(2)]


def test_entries_that_are_missing_in_one_range_are_reported_for_its_stream(shop: Shop) -> None:
    # Given ranges of which one lost an entry to XTRIM
    parts = filled(shop, [5] * 6)
    shop.client.xtrim("m3", maxlen=4, approximate=False)
    options = options_of(shop)
    batches = read_ranges(options, RowShape.of(parse_schema("n bigint"), options), parts)

    # When they are read, then the three before it are complete, and the error names the stream
    seen = [next(batches).num_rows for _ in range(4)]
    with pytest.raises(DataLoss, match="m3"):
        next(batches)
    assert seen == [5, 5, 5, 4]

    # And the connection, on which a reply was pending, serves the next task
    assert len(rows_of(options, parts[4:], "n bigint")) == 10


def test_a_key_of_another_type_among_the_ranges_is_an_error(shop: Shop) -> None:
    parts = filled(shop, [2, 2, 2])
    shop.client.delete("m1")
    shop.client.set("m1", "text")

    with pytest.raises(HeadwaterError, match="WRONGTYPE"):
        rows_of(options_of(shop), parts, "n bigint")


def test_bad_rows_of_all_ranges_are_counted_together(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    # Given streams with values that cannot be numbers
    parts = filled(shop, [2] * 4)
    for stream in ("m1", "m3"):
        shop.client.xadd(stream, {"n": "many"}, id="9-1")
    parts = [
        part if part.stream in ("m0", "m2") else EntryRange(part.stream, EVERYTHING, 3)
        for part in parts
    ]

    # When a task reads them
    with caplog.at_level(logging.WARNING, logger="headwater.spark"):
        found = rows_of(options_of(shop), parts, "n bigint")

    # Then the log says how many there were, and names the first
    assert [row["n"] for row in found].count(None) == 2
    assert "did not fit the schema: 2; stream 'm1', entry 9-1" in caplog.text
