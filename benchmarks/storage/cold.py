"""Cold data: appends to a stream 20 times as large as ``stream-hot-bytes``, and reads of its older entries.

Two servers have the same entries. One keeps all of them hot, the other only the newest; its
``stream-cold-cache-bytes`` is scaled like its ``stream-hot-bytes``, so that its own cache does not hold what is
read. A row fails if that server has stored nothing in segments.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.load import request
from benchmarks.rows import OURS, OWN_VALUE, TIMES, Row, Target
from benchmarks.storage.files import check_segments, drop_pages, read_pages
from benchmarks.storage.repeating import repeated
from benchmarks.storage.servers import fill, running_stored
from benchmarks.storage.sizes import COLD_TIMES, DEFAULT_HOT_BYTES, MIB, Sizes
from benchmarks.stores import HEADWATER, Store
from benchmarks.workloads import FIELDS_5, xadd

SECTION: Final = "cold"
APPEND: Final = f"append to a stream {COLD_TIMES} times stream-hot-bytes, of hot"
READ_COLD: Final = "XRANGE COUNT 1000 walking cold data, page cache cold, of hot"
READ_WARM: Final = "XRANGE COUNT 1000 walking cold data, page cache warm, of hot"

KEY: Final = "bench:0"
"""The stream that `benchmarks.workloads.xadd` writes to."""

COUNT: Final = 1000
CACHE_BYTES: Final = 64 * MIB
"""The server's default of ``stream-cold-cache-bytes``."""

LEAST_CACHE_BYTES: Final = 64 * 1024
DROP_SECONDS: Final = 0.05

RUN: Final = xadd(FIELDS_5, connections=50, pipeline=16)


class Pair(NamedTuple):
    """The server with cold data, its directory, and the one whose data are hot."""

    cold: Store
    directory: Path
    hot: Store


@contextmanager
def pair(sizes: Sizes, scratch: Path, settings: tuple[tuple[str, str], ...] = ()) -> Iterator[Pair]:
    """Run both servers inside the block, filled with the same entries."""
    cold_settings = (("stream-hot-bytes", str(sizes.hot_bytes)), *settings)
    hot_settings = (
        ("stream-hot-bytes", str(max(DEFAULT_HOT_BYTES, 4 * COLD_TIMES * sizes.hot_bytes))),
    )
    with (
        running_stored(HEADWATER, scratch / "cold", settings=cold_settings) as (server, cold),
        running_stored(HEADWATER, scratch / "hot", settings=hot_settings) as (_, hot),
    ):
        for store in (cold, hot):
            fill(store, KEY, sizes.cold_entries, FIELDS_5)
            store.wait_idle()
        check_segments(server.directory)
        yield Pair(cold, server.directory, hot)


def append(sizes: Sizes, scratch: Path) -> Iterator[Row]:
    """Yield the row of appends. The hot server writes to an empty stream."""
    row = Row(SECTION, APPEND, TIMES, target=Target(0.85, 0.95, by=OWN_VALUE))
    with pair(sizes, scratch) as stores:
        for _ in range(sizes.rounds):
            stores.hot.empty()
            stores.cold.wait_idle()
            cold, hot = (RUN(store, sizes.seconds) for store in (stores.cold, stores.hot))
            row.of(OURS).add(cold.rate / hot.rate, rate=cold.rate, rate_hot=hot.rate)
    yield row


def reads(sizes: Sizes, scratch: Path) -> Iterator[Row]:
    """Yield the rows of reads with a cold page cache and with a warm one."""
    cold_row = Row(SECTION, READ_COLD, TIMES, target=Target(0.1, 0.3, by=OWN_VALUE))
    warm_row = Row(SECTION, READ_WARM, TIMES, target=Target(0.3, 0.5, by=OWN_VALUE))
    cache = str(cache_bytes(sizes))
    with pair(sizes, scratch, (("stream-cold-cache-bytes", cache),)) as stores:
        requests = walk(sizes)
        for _ in range(sizes.rounds):
            hot = stores.hot.load("same", sizes.seconds, 1, 1, requests=requests)
            with dropping(stores.directory):
                cold = stores.cold.load("same", sizes.seconds, 1, 1, requests=requests)
            read_pages(stores.directory)
            warm = stores.cold.load("same", sizes.seconds, 1, 1, requests=requests)
            for row, found in ((cold_row, cold), (warm_row, warm)):
                row.of(OURS).add(
                    found.rate / hot.rate,
                    rate=found.rate,
                    rate_hot=hot.rate,
                    p50_us=found.p50_us,
                    p99_us=found.p99_us,
                    client_busy=found.client_busy,
                )
    yield cold_row
    yield warm_row


def cache_bytes(sizes: Sizes) -> int:
    """Return ``stream-cold-cache-bytes``, scaled like ``stream-hot-bytes``."""
    return max(LEAST_CACHE_BYTES, CACHE_BYTES * sizes.hot_bytes // DEFAULT_HOT_BYTES)


def walk(sizes: Sizes) -> list[bytes]:
    """Return the reads of a walk over the entries, without the newest, which are hot."""
    last = sizes.cold_entries - 2 * sizes.cold_entries // COLD_TIMES
    return [
        request(b"XRANGE", KEY.encode(), b"%d-1" % first, b"+", b"COUNT", b"%d" % COUNT)
        for first in range(1, max(last - COUNT, 2), COUNT)
    ]


@contextmanager
def dropping(directory: Path) -> Iterator[None]:
    """Keep the segments of a directory out of the page cache inside the block.

    The client repeats its walk, so pages are dropped again and again: a second walk reads the disk too.
    """
    drop_pages(directory)
    with repeated(lambda: drop_pages(directory), DROP_SECONDS, name="drops pages"):
        yield
