"""Splits a batch into tasks, each with runs and single entries of one stream."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql.datasource import InputPartition

from headwater.model import StreamID
from headwater.spark.group_mode.offsets import EntryRun, Portion

ENTRIES_WORTH_A_TASK: Final = 10_000
"""With fewer entries, starting a task (some 10 ms) takes longer than reading them."""

Single = tuple[StreamID, int]


@dataclass(frozen=True)
class Listed(InputPartition):
    """The entries that one task reads; if some are missing, reading reports it."""

    stream: str
    runs: tuple[EntryRun, ...]
    singles: tuple[Single, ...]
    """Ids with their delivery counts."""


def cut_up(portions: Mapping[str, Portion], min_partitions: int | None) -> list[Listed]:
    """Return the tasks of a batch. Runs are not split, because the ids inside them are not known.

    Without ``min_partitions`` there are enough tasks to use all cores of the machine, but no needlessly
    small ones.
    """
    total = sum(portion.entries for portion in portions.values())
    if not total:
        return []
    asked = min_partitions or min(os.cpu_count() or 1, -(-total // ENTRIES_WORTH_A_TASK))
    size = -(-total // asked)
    return [task for stream, portion in portions.items() for task in _tasks(stream, portion, size)]


def _tasks(stream: str, portion: Portion, size: int) -> Iterator[Listed]:
    runs: list[EntryRun] = []
    singles: list[Single] = []
    entries = 0
    parts: list[EntryRun | Single] = [*portion.singles.items(), *portion.runs]
    for part in parts:
        weight = part.count if isinstance(part, EntryRun) else 1
        if entries and entries + weight > size:
            yield Listed(stream, tuple(runs), tuple(singles))
            runs, singles, entries = [], [], 0
        if isinstance(part, EntryRun):
            runs.append(part)
        else:
            singles.append(part)
        entries += weight
    if entries:
        yield Listed(stream, tuple(runs), tuple(singles))
