"""Merges an archive's small files, so that their number does not grow with the number of runs.

Each step of archiving adds a segment of level 0. When the last `FAN` segments have the same level, they become one
segment of the next level, in which the small files of each day are merged. An archive with a step each minute has
1,440 steps a day, which leave at most `FAN` - 1 segments of each of the levels 0 to 3. A finished day ends as one file
for each `FILE_BYTES`. An entry is written again once per level until its file is large, some four times in all.

Source: the tiers of log-structured merge trees, https://doi.org/10.1007/s002360050048.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, takewhile
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa

from headwater.errors import DataLoss
from headwater.spark.archive.contents import ArchiveFile, Segment, inline
from headwater.spark.archive.files import FILE_BYTES, DayWriter
from headwater.spark.archive.leftovers import remove_unfinished, replaced, unfinished
from headwater.spark.archive.manifest import Manifest
from headwater.spark.archive.row_groups import open_file

FAN: Final = 10
"""Number of segments of a level that are merged. A larger number leaves more files, a smaller one writes more."""

MOST_SEGMENTS: Final = 100
"""Maximum number of segments merged in one step, which a kill undoes. An archive of format 1 may have many."""

MOST_FILES: Final = 1000
"""Maximum number of files of a segment that is merged again, so that merging handles a limited number of names."""

_log = logging.getLogger("headwater.spark")


class MergeTask(NamedTuple):
    """Files of one day whose entries become one file."""

    directory: str
    files: tuple[ArchiveFile, ...]


class Kept(NamedTuple):
    """Result of a task whose files could not be merged and remain unchanged, with the reason."""

    why: str


Merged = list[ArchiveFile] | Kept
Run = Callable[[Sequence[MergeTask]], list[Merged]]
"""Calls `merge_files` for each task, in executors or in this process."""


def due(segments: Sequence[Segment]) -> slice | None:
    """Return the last segments of one level, schema and codec, which are merged; None if fewer than `FAN`."""
    if not segments:
        return None
    last = segments[-1]
    alike = takewhile(
        lambda one: (
            (one.level, one.schema, one.codec) == (last.level, last.schema, last.codec)
            and one.file_count <= MOST_FILES
        ),
        reversed(segments),
    )
    found = sum(1 for _one in alike)
    first = len(segments) - found
    return slice(first, first + min(found, MOST_SEGMENTS)) if found >= FAN else None


def merge(manifest: Manifest, run: Run, now_ms: int) -> int:
    """Merge the segments that are due, and return the number of replaced files. Requires the archiver's lock.

    Files that cannot be read remain unchanged, and a warning is logged.
    """
    gone = 0
    while part := due(before := manifest.segments()):
        merged = before[part]
        lists = [among for one in merged for among in one.lists]
        files = [file for among in lists for file in manifest.files(among)]
        with unfinished(manifest):
            found = _merged(files, manifest.directory, run)
            segment = merged[0]._replace(
                end=merged[-1].end, lists=inline(found), level=merged[0].level + 1
            )
            manifest.replace([*before[: part.start], segment, *before[part.stop :]])
            names = {file.name for file in files} - {file.name for file in found}
            gone += len(names)
            replaced(manifest, names | {one.name for one in lists if one.name}, now_ms)
    if gone:
        remove_unfinished(manifest)
    return gone


def _merged(files: Sequence[ArchiveFile], directory: Path, run: Run) -> list[ArchiveFile]:
    """Return the files that replace ``files``, after writing and syncing new ones."""
    groups = [*_groups(files)]
    tasks = [MergeTask(str(directory), group) for group in groups if len(group) > 1]
    results = iter(run(tasks))
    found: list[ArchiveFile] = []
    for group in groups:
        result = next(results) if len(group) > 1 else list(group)
        if isinstance(result, Kept):
            _log.warning("%d files of %s are not merged: %s", len(group), directory, result.why)
            result = list(group)
        found += result
    return found


def _groups(files: Sequence[ArchiveFile]) -> Iterator[tuple[ArchiveFile, ...]]:
    """Yield ``files`` in groups to merge, each of one day and at most `FILE_BYTES`; a large file is alone."""
    for _day, of_day in groupby(files, key=lambda file: file.day):
        group: list[ArchiveFile] = []
        size = 0
        for file in of_day:
            large = file.bytes * 2 > FILE_BYTES
            if group and (large or size + file.bytes > FILE_BYTES):
                yield tuple(group)
                group, size = [], 0
            if large:
                yield (file,)
                continue
            group.append(file)
            size += file.bytes
        if group:
            yield tuple(group)


def merge_files(task: MergeTask) -> Merged:
    """Write the entries of a task's files to a new file, in an executor."""
    directory = Path(task.directory)
    try:
        with open_file(directory, task.files[0]) as first:
            schema = first.schema_arrow
        with DayWriter(directory, schema) as writer:
            for file in task.files:
                with open_file(directory, file) as parquet:
                    for number, group in enumerate(file.groups):
                        table = parquet.read_row_group(number, use_threads=False)
                        writer.add(file.day, table.to_batches(), group.bad, group.plain)
    except (DataLoss, OSError, pa.ArrowException) as error:
        return Kept(str(error))
    wanted, found = (sum(one.entries for one in files) for files in (task.files, writer.files))
    if wanted != found:
        for file in writer.files:
            (directory / file.name).unlink()
        return Kept(f"they contain {found:,} entries, but the manifest says {wanted:,}")
    return writer.files
