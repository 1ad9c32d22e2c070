"""Reads one partition in an executor: pages of XRANGE as record batches, and a count.

Rule 1. A partition says how many entries it has. If fewer arrive, the others were removed after they were
        counted, and core/completeness.py decides what that means. Rows are never missing silently.
Rule 2. Each page is requested by the last id that was read, so a lost connection costs only that page.
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
from headwater.spark.core.connection import patiently
from headwater.spark.core.ids import after, before
from headwater.spark.core.options import SourceOptions
from headwater.spark.core.ranges import EntryRange
from headwater.spark.core.store import SourceStore
from headwater.spark.decoding.columns import RowShape
from headwater.spark.decoding.cutting import MOST_BYTES
from headwater.spark.decoding.gc_freeze import freeze_loaded_objects
from headwater.spark.decoding.page import Page, one_by_one
from headwater.spark.decoding.page_source import PageSource, Request
from headwater.spark.decoding.rows import RowBuilder
from headwater.spark.decoding.uncompiled import counted

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger("headwater.spark")

FIRST_PAGE: Final = 64
"""The first page is small: the entries' sizes are not known, and even large ones must fit in memory."""

MOST_A_PAGE: Final = 5000
"""Entries in one XRANGE. Pages above 20,000 are slower because their reply exceeds the CPU caches."""

PAGE_BYTES: Final = 4 * 1024 * 1024
"""The target size of a page; pages of large entries have fewer of them."""


def read_range(
    options: SourceOptions, shape: RowShape, part: EntryRange
) -> Iterator[pa.RecordBatch]:
    """Yield the entries of ``part`` as record batches of ``shape``.

    Raises `DataLoss` if there are fewer entries than were counted, and `DecodeError` depending on ``mode``.
    """
    freeze_loaded_objects()
    builder = RowBuilder(shape, part.stream)
    found = 0
    pages = pages_of(options, part)
    while True:
        # A page is thousands of lists without cycles: the collector would take a third of the time.
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
        _log.warning(
            "entries that did not fit the schema: %d; %s.", builder.bad_rows, builder.first_bad
        )
    if found != part.count:
        judge_count(SourceStore(options), part, found)


def judge_count(store: SourceStore, part: EntryRange, found: int) -> None:
    """Report that ``part`` had ``found`` entries instead of its count; closes ``store``.

    Raises `DataLoss`, depending on the options.
    """
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
    """Yield the entries of ``part`` that the stream holds now, page by page in the order of their ids."""
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
    """Return the request that follows ``page``; None if that was the last page."""
    if len(page) < asked.most:
        return None
    try:
        last = StreamID.parse(page.last_id)
    except ValueError:
        last = MIN_ID
    if not asked.ids.start <= last <= asked.ids.end:
        raise ProtocolError(
            f"the server sent the entry {page.last_id!r}, outside of the requested range "
            f"{asked.ids.start} to {asked.ids.end}"
        )
    if last == asked.ids.end:
        return None
    count = max(1, min(MOST_A_PAGE, PAGE_BYTES * len(page) // weight))
    return Request(asked.stream, IDRange(after(last), asked.ids.end), count)
