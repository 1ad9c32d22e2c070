"""The report's first lines: what the run showed, and on which machine."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from headwater.demo.evidence import OwnedEntries
from headwater.demo.producer import Published


def shown(
    published: Published, *, workers: int, stopped: OwnedEntries, killed: OwnedEntries
) -> list[str]:
    """Return what the run did, in sentences."""
    return [
        (
            f"A producer published {published.flights:,} flights, {published.corrupted.total():,} of them "
            f"corrupted on purpose; {workers} workers enriched them."
        ),
        f"One worker was stopped with SIGTERM and handed back {len(stopped.entries):,} entries.",
        (
            f"Another one was killed with SIGKILL while it owned {len(killed.entries):,} entries, "
            "which the others claimed."
        ),
        "Then Spark wrote tables, and everything was counted again.",
    ]


def machine() -> str:
    """Return processor, memory and operating system in one line."""
    processors = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{_processor()}, {processors} processors, {memory:.0f} GiB, "
        f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
