"""Small streams share tasks and record batches, and each entry is read once."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pyarrow as pa
import pytest

from headwater.spark.core.options import SourceOptions
from headwater.spark.core.tasks import Division
from headwater.spark.decoding.merging import ENOUGH_BYTES, ENOUGH_ROWS, merged


def options(**given: int | None) -> SourceOptions:
    return SourceOptions("redis://localhost", ("s",), **given)  # type: ignore[arg-type]


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
    division = Division.of(sum(part.count for part in parts), options(max_entries_per_partition=25))
    groups = list(division.packed(parts))

    # Then each is in one task, in order, and no task has too much unless it is one part
    most = division.entries
    assert [part for group in groups for part in group] == parts
    assert all(sum(part.count for part in group) <= most or len(group) == 1 for group in groups)
    # And no part would fit into the task before it
    sizes = [sum(part.count for part in group) for group in groups]
    firsts = [group[0].count for group in groups]
    assert all(size + first > most for size, first in zip(sizes, firsts[1:], strict=False))


@pytest.mark.parametrize("least", [1, 3, 7, 200])
@pytest.mark.parametrize("counts", [[10], [300], [1, 1, 1, 1], [6] * 50, [1000, 1, 1, 500]])
def test_there_are_at_least_as_many_tasks_as_the_option_says(least: int, counts: list[int]) -> None:
    # Given streams that are cut into parts
    division = Division.of(sum(counts), options(min_partitions=least))
    parts: list[Part] = []
    for count in counts:
        number = division.parts(count)
        size, larger = divmod(count, number)
        parts += [Part(len(parts), size + (at < larger)) for at in range(number)]

    # When they are packed
    groups = list(division.packed(parts))

    # Then there are as many tasks, if there are as many entries, and not twice as many
    assert min(least, sum(counts)) <= len(groups) <= 2 * least + len(counts)
    assert sum(part.count for group in groups for part in group) == sum(counts)


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
    asked = options(min_partitions=least, max_entries_per_partition=most)
    assert Division.of(total, asked).entries == entries


@pytest.mark.parametrize(
    ("total", "cores", "tasks"),
    [(1_000_000, 64, 64), (1_000_000, 3, 3), (50_000, 64, 5), (9, 8, 1)],
)
def test_a_large_batch_has_as_many_tasks_as_spark_runs_at_once(
    *, total: int, cores: int, tasks: int
) -> None:
    assert Division.of(total, options(parallelism=cores)).tasks == tasks


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
