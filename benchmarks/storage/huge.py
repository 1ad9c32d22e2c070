"""The start of a store that is larger than memory should be: its time, and the resident memory after it.

A normal run has two million entries and ``stream-hot-bytes`` scaled like them. That row is reported only: the
required values are those of a hundred million entries and the default settings (``--only huge``, about an hour).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.rows import OWN_VALUE, Row, Target
from benchmarks.storage.files import check_segments
from benchmarks.storage.servers import fill, stored
from benchmarks.storage.sizes import Sizes
from benchmarks.storage.starts import KEY, SECTION, check_length
from benchmarks.stores import HEADWATER, durability
from benchmarks.workloads import FIELDS_5

HUGE: Final = "start, 100M entries on disk, default settings"
HUGE_MEMORY: Final = f"{HUGE}: RSS"
SCALED: Final = "SCALED start, 2M entries on disk, stream-hot-bytes scaled"
SCALED_MEMORY: Final = f"{SCALED}: RSS"

SECONDS: Final = Target(3.0, 1.0, by=OWN_VALUE)
MEMORY: Final = Target(600.0, 520.0, by=OWN_VALUE)


def huge(sizes: Sizes, scratch: Path) -> Iterator[Row]:
    """Yield the rows of a hundred million entries."""
    yield from _rows((HUGE, HUGE_MEMORY), sizes.huge_entries, (), sizes, scratch)


def scaled(sizes: Sizes, scratch: Path) -> Iterator[Row]:
    """Yield the same rows, scaled down and without a verdict."""
    words = ("--stream-hot-bytes", str(sizes.scaled_hot_bytes))
    for row in _rows((SCALED, SCALED_MEMORY), sizes.scaled_entries, words, sizes, scratch):
        assert row.target is not None
        row.target = replace(row.target, judged=False)
        yield row


def _rows(
    names: tuple[str, str], entries: int, words: tuple[str, ...], sizes: Sizes, scratch: Path
) -> Iterator[Row]:
    note = f"{entries:,} entries of 150 B"
    seconds = Row(SECTION, names[0], "s", better="less", target=SECONDS, note=note)
    memory = Row(SECTION, names[1], "MiB", better="less", target=MEMORY, note=note)
    arguments = (*durability("everysec", peer=False), *words)
    with stored(HEADWATER, scratch / HEADWATER.name, *arguments) as server:
        server.start()
        store = server.store()
        fill(store, KEY, entries, FIELDS_5)
        store.wait_idle()
        server.shut_down()
        check_segments(server.directory)
        for _ in range(sizes.rounds):
            seconds.of(server.name).add(server.start())
            store = server.store()
            store.wait_idle()
            memory.of(server.name).add(store.resident_bytes() / 2**20)
            check_length(store, entries)
            server.shut_down()
    yield seconds
    yield memory
