"""Reads the ranges of a task in an executor: pages of XRANGE as record batches, and a count.

Rule 1. A range has a count of its entries. If fewer entries arrive, the others were removed after the count, and
        core/completeness.py decides whether that is an error. Rows are never missing silently.
Rule 2. Each page is requested by the last id that was read, so a lost connection costs only one page.
Rule 3. A task may read hundreds of small streams. Its ranges share a connection, and the next range is requested
        while the last page of the current range is decoded. On a cluster, ranges may be on different nodes.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from headwater.client.server_url import is_cluster
from headwater.common.collector import collector_off
from headwater.common.model import MIN_ID, IDRange, StreamID
from headwater.errors import ProtocolError
from headwater.spark.core.completeness import judge_range, report
from headwater.spark.core.connection import patiently
from headwater.spark.core.options import SourceOptions
from headwater.spark.core.positions import after, before
from headwater.spark.core.ranges import EntryRange
from headwater.spark.core.store import SourceStore
from headwater.spark.decoding.columns import RowShape
from headwater.spark.decoding.cutting import MOST_BYTES
from headwater.spark.decoding.gc_freeze import freeze_loaded_objects
from headwater.spark.decoding.page import Page, one_by_one
from headwater.spark.decoding.page_source import PageSource, Request
from headwater.spark.decoding.reply import FASTER
from headwater.spark.decoding.rows import RowBuilder

if TYPE_CHECKING:
    import pyarrow as pa


_log = logging.getLogger("headwater.spark")

FIRST_PAGE: Final = 64
"""Number of entries in the first page: few, because their sizes are unknown and large ones must fit in memory."""

MOST_A_PAGE: Final = 5000
"""Maximum number of entries in one XRANGE. Above 20,000, a page is slower because it exceeds the CPU caches."""

PAGE_BYTES: Final = 4 * 1024 * 1024
"""The target size of a page in bytes. A page of large entries has fewer entries."""


def read_ranges(
    options: SourceOptions, shape: RowShape, parts: Sequence[EntryRange]
) -> Iterator[pa.RecordBatch]:
    """Yield the entries of ``parts``, one after another, as record batches of ``shape``.

    Raises `DataLoss` if there are fewer entries than were counted, and `DecodeError` for a bad row (``mode``).
    """
    freeze_loaded_objects()
    builder = RowBuilder(shape, parts[0].stream)
    shared = None if is_cluster(options.url) else PageSource(options.url)
    try:
        for part, following in zip_longest(parts, parts[1:]):
            builder.stream = part.stream
            found = 0
            with closing(pages_of(options, part, source=shared, following=following)) as pages:
                while True:
                    # A page is thousands of lists without cycles; the collector would cost a third of the time.
                    with collector_off():
                        page = next(pages, None)
                        if page is None:
                            break
                        batch = builder.build(page)
                    found += len(page)
                    counted(len(page))
                    if batch.num_rows:
                        yield batch
            if found != part.count:
                judge_count(SourceStore(options), part, found)
    finally:
        if shared is not None:
            shared.close()
        builder.log_unknown()
        if builder.bad_rows:
            _log.warning(
                "entries that did not fit the schema: %d; %s.", builder.bad_rows, builder.first_bad
            )


def judge_count(store: SourceStore, part: EntryRange, found: int) -> None:
    """Report that ``part`` had ``found`` entries instead of its count. Closes ``store``.

    Raises `DataLoss` unless the options accept the loss.
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


def pages_of(
    options: SourceOptions,
    part: EntryRange,
    *,
    source: PageSource | None = None,
    following: EntryRange | None = None,
) -> Generator[Page, None, None]:
    """Yield the entries of ``part`` that the stream holds now, page by page in the order of their ids. The caller
    must close a given ``source``; ``following`` is the range that the caller will read next from ``source``."""
    pages = source if source is not None else PageSource(options.url)
    request: Request | None = _first_of(part)
    try:
        while request is not None:
            asked = request
            page = patiently(options.url, lambda: pages.page(asked))  # noqa: B023 - called now
            weight = pages.weight
            request = _following(asked, page, weight)
            if request is not None:
                pages.ahead(request)
            elif source is not None and following is not None:
                pages.ahead(_first_of(following))
            if weight > MOST_BYTES:
                yield from one_by_one(page)
            elif page:
                yield page
    finally:
        if source is None:
            pages.close()


def _first_of(part: EntryRange) -> Request:
    return Request(part.stream, part.ids, FIRST_PAGE)


def _following(asked: Request, page: Page, weight: int) -> Request | None:
    """Return the request that follows ``page``; None if ``page`` was the last page."""
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


# --- executors without the compiled modules -------------------------------------------------------
#
# ``--py-files`` ships a zip, from which extension modules cannot be imported. There is no warning for few rows, or
# with HEADWATER_PURE=1, which requests plain Python.


ROWS_WORTH_A_WORD: Final = 100_000

_rows = 0


def counted(rows: int, *, compiled: bool = FASTER) -> None:
    """Count rows that this process decoded; warn once when plain Python has decoded many."""
    global _rows
    if compiled or os.environ.get("HEADWATER_PURE") == "1":
        return
    before, _rows = _rows, _rows + rows
    if before < ROWS_WORTH_A_WORD <= _rows:
        _log.warning(
            "this executor decodes without Headwater's compiled modules, at about 0.4 million rows a "
            "second instead of 1.1 million: a zip (--py-files) cannot contain them. Ship a packed "
            "environment with --archives, which `headwater spark pack` makes, or install the wheel on "
            "the executors."
        )
