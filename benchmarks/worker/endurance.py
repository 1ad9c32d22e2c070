"""A worker's memory over a million messages, and the time until another worker has handled a killed one's entries."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.machine import ROOT
from benchmarks.rows import OURS, OWN_VALUE, REDIS, TIMES, Row, Target
from benchmarks.selection import Selection
from benchmarks.stores import HEADWATER, WITH_REDIS, Store, cores, on_cores
from benchmarks.stores import measured as running
from benchmarks.worker.raw import fill
from benchmarks.worker.subjects import Failed, url
from benchmarks.worker.tally import GROUP, STREAM
from headwater.messages.keys import RESERVED_PREFIX

SECTION: Final = "worker endurance"

PARTS: Final = 10
"""The messages are handled in this many parts. Memory is read after each; the first is the warm-up."""

IN_FLIGHT: Final = 1_000
"""The number of entries in flight in the worker that is killed."""

TIMEOUT_SECONDS: Final = 60.0
"""How long `until` waits."""


@contextmanager
def worker(store: Store, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run `worker_process` on the client's core inside the block. Kills it with SIGKILL at the end."""
    command = [sys.executable, "-m", "benchmarks.worker.worker_process", url(store), *words]
    with on_cores({cores()[1]}):
        process = subprocess.Popen(command, cwd=ROOT)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait()


def until(condition: Callable[[], object], what: str) -> None:
    """Poll every millisecond until ``condition()`` is true. Raises `Failed` after `TIMEOUT_SECONDS`."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise Failed(f"not reached within {TIMEOUT_SECONDS:.0f} seconds: {what}")
        time.sleep(0.001)


def _group(store: Store) -> dict[str, Any]:
    """Return the group's row of XINFO GROUPS; without pending entries and with no known lag before it exists."""
    with store.client() as client:
        groups: Any = client.xinfo_groups(STREAM)
    return dict(groups[0]) if groups else {"pending": 0, "lag": None}


def _resident_bytes(pid: int) -> int:
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def rows(selection: Selection, messages: int) -> Iterator[Row]:
    """Yield a row for each of the two subjects on each store."""
    with running(WITH_REDIS) as stores:
        for store in stores:
            name = f"memory over {messages:,} messages on {store.name}"
            if selection.wants(name):
                yield _memory(store, name, messages)
        for store in stores:
            name = f"recovery of {IN_FLIGHT:,} entries on {store.name}"
            if selection.wants(name):
                yield _recovery(selection, store, name)


def _memory(store: Store, name: str, messages: int) -> Row:
    """Measure the worker's resident memory after the last part, divided by that after the first."""
    row = Row(SECTION, name, TIMES, better="less", target=Target(1.1, 1.02, by=OWN_VALUE))
    store.empty()
    part = messages // PARTS
    fill(url(store), part)
    sizes = []
    with worker(store, "count") as process:
        for number in range(PARTS):
            until(
                lambda: _group(store)["lag"] == 0 and not _group(store)["pending"],
                "the worker has settled all messages",
            )
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
        fill(url(store), IN_FLIGHT)
        with worker(store, "hang") as first:
            until(
                lambda: _group(store)["pending"] == IN_FLIGHT, "the first worker owns all entries"
            )
            with worker(store, "count"):
                until(lambda: _consumers(store) > 1, "the second worker has joined")
                # Let the second worker finish its start. The first one renews its leases until it is killed, so
                # they expire at most 1 s after that.
                time.sleep(0.5)
                first.send_signal(signal.SIGKILL)
                began = time.monotonic()
                until(
                    lambda: not _group(store)["pending"],
                    "the second worker has settled all entries",
                )
                row.of(OURS).add(time.monotonic() - began)
    return row


def _consumers(store: Store) -> int:
    """Return the number of workers that have joined the group; Headwater's reserved consumers do not count."""
    with store.client() as client:
        named = [consumer["name"] for consumer in client.xinfo_consumers(STREAM, GROUP)]
    return len([name for name in named if not name.startswith(RESERVED_PREFIX.encode())])
