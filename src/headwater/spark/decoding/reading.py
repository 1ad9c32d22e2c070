"""Reading one partition in an executor: pages of XRANGE, each a record batch, and a count.

Rule 1. A partition says how many entries it holds. When fewer came, they were removed after they
        were counted, and that is judged here (core/completeness.py): rows are never just missing.
Rule 2. A page is asked for by the last id that was read, so a lost connection costs that page and
        no more.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Final

from headwater.collector import collector_off
from headwater.errors import ProtocolError
from headwater.model import MIN_ID, IDRange, StreamID
from headwater.spark.core.completeness import judge_range, report
from headwater.spark.core.ids import after, before
from headwater.spark.core.options import SourceOptions
from headwater.spark.core.ranges import EntryRange
from headwater.spark.core.store import SourceStore, patiently
from headwater.spark.decoding.columns import RowShape
from headwater.spark.decoding.cutting import MOST_BYTES
from headwater.spark.decoding.gc_freeze import freeze_what_is_loaded
from headwater.spark.decoding.page import Page, one_by_one
from headwater.spark.decoding.page_source import PageSource, Request
from headwater.spark.decoding.rows import RowBuilder
from headwater.spark.decoding.uncompiled import counted

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger("headwater.spark")

FIRST_PAGE: Final = 64
"""Before anything is known of the entries' sizes: even big ones then fit the memory."""

MOST_A_PAGE: Final = 5000
"""Entries in one XRANGE. Pages above 20,000 are slower: their reply no longer fits the caches."""

PAGE_BYTES: Final = 4 * 1024 * 1024
"""What a page should weigh; big entries come in fewer at a time."""


def read_range(
    options: SourceOptions, shape: RowShape, part: EntryRange
) -> Iterator[pa.RecordBatch]:
    """The entries of ``part`` as record batches of ``shape``.

    Raises `DataLoss` when fewer were there than were counted, `DecodeError` as ``mode`` says.
    """
    freeze_what_is_loaded()
    builder = RowBuilder(shape, part.stream)
    found = 0
    pages = pages_of(options, part)
    while True:
        # A page is thousands of lists and no cycles: the collector would take a third of the time.
        with collector_off():
            page = next(pages, None)
            if page is None:
                break
            batch = builder.build(page)
        found += len(page)
        counted(len(page))
        if batch.num_rows:
            yield batch
    if builder.bad_rows:
        _log.warning("%d entries did not fit the schema; %s.", builder.bad_rows, builder.first_bad)
    if found != part.count:
        judge_count(SourceStore(options), part, found)


def judge_count(store: SourceStore, part: EntryRange, found: int) -> None:
    """Say what it means that ``part`` held ``found`` entries and not what was counted; closes
    ``store``. Raises `DataLoss` as the options say."""
    with closing(store):
        finding = judge_range(
            part.stream,
            before(part.ids.start),
            part.ids.end,
            expected=part.count,
            found=found,
            state=store.state(part.stream),
        )
    if finding:
        report(finding, store.options)


def pages_of(options: SourceOptions, part: EntryRange) -> Generator[Page, None, None]:
    """The entries that the stream holds of ``part`` now, page by page in the order of their ids."""
    source = PageSource(options.url)
    request: Request | None = Request(part.stream, part.ids, FIRST_PAGE)
    try:
        while request is not None:
            asked = request
            page = patiently(options.url, lambda: source.page(asked))  # noqa: B023 - called now
            weight = source.weight
            request = _following(asked, page, weight)
            if request is not None:
                source.ahead(request)
            if weight > MOST_BYTES:
                yield from one_by_one(page)
            elif page:
                yield page
    finally:
        source.close()


def _following(asked: Request, page: Page, weight: int) -> Request | None:
    """What is to be asked for after ``page``; None when that was the last."""
    if len(page) < asked.most:
        return None
    try:
        last = StreamID.parse(page.last_id)
    except ValueError:
        last = MIN_ID
    if not asked.ids.start <= last <= asked.ids.end:
        raise ProtocolError(
            f"the server sent the entry {page.last_id!r} where {asked.ids.start} to {asked.ids.end} "
            "was asked for"
        )
    if last == asked.ids.end:
        return None
    count = max(1, min(MOST_A_PAGE, PAGE_BYTES * len(page) // weight))
    return Request(asked.stream, IDRange(after(last), asked.ids.end), count)
