"""From starting the process to its first PONG: in an empty directory, after a clean stop, after a SIGKILL.

A server answers PING with LOADING while it loads, so the time includes all of it. The files are in the page
cache.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from benchmarks.load import request
from benchmarks.rows import OWN_VALUE, Row, Target
from benchmarks.storage.servers import (
    Unmeasured,
    available,
    fill,
    rotated,
    running_stored,
    stored,
)
from benchmarks.storage.sizes import Sizes
from benchmarks.stores import HEADWATER, Kind, Store, durability
from benchmarks.workloads import FIELDS_5

SECTION: Final = "start"
KEY: Final = "bench:0"
GROUP: Final = "g"

EMPTY: Final = "process start to first PONG, empty directory"
CLEAN: Final = "start, entries all pending, clean stop (peers: RDB)"
KILLED: Final = "start after SIGKILL, journal of XADD"
KILLED_MIXED: Final = "start after SIGKILL, journal of XADD, deliver, ack"

STEP: Final = 5000
"""Entries that are added before the journal's size is looked at again."""

ACKNOWLEDGED_AT_ONCE: Final = 100


def empty(sizes: Sizes, scratch: Path) -> Iterator[Row]:
    """Yield the row of starts in an empty directory, a new one each time."""
    row = Row(SECTION, EMPTY, "s", better="less", target=Target(0.2, 0.12, by=OWN_VALUE))
    for turn in range(sizes.starts):
        for kind in rotated(available(), turn):
            directory = scratch / f"{kind.name}-{turn}"
            words = durability("everysec", peer=kind.peer is not None)
            with stored(kind, directory, *words) as server:
                row.of(kind.name).add(server.start())
                server.shut_down()
    yield row


def clean(sizes: Sizes, scratch: Path) -> Iterator[Row]:
    """Yield the row of starts after a clean stop. Headwater has its journal, the peers a snapshot."""
    row = Row(SECTION, CLEAN, "s", better="less", target=Target(0.35, 0.2))
    row.note = f"{sizes.entries:,} entries of 150 B, all pending"
    with ExitStack() as stack:
        servers = [
            stack.enter_context(
                stored(kind, scratch / kind.name, *durability(None if kind.peer else "everysec"))
            )
            for kind in available()
        ]
        for server in servers:
            server.start()
            store = server.store()
            fill(store, KEY, sizes.entries, FIELDS_5)
            store.deliver(KEY, GROUP, sizes.entries)
            store.wait_idle()
            server.shut_down(save=True)
        for turn in range(sizes.rounds):
            for server in rotated(servers, turn):
                seconds = server.start()
                check_pending(server.store(), sizes.entries)
                row.of(server.name).add(seconds, rss_mib=server.store().resident_bytes() / 2**20)
                server.shut_down()
    yield row


def killed(sizes: Sizes, scratch: Path) -> Iterator[Row]:
    """Yield the rows of starts after a SIGKILL. The peers have an append-only file of the same commands."""
    for name, write in ((KILLED, add), (KILLED_MIXED, add_and_consume)):
        row = Row(SECTION, name, "s", better="less", target=Target(0.5, 0.25))
        entries = 0
        for kind in available():
            entries = write_tail(kind, scratch / f"{kind.name}-tail", sizes, write, entries)
        for turn in range(sizes.rounds):
            for kind in rotated(available(), turn):
                # A start may replace the files, so each has its own copy of them.
                directory = scratch / f"{kind.name}-{name}-{turn}"
                copied(scratch / f"{kind.name}-tail", directory)
                words = durability("everysec", peer=kind.peer is not None)
                with stored(kind, directory, *words) as server:
                    row.of(kind.name).add(server.start())
                    check_length(server.store(), entries)
                shutil.rmtree(directory, ignore_errors=True)
        for kind in available():
            shutil.rmtree(scratch / f"{kind.name}-tail")
        row.note = f"{entries:,} entries, a journal of {sizes.tail_bytes / 2**20:.1f} MiB"
        yield row


def copied(directory: Path, copy: Path) -> None:
    """Copy a directory, with holes where nothing was written, and wait until the disk has the copy."""
    subprocess.run(["cp", "-a", "--sparse=always", str(directory), str(copy)], check=True)
    os.sync()


def write_tail(
    kind: Kind,
    directory: Path,
    sizes: Sizes,
    write: Callable[[Store, int, int], None],
    entries: int,
) -> int:
    """Write a journal and kill the server. Headwater comes first and writes as many entries as the size
    needs; the peers write the same ``entries``. Return their number."""
    with running_stored(kind, directory) as (server, store):
        if kind is HEADWATER:
            assert entries == 0, "it decides the number"
            begin = journal_bytes(store)
            while journal_bytes(store) - begin < sizes.tail_bytes:
                write(store, entries + 1, STEP)
                entries += STEP
        else:
            for first in range(1, entries, STEP):
                write(store, first, STEP)
        store.wait_idle()
        server.kill()
    return entries


def add(store: Store, first: int, count: int) -> None:
    """Add entries."""
    store.fill(KEY, count, FIELDS_5, first=first)


def add_and_consume(store: Store, first: int, count: int) -> None:
    """Add entries, deliver them, and acknowledge all of them."""
    store.fill(KEY, count, FIELDS_5, first=first)
    if first == 1:
        with store.client() as client:
            client.xgroup_create(KEY, GROUP, "0")
    reads = request(
        b"XREADGROUP", b"GROUP", GROUP.encode(), b"c", b"COUNT", b"%d" % ACKNOWLEDGED_AT_ONCE,
        b"STREAMS", KEY.encode(), b">",
    )  # fmt: skip
    store.load("times", count // ACKNOWLEDGED_AT_ONCE, 1, 1, requests=[reads])
    acknowledgements = [
        request(
            b"XACK",
            KEY.encode(),
            GROUP.encode(),
            *(b"%d-1" % number for number in range(start, start + ACKNOWLEDGED_AT_ONCE)),
        )
        for start in range(first, first + count, ACKNOWLEDGED_AT_ONCE)
    ]
    store.load("times", len(acknowledgements), 1, 10, requests=acknowledgements)


def journal_bytes(store: Store) -> int:
    """Return the size of the append-only file, as INFO shows it."""
    with store.client() as client:
        return int(client.info("persistence")["aof_current_size"])


def check_length(store: Store, entries: int) -> None:
    """Raise `Unmeasured` unless the server has loaded all entries."""
    with store.client() as client:
        found = client.xlen(KEY)
    if found != entries:
        raise Unmeasured(f"{store.name} has loaded {found:,} of {entries:,} entries")


def check_pending(store: Store, entries: int) -> None:
    """Raise `Unmeasured` unless the server has loaded all entries, and all as pending."""
    check_length(store, entries)
    with store.client() as client:
        found = int(client.xpending(KEY, GROUP)["pending"])
    if found != entries:
        raise Unmeasured(f"{store.name} has loaded {found:,} of {entries:,} pending entries")
