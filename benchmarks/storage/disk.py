"""Disk space: bytes of an entry after a checkpoint, and files of a stream that is trimmed while it grows."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks import load
from benchmarks.rows import OURS, OWN_VALUE, Row, Target
from benchmarks.storage.files import allocated_bytes, used_bytes
from benchmarks.storage.repeating import repeated
from benchmarks.storage.rewriting import await_end, rewrite
from benchmarks.storage.servers import available, fill, rotated, running_stored, stored
from benchmarks.storage.sizes import ENTRY_BYTES, MIB, Sizes
from benchmarks.stores import HEADWATER, Kind, Store, cores, durability
from benchmarks.workloads import FIELDS_5, digits

SECTION: Final = "disk"
BYTES: Final = "bytes on disk per entry of 150 B after a checkpoint (peers: RDB)"
TRIMMED: Final = "files after XADD MAXLEN ~ 10000"

KEY: Final = "bench:0"
MAXLEN: Final = 10_000
ALWAYS_MIB: Final = 256.0
"""What the files may have besides twice the live data."""

LIVE_TIMES: Final = 2.0
PIECE_SECONDS: Final = 60.0
"""How long one run of the load generator takes, which must end in time."""

SAMPLE_SECONDS: Final = 1.0
CONNECTIONS, PIPELINE = 50, 16


def entry_bytes(sizes: Sizes, scratch: Path) -> Iterator[Row]:
    """Yield the row of bytes per entry. Space that is only preallocated is not counted."""
    row = Row(SECTION, BYTES, "B", better="less", target=Target(0.5, 0.25))
    row.note = f"{sizes.entries:,} entries; preallocated space of the journal is not counted"
    for turn in range(sizes.rounds):
        for kind in rotated(available(), turn):
            directory = scratch / f"{kind.name}-{turn}"
            measure = our_bytes if kind is HEADWATER else snapshot_bytes
            row.of(kind.name).add(measure(kind, directory, sizes.entries) / sizes.entries)
    yield row


def our_bytes(kind: Kind, directory: Path, entries: int) -> int:
    """Return the bytes of all files after a checkpoint."""
    with running_stored(kind, directory) as (server, store):
        fill(store, KEY, entries, FIELDS_5)
        store.wait_idle()
        rewrite(store)
        store.wait_idle()
        found = used_bytes(server.directory)
        server.shut_down()
    return found


def snapshot_bytes(kind: Kind, directory: Path, entries: int) -> int:
    """Return the bytes of a peer's snapshot."""
    with stored(kind, directory, *durability(None)) as server:
        server.start()
        fill(server.store(), KEY, entries, FIELDS_5)
        server.shut_down(save=True)
        return used_bytes(directory)


def trimmed(sizes: Sizes, scratch: Path) -> Iterator[Row]:
    """Yield the row of files after minutes of appends that trim. Checkpoints begin by themselves, and may use
    the client's core."""
    directory = scratch / HEADWATER.name
    with stored(HEADWATER, directory, *durability("everysec", peer=False)) as server:
        server.server_cores = set(cores())
        server.start()
        store = server.store()
        largest = Largest(directory)
        with repeated(largest.look, SAMPLE_SECONDS, name="sampler"):
            entries = append_and_trim(store, sizes.minutes * 60.0)
        largest.look()
        store.wait_idle()
        await_end(store)
        with store.client() as client:
            live_mib = client.xlen(KEY) * ENTRY_BYTES / MIB
        found_mib = allocated_bytes(directory) / MIB
        server.shut_down()
    row = files_row(live_mib)
    row.of(OURS).add(found_mib, most_mib=largest.size / MIB, live_mib=live_mib)
    row.note = (
        f"{sizes.minutes:g} minutes, {entries:,} entries added, {live_mib:.1f} MiB of them live; "
        f"at most {largest.size / MIB:,.0f} MiB in between"
    )
    yield row


def files_row(live_mib: float) -> Row:
    """Return the row without a measurement. Its bound depends on the live data."""
    bound = ALWAYS_MIB + LIVE_TIMES * live_mib
    return Row(
        SECTION,
        TRIMMED,
        "MiB",
        better="less",
        target=Target(bound, bound, by=OWN_VALUE),
    )


def append_and_trim(store: Store, seconds: float) -> int:
    """Append at full speed for ``seconds``; return the number of entries."""
    chance = random.Random(1)
    requests = [
        load.request(
            b"XADD", KEY.encode(), b"MAXLEN", b"~", b"%d" % MAXLEN, b"*", *digits(FIELDS_5, chance)
        )
        for _ in range(64)
    ]
    added = 0
    ends = time.monotonic() + seconds
    while (left := ends - time.monotonic()) > 0:
        piece = max(min(left, PIECE_SECONDS), 0.1)
        added += store.load("repeat", piece, CONNECTIONS, PIPELINE, requests=requests).operations
    return added


class Largest:
    """The largest size that a directory had at any call of `look`."""

    def __init__(self, directory: Path) -> None:
        self.size = 0
        self._directory = directory

    def look(self) -> None:
        """Look at the size now."""
        self.size = max(self.size, allocated_bytes(self._directory))
