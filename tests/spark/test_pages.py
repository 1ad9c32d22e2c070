"""Pages are read over one connection, with the next one requested early; none is lost or repeated."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater.common.model import MAX_ID, MIN_ID, IDRange, StreamID
from headwater.errors import HeadwaterError, ProtocolError
from headwater.spark.core.options import parse_options
from headwater.spark.core.ranges import EntryRange
from headwater.spark.decoding.page import ListPage, Page
from headwater.spark.decoding.page_source import PageSource, Request
from headwater.spark.decoding.reading import FIRST_PAGE, MOST_A_PAGE, _following, pages_of
from tests.spark.stores import Shop

pytestmark = pytest.mark.peer

EVERYTHING = IDRange(MIN_ID, MAX_ID)


def reading(shop: Shop, count: int, stream: str = "s") -> Iterator[Page]:
    given = parse_options({"url": shop.url, "stream": stream})
    return pages_of(given, EntryRange(stream, EVERYTHING, count))


def numbers(found: Iterator[Page]) -> list[int]:
    return [int(value) for page in found for value in page.column(b"n").to_pylist()]


def test_pages_are_consecutive_without_gap_or_overlap(shop: Shop) -> None:
    shop.add("s", range(1, 12_001))

    found = list(reading(shop, 12_000))

    assert numbers(iter(found)) == list(range(1, 12_001))
    assert max(map(len, found)) <= MOST_A_PAGE


@pytest.mark.slow
def test_a_connection_that_ends_between_two_pages_loses_nothing(shop: Shop) -> None:
    shop.add("s", range(1, 8001))
    found = reading(shop, 8000)
    seen = numbers(iter([next(found)]))

    # When the server closes the reader's connection while a request is pending
    shop.client.client_kill_filter(_type="normal", skipme=True)

    assert seen + numbers(found) == list(range(1, 8001))


def test_entries_added_while_a_page_is_decoded_are_read_too(shop: Shop) -> None:
    shop.add("s", range(1, FIRST_PAGE + 1))
    found = reading(shop, FIRST_PAGE)
    next(found)  # the next request is pending, and may see the new entries or not

    shop.add("s", range(1000, 1010))

    assert numbers(found) in ([], list(range(1000, 1010)))


def test_an_error_reply_is_one_error_with_its_text(shop: Shop) -> None:
    shop.client.set("text", "x")

    with pytest.raises(HeadwaterError, match=r"answered: WRONGTYPE"):
        list(reading(shop, 1, "text"))


def test_a_source_sends_a_request_that_was_not_sent_ahead(shop: Shop) -> None:
    shop.add("s", range(1, 11))
    source = PageSource(shop.url)
    low, high = IDRange(StreamID(1, 0), StreamID(5, 9)), IDRange(StreamID(6, 0), StreamID(10, 9))

    # When one page was requested ahead, and another one is read first
    source.ahead(Request("s", low, 100))
    wanted = source.page(Request("s", high, 100))
    again = source.page(Request("s", low, 100))
    source.close()

    assert numbers(iter([wanted])) == [6, 7, 8, 9, 10]
    assert numbers(iter([again])) == [1, 2, 3, 4, 5]


def test_a_page_too_large_for_arrows_offsets_is_read_entry_by_entry(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.spark.decoding.reading.MOST_BYTES", 100)
    shop.add("s", range(1, 201))

    found = list(reading(shop, 200))

    assert numbers(iter(found)) == list(range(1, 201))
    assert {len(page) for page in found} == {1}


@pytest.mark.parametrize("last", [b"9-0", b"4-0", b"x"])
def test_an_entry_outside_of_the_range_is_an_error(last: bytes) -> None:
    asked = Request("s", IDRange(StreamID(5, 0), StreamID(8, 0)), 1)

    with pytest.raises(ProtocolError, match="outside of the requested range 5-0 to 8-0"):
        _following(asked, ListPage([last], [[b"a", b"b"]]), 40)
