"""``make bench-storage``: what storage costs, in the same run on Headwater, Redis 8.2.3 and Valkey 9.1.2.

    empty       process start to first PONG, empty directory
    clean       start with all entries pending after a clean stop; the peers have a snapshot
    killed      start after SIGKILL with a journal of 64 MB; the peers have a file of the same commands
    scaled      start and memory with 2M entries on disk and stream-hot-bytes scaled; reported only
    huge        the same with 100M entries and default settings; an hour, only with --only huge
    replay      replaying against executing in process: XADD, deliver and ack, XDEL
    checkpoint  writers while a checkpoint or Redis's rewrite runs on the other core
    append      appends to a stream 20 times stream-hot-bytes
    cold        XRANGE walking cold data, page cache cold and warm
    anywhere    XRANGE anywhere in 10M entries, against 10,000
    disk        bytes on disk per entry after a checkpoint; the peers' snapshot
    trimmed     files after minutes of XADD MAXLEN ~ 10000; --minutes 60 is the required hour

Prints a table and writes JSON: a complete run to benchmarks/results/storage/, a part of one, or one with other
sizes, to artifacts/bench-storage.json. Exits with 1 if a row misses its required value or cannot be measured,
and says which, with its figures or the reason.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.parts import Benchmark, Part
from benchmarks.storage import anywhere, cold, disk, huge, replays, starts, writers
from benchmarks.storage.page import DIRECTORY
from benchmarks.storage.sizes import Sizes

PART: Final = Path("artifacts", "bench-storage.json")


PARTS: Final[dict[str, Part]] = {
    "empty": Part(starts.empty, (starts.EMPTY,)),
    "clean": Part(starts.clean, (starts.CLEAN,)),
    "killed": Part(starts.killed, (starts.KILLED, starts.KILLED_MIXED)),
    "scaled": Part(huge.scaled, (huge.SCALED, huge.SCALED_MEMORY)),
    "huge": Part(huge.huge, (huge.HUGE, huge.HUGE_MEMORY)),
    "replay": Part(replays.replays, tuple(replays.NAMES.values())),
    "checkpoint": Part(writers.writers, (writers.RATE, writers.P99)),
    "append": Part(cold.append, (cold.APPEND,)),
    "cold": Part(cold.reads, (cold.READ_COLD, cold.READ_WARM)),
    "anywhere": Part(anywhere.anywhere, (anywhere.SUBJECT.name,)),
    "disk": Part(disk.entry_bytes, (disk.BYTES,)),
    "trimmed": Part(disk.trimmed, (disk.TRIMMED,)),
}
BENCHMARK: Final = Benchmark(
    "make bench-storage", __doc__ or "", PARTS, on_request=("huge",), directory=DIRECTORY, part=PART
)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = BENCHMARK.parser()
    made.add_argument(
        "--minutes", type=float, default=Sizes().minutes, help="of the row trimmed (default 2)"
    )
    return made


def main(words: Sequence[str] | None = None) -> int:
    """Measure, print, write. Returns 1 if a row failed, 2 if a peer is missing."""
    return BENCHMARK.run(parser().parse_args(words))


if __name__ == "__main__":
    sys.exit(main())
