"""How much of a batch one task reads.

Rule 1. Work is divided by entries, whatever stream they are of: a task reads parts of a large stream, or many
        small streams. Starting a task takes longer than reading some thousand entries.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Final, Protocol, TypeVar

_ENTRIES_WORTH_A_TASK: Final = 10_000
"""With fewer entries, starting a task (some 10 ms) takes longer than reading them."""


class Counted(Protocol):
    """Something that a task reads as a whole."""

    @property
    def count(self) -> int:
        """The number of its entries."""
        ...


C = TypeVar("C", bound=Counted)


def task_entries(total: int, *, least_tasks: int | None, most_entries: int | None) -> int:
    """Return how many entries each task of a batch of ``total`` entries should read, at least 1.

    Without ``least_tasks`` there are enough tasks to use all cores, but no needlessly small ones.

    >>> task_entries(5000, least_tasks=None, most_entries=None)
    5000
    >>> task_entries(5000, least_tasks=3, most_entries=None)
    1667
    >>> task_entries(5000, least_tasks=3, most_entries=1000)
    1000
    """
    tasks = least_tasks or min(os.cpu_count() or 1, -(-total // _ENTRIES_WORTH_A_TASK))
    entries = -(-total // max(1, tasks))
    return max(1, entries if most_entries is None else min(entries, most_entries))


def packed(parts: Iterable[C], entries: int) -> Iterator[list[C]]:
    """Yield the parts in their order, in groups of at most ``entries`` entries. A larger part is a group of its
    own.

    >>> from collections import namedtuple
    >>> Part = namedtuple("Part", "count")
    >>> [[part.count for part in group] for group in packed(map(Part, [3, 2, 4, 9, 1]), 5)]
    [[3, 2], [4], [9], [1]]
    """
    group: list[C] = []
    held = 0
    for part in parts:
        if group and held + part.count > entries:
            yield group
            group, held = [], 0
        group.append(part)
        held += part.count
    if group:
        yield group
