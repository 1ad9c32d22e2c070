"""XRANGE anywhere in ten million entries, compared with ten thousand, on stores with an append-only file.

Unlike the row of the same name of `make bench`, the entries are on disk. Older ones are read from the page cache,
into which the segments are read before each measurement: some systems drop pages that have not been used for a few
seconds, though memory is free, and then a few percent of the reads wait for the disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from benchmarks import growth
from benchmarks.growth import BIG_KEY, SMALL_KEY, Size, Subject
from benchmarks.rows import OURS, OWN_VALUE, Row, Target
from benchmarks.storage.files import read_pages
from benchmarks.storage.servers import available, fill, running_stored
from benchmarks.storage.sizes import Sizes
from benchmarks.stores import Store
from benchmarks.workloads import FIELDS_5

SECTION: Final = "growth"
SUBJECT: Final = Subject(
    "growth of XRANGE, anywhere in 10M, stored",
    growth.xrange_anywhere,
    Target(4.0, 2.5, by=OWN_VALUE),
)


def anywhere(sizes: Sizes, scratch: Path) -> Iterator[Row]:
    """Yield the row. The ratio is that of the processor time of a call."""
    large = Size(BIG_KEY, sizes.anywhere_entries, 0)
    small = Size(SMALL_KEY, sizes.anywhere_small, 0)
    with ExitStack() as stack:
        stores: list[Store] = []
        for kind in available():
            _, store = stack.enter_context(running_stored(kind, scratch / kind.name))
            fill(store, large.key, large.entries, FIELDS_5)
            store.wait_idle()
            stores.append(store)
        row = growth.row_of(
            SUBJECT,
            stores,
            sizes.rounds,
            section=SECTION,
            small=small,
            large=large,
            before=lambda: read_pages(scratch / OURS),
        )
    row.note = f"{large.entries:,} and {small.entries:,} entries"
    yield row
