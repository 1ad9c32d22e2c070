"""Reading one partition in an executor: pages of XRANGE, each a record batch, and a count.

Rule 1. A partition says how many entries it holds. When fewer came, they were removed after they
        were counted, and that is judged here (completeness.py): rows are never just missing.
Rule 2. A page is asked for by the last id that was read, so a lost connection costs that page and
        no more.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from headwater.model import IDRange, StreamID
from headwater.spark.decoding.columns import Shape
from headwater.spark.decoding.page import Page
from headwater.spark.decoding.reply import PageDecoder
from headwater.spark.decoding.rows import RowBuilder
from headwater.spark.log_mode.completeness import judge_range, report
from headwater.spark.log_mode.partitions import EntryRange
from headwater.spark.log_mode.planning import after, before
from headwater.spark.options import SourceOptions
from headwater.spark.store import Store, connect, patiently

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger("headwater.spark")

FIRST_PAGE: Final = 1000
MOST_A_PAGE: Final = 5000
"""Entries in one XRANGE. Pages above 20,000 are slower: their reply no longer fits the caches."""

PAGE_BYTES: Final = 4 * 1024 * 1024
"""What a page should weigh; big entries come in fewer at a time."""

_RECEIVE_BYTES: Final = 256 * 1024


def read_range(options: SourceOptions, shape: Shape, part: EntryRange) -> Iterator[pa.RecordBatch]:
    """The entries of ``part`` as record batches of ``shape``.

    Raises `DataLoss` when fewer were there than were counted, `DecodeError` as ``mode`` says.
    """
    builder = RowBuilder(shape, part.stream)
    found = 0
    pages = pages_of(options, part)
    while True:
        with collector_off():
            page = next(pages, None)
            if page is None:
                break
            batch = builder.build(page)
        found += len(page)
        if batch.num_rows:
            yield batch
    if builder.bad_rows:
        _log.warning("%d entries did not fit the schema; %s.", builder.bad_rows, builder.first_bad)
    if found != part.count:
        _judge(options, part, found)


@contextmanager
def collector_off() -> Iterator[None]:
    """A page is lists in lists by the thousand, none of them in a cycle: the search for cycles
    would take a third of the time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _judge(options: SourceOptions, part: EntryRange, found: int) -> None:
    store = Store(options)
    try:
        finding = judge_range(
            part.stream,
            before(part.ids.start),
            part.ids.end,
            expected=part.count,
            found=found,
            state=store.state(part.stream),
        )
    finally:
        store.close()
    if finding:
        report(finding, options)


def pages_of(options: SourceOptions, part: EntryRange) -> Generator[Page, None, None]:
    """The entries that the stream holds of ``part`` now, page by page in the order of their ids."""
    source = _PageSource(options.url)
    start, count = part.ids.start, FIRST_PAGE
    try:
        while start <= part.ids.end:
            asked, ids = count, IDRange(start, part.ids.end)
            page, weight = patiently(
                options.url,
                lambda: source.page(part.stream, ids, asked),  # noqa: B023 - called now
            )
            if page:
                yield page
            if len(page) < asked:
                return
            start = after(StreamID.parse(page.ids[-1]))
            count = max(1, min(MOST_A_PAGE, PAGE_BYTES * len(page) // weight))
    finally:
        source.close()


class _PageSource:
    """One connection to the server, of which the bytes of each reply are taken as they are."""

    def __init__(self, url: str) -> None:
        self._client = connect(url)
        self._connection: Any = None

    def page(self, stream: str, ids: IDRange, count: int) -> tuple[Page, int]:
        """One page and the number of its bytes. The caller may ask again after an error."""
        if self._connection is None:
            self._connection = self._client.connection_pool.get_connection()
        try:
            self._connection.send_command(
                "XRANGE", stream, str(ids.start), str(ids.end), "COUNT", count
            )
            return self._receive()
        except BaseException:
            # Half a reply may be under way: this connection answers nothing any more.
            self._connection.disconnect()
            raise

    def _receive(self) -> tuple[Page, int]:
        # redis-py hands out decoded replies only; the socket under it, once it has connected and
        # authenticated, gives the bytes.
        import redis

        sock = self._connection._sock  # noqa: SLF001
        decoder, weight = PageDecoder(), 0
        buffer = bytearray(_RECEIVE_BYTES)
        view = memoryview(buffer)
        while True:
            received = sock.recv_into(buffer)
            if not received:
                raise redis.ConnectionError("the server closed the connection")
            weight += received
            page = decoder.feed(bytes(view[:received]))
            if page is not None:
                return page, weight

    def close(self) -> None:
        if self._connection is not None:
            self._connection.disconnect()
            self._client.connection_pool.release(self._connection)
        self._client.close()
