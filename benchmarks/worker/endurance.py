"""Memory over a million messages, and the time until another worker has handled a killed worker's entries."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.machine import ROOT
from benchmarks.rows import OURS, OWN_VALUE, Row, Target
from benchmarks.selection import Selection
from benchmarks.stores import HEADWATER, REDIS, WITH_REDIS, Store, cores, on_cores
from benchmarks.stores import measured as running
from benchmarks.worker.raw import fill
from benchmarks.worker.subjects import Failed, url
from benchmarks.worker.tally import GROUP, STREAM
from headwater.messages import RESERVED_PREFIX

SECTION: Final = "worker endurance"

PARTS: Final = 10
"""The messages are handled in this many parts. Memory is read after each; the first is the warm-up."""

LEFT: Final = 1_000
"""The number of entries in flight in the worker that is killed."""

PATIENCE_SECONDS: Final = 60.0


@contextmanager
def worker(store: Store, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process of `lasting` on the client's core inside the block."""
    command = [sys.executable, "-m", "benchmarks.worker.lasting", url(store), *words]
    with on_cores({cores()[1]}):
        process = subprocess.Popen(command, cwd=ROOT)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait()


def until(condition: Any, what: str) -> None:
    """Poll every millisecond until ``condition()`` is true. Raises `Failed` after `PATIENCE_SECONDS`."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise Failed(f"not reached within {PATIENCE_SECONDS:.0f} seconds: {what}")
        time.sleep(0.001)


def _group(store: Store) -> dict[str, Any]:
    with store.client() as client:
        groups: Any = client.xinfo_groups(STREAM)
    return dict(groups[0]) if groups else {"pending": 0, "lag": None}


def _resident_bytes(pid: int) -> int:
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def rows(selection: Selection, messages: int) -> Iterator[Row]:
    """Yield both subjects on both stores."""
    with running(WITH_REDIS) as stores:
        for store in stores:
            name = f"memory over {messages:,} messages on {store.name}"
            if selection.wants(name):
                yield _memory(store, name, messages)
        for store in stores:
            name = f"recovery of {LEFT:,} entries on {store.name}"
            if selection.wants(name):
                yield _recovery(selection, store, name)


def _memory(store: Store, name: str, messages: int) -> Row:
    """Measure the worker's memory after the last part divided by that after the first."""
    row = Row(SECTION, name, "x", better="less", target=Target(1.1, 1.02, by=OWN_VALUE))
    store.empty()
    part = messages // PARTS
    fill(url(store), part)
    sizes = []
    with worker(store, "count") as process:
        for number in range(PARTS):
            until(lambda: _group(store)["lag"] == 0 and not _group(store)["pending"], "all is done")
            sizes.append(_resident_bytes(process.pid))
            if number < PARTS - 1:
                fill(url(store), part, first=part * (number + 1))
    row.of(OURS).add(sizes[-1] / sizes[0])
    row.note = f"{sizes[0] / 2**20:.1f} MiB after {part:,}, {sizes[-1] / 2**20:.1f} MiB at the end"
    return row


def _recovery(selection: Selection, store: Store, name: str) -> Row:
    """Measure the time from a SIGKILL until another worker has handled everything, with claim_after 1 s."""
    # On other servers a claim may come one claim interval (50 ms) later.
    target = (
        Target(1.05, 1.0, by=OWN_VALUE)
        if store.name == HEADWATER.name
        else Target(1.1, 1.05, by=OWN_VALUE)
    )
    row = Row(SECTION, name, "s", better="less", against=REDIS, target=target)
    for _ in range(selection.rounds):
        store.empty()
        fill(url(store), LEFT)
        with worker(store, "hang") as first:
            until(lambda: _group(store)["pending"] == LEFT, "the first worker owns everything")
            with worker(store, "count") as _second:
                until(lambda: _consumers(store) > 1, "the second worker has joined")
                # The first worker renews its leases until it is killed; they expire 1 s later.
                time.sleep(0.5)
                first.send_signal(signal.SIGKILL)
                began = time.monotonic()
                until(lambda: not _group(store)["pending"], "the second worker has settled all")
                row.of(OURS).add(time.monotonic() - began)
    return row


def _consumers(store: Store) -> int:
    with store.client() as client:
        named = [consumer["name"] for consumer in client.xinfo_consumers(STREAM, GROUP)]
    return len([name for name in named if not name.startswith(RESERVED_PREFIX.encode())])
