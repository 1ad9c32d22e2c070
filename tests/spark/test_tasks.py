"""Small streams share tasks and record batches, and each entry is read once."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pyarrow as pa
import pytest

from headwater.spark.core.tasks import packed, task_entries
from headwater.spark.decoding.merging import ENOUGH_BYTES, ENOUGH_ROWS, merged


@dataclass(frozen=True)
class Part:
    """A range of entries."""

    number: int
    count: int


@pytest.mark.parametrize("seed", range(20))
def test_parts_are_packed_in_order_and_none_is_lost(seed: int) -> None:
    # Given parts of many sizes
    chance = random.Random(seed)
    parts = [Part(number, chance.randrange(1, 30)) for number in range(chance.randrange(200))]

    # When they are packed into tasks
    groups = list(packed(parts, 25))

    # Then each is in one task, in order, and no task has too much unless it is one part
    assert [part for group in groups for part in group] == parts
    assert all(sum(part.count for part in group) <= 25 or len(group) == 1 for group in groups)
    # And no two neighbours would fit into one
    sizes = [sum(part.count for part in group) for group in groups]
    firsts = [group[0].count for group in groups]
    assert all(size + first > 25 for size, first in zip(sizes, firsts[1:], strict=False))


@pytest.mark.parametrize(
    ("total", "least", "most", "entries"),
    [
        (0, None, None, 1),
        (1000, 4, None, 250),
        (1001, 4, None, 251),
        (1000, 4, 100, 100),
        (7, 9, 5, 1),
    ],
)
def test_the_size_of_a_task_follows_from_the_options(
    *, total: int, least: int | None, most: int | None, entries: int
) -> None:
    assert task_entries(total, least_tasks=least, most_entries=most) == entries


def test_small_batches_are_merged_and_large_ones_are_not_held() -> None:
    # Given batches of many sizes, in rows and in bytes
    sizes = [1, 500, 0, 3000, 2, 2]
    rows = iter(range(10_000))
    batches = [
        pa.RecordBatch.from_pydict({"n": pa.array([next(rows) for _ in range(size)], pa.int64())})
        for size in sizes
    ]

    # When they are merged
    found = list(merged(batches))

    # Then the rows and their order are the same
    assert [n for batch in found for n in batch.column("n").to_pylist()] == list(range(sum(sizes)))
    assert [batch.num_rows for batch in found] == [3501, 4]


def test_batches_with_many_bytes_are_not_merged_into_larger_ones() -> None:
    wide = pa.RecordBatch.from_pydict({"text": ["x" * (ENOUGH_BYTES // 2 + 1)]})

    assert [batch.num_rows for batch in merged([wide] * 5)] == [2, 2, 1]
    assert ENOUGH_ROWS > 5
