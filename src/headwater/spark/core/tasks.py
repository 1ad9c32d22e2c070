"""Divides a batch into tasks.

Work is divided by entries, not by streams: a task reads a part of a large stream, or many small streams.
Starting a task takes longer than reading some thousand entries.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

from headwater.spark.core.options import SourceOptions

_ENTRIES_WORTH_A_TASK: Final = 10_000
"""Number of entries that are worth a task: starting a task takes some 10 ms, longer than reading fewer entries."""


class Counted(Protocol):
    """A part of a batch that one task reads as a whole."""

    @property
    def count(self) -> int:
        """The number of entries in the part."""
        ...


C = TypeVar("C", bound=Counted)


class Division(NamedTuple):
    """The division of a batch of ``total`` entries into about ``tasks`` tasks (if ``exact``, at least that many), each
    of about ``entries`` entries."""

    total: int
    tasks: int
    entries: int
    exact: bool

    @classmethod
    def of(cls, total: int, options: SourceOptions) -> Division:
        """Return the division that the options request. Without ``minPartitions``, there are enough tasks for all
        cores, but none that is needlessly small.

        >>> options = SourceOptions("redis://localhost", min_partitions=3, max_entries_per_partition=1000)
        >>> Division.of(5000, options)
        Division(total=5000, tasks=5, entries=1000, exact=True)
        """
        least_tasks, most_entries = options.min_partitions, options.max_entries_per_partition
        cores = options.parallelism or os.cpu_count() or 1
        tasks = least_tasks or min(cores, -(-total // _ENTRIES_WORTH_A_TASK))
        if most_entries is not None:
            tasks = max(tasks, -(-total // most_entries))
        tasks = max(1, tasks)
        entries = max(1, -(-total // tasks))
        if most_entries is not None:
            entries = min(entries, most_entries)
        return cls(total, tasks, entries, exact=least_tasks is not None)

    def parts(self, entries: int) -> int:
        """Return the number of parts for a range of ``entries``, so that no part exceeds `Division.entries`.

        >>> division = Division.of(300, SourceOptions("redis://localhost", min_partitions=200))
        >>> division.parts(300), division.parts(3)
        (200, 2)
        """
        share = -(-self.tasks * entries // max(1, self.total))
        return max(1, min(entries, max(share, -(-entries // self.entries))))

    def packed(self, parts: Sequence[C]) -> Iterator[list[C]]:
        """Yield the parts in their order, in groups of at most `entries` entries. A larger part is a group alone.
        If the division is exact and has at least `tasks` parts, there are at least `tasks` groups.

        >>> from collections import namedtuple
        >>> Part = namedtuple("Part", "count")
        >>> division = Division.of(19, SourceOptions("redis://localhost", max_entries_per_partition=5))
        >>> [[part.count for part in group] for group in division.packed([Part(n) for n in (3, 2, 4, 9, 1)])]
        [[3, 2], [4], [9], [1]]
        """
        group: list[C] = []
        held = done = 0
        for place, part in enumerate(parts):
            rest, wanted = len(parts) - place, self.tasks - done - 1
            alone = self.exact and rest <= wanted
            if group and (alone or held + part.count > self.entries):
                yield group
                group, held, done = [], 0, done + 1
            group.append(part)
            held += part.count
        if group:
            yield group
