"""Splits a batch into tasks, each with runs and single entries of one or more streams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from headwater.common.model import StreamID
from headwater.spark.core.options import SourceOptions
from headwater.spark.core.tasks import Division
from headwater.spark.group_mode.offsets import EntryRun, Portion

Single = tuple[StreamID, int]


@dataclass(frozen=True)
class Listed:
    """Entries of a stream. A reader that does not find all of them reports it."""

    stream: str
    runs: tuple[EntryRun, ...]
    singles: tuple[Single, ...]
    """Ids with their delivery counts."""

    @property
    def count(self) -> int:
        """The number of entries."""
        return sum(run.count for run in self.runs) + len(self.singles)


@dataclass(frozen=True)
class ListedTask(InputPartition):
    """The parts that one task reads, one after another."""

    parts: tuple[Listed, ...]


def tasks_of(portions: Mapping[str, Portion], options: SourceOptions) -> list[InputPartition]:
    """Return the tasks of a batch. Runs are not split, because the ids inside a run are unknown."""
    division = Division.of(sum(portion.entries for portion in portions.values()), options)
    parts = [
        part
        for stream, portion in portions.items()
        for part in _parts(stream, portion, division.entries)
    ]
    return [ListedTask(tuple(group)) for group in division.packed(parts)]


def _parts(stream: str, portion: Portion, size: int) -> Iterator[Listed]:
    """Yield the entries of a stream in parts of at most ``size``, or of one larger run."""
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
