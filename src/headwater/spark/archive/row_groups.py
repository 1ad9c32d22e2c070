"""Locates and reads row groups of archived files.

A file counts as damaged if its size differs from the manifest's, or the checksum of a page is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.errors import DataLoss
from headwater.spark.archive.contents import ArchiveFile, RowGroup, Segment
from headwater.spark.archive.manifest import FileMissing


class Place(NamedTuple):
    """The location and contents of one row group."""

    segment: Segment
    file: ArchiveFile
    number: int
    group: RowGroup


def ids_of(directory: Path, place: Place) -> pa.Array:
    """Return the ids of a row group as strings."""
    read = rows_of(directory, place, ["id"], place.group.entries, 0, place.group.entries)
    return pa.concat_arrays([batch.column("id") for batch in read])


def rows_of(
    directory: Path, place: Place, names: list[str], size: int, start: int, stop: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows from ``start`` to before ``stop`` of a row group, with the columns ``names``."""
    if start >= stop:
        return
    path = directory / place.file.name
    with open_file(directory, place.file) as file:
        batches = file.iter_batches(
            batch_size=size, row_groups=[place.number], columns=names, use_threads=False
        )
        seen = 0
        while True:
            try:
                batch = next(batches, None)
            except (OSError, pa.ArrowException) as error:
                raise _damaged(path, str(error)) from error
            if batch is None:
                break
            low, high = max(start - seen, 0), min(stop - seen, batch.num_rows)
            seen += batch.num_rows
            if low < high:
                yield batch if high - low == batch.num_rows else batch.slice(low, high - low)
            if seen >= stop:
                return
    if seen < stop:
        raise _damaged(path, f"a row group has {seen} entries, not {place.group.entries}")


def open_file(directory: Path, file: ArchiveFile) -> pq.ParquetFile:
    """Open a file of the archive in ``directory``. Raises `DataLoss` if it is missing or damaged."""
    path = directory / file.name
    try:
        size = path.stat().st_size
        if size != file.bytes:
            raise _damaged(path, f"it has {size:,} bytes, but the manifest says {file.bytes:,}")
        return pq.ParquetFile(path, memory_map=True, page_checksum_verification=True)
    except FileNotFoundError:
        raise FileMissing(
            f"the archive's file {path} is missing, with {file.entries:,} entries that may not exist "
            "anywhere else. Restore it from a copy, or mount the directory on this executor too; "
            "with failOnDataLoss=false reading continues without them."
        ) from None
    except (OSError, pa.ArrowException) as error:
        raise _damaged(path, str(error)) from error


def _damaged(path: Any, why: str) -> DataLoss:
    return DataLoss(
        f"the archive's file {path} is damaged: {why}. Restore it from a copy; with "
        "failOnDataLoss=false reading continues without what cannot be read."
    )
