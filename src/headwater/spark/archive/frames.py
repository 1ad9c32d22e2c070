"""Combines archive and stream in one frame; Spark itself reads the archived part where it can.

    frame = parquet(files that hold the requested columns)       Spark's vectorized reader
            UNION the source, for each remaining range of ids    archive/reading.py

Spark's reader passes no rows through Python, reads only the columns that a query uses, and applies filters
to row groups. The source reads entries that need its decoder, those at the edges of the range, and all
entries after the archive's end at the time when the frame was made.

Rule 1. The parts are ranges of ids that neither overlap nor leave gaps. Entries that are archived and
        trimmed later are in the range after the archive's end, where the source finds them in either place.
Rule 2. A file that is missing or has another size is left to the source, which reports it. A file with changed
        bytes makes Spark fail, even if its session ignores corrupt files.
Rule 3. Spark reads only flat columns. Filters on float and double are applied to rows, not to files, because a
        file's statistics ignore NaN, and treat -0.0 and 0.0 as different.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from headwater.common.model import MAX_ID, MIN_ID, IDRange
from headwater.spark.archive.contents import ArchiveFile, Segment
from headwater.spark.archive.manifest import Manifest
from headwater.spark.archive.reading import needs_no_decoder, types_of
from headwater.spark.archive.store import ArchiveStore
from headwater.spark.core.options import PLACES, SourceOptions, parse_options
from headwater.spark.core.positions import after, before
from headwater.spark.decoding.columns import PLAIN, RowShape

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructField, StructType

_log = logging.getLogger("headwater.spark")

MOST_FILES: Final = 1000
LEAST_ENTRIES_A_FILE: Final = 50_000
"""Minimum mean number of entries per file for Spark to read the files. Spark needs 5 ms to list a file, which the
source does not need, and saves 0.2 s per million entries."""

MOST_RANGES: Final = 4
"""Maximum number of ranges, because each is a separate read of the source, with a Python process that plans it."""

_READING: Final = {
    "datetimeRebaseMode": "CORRECTED",  # dates are read unchanged
    "parquet.page.verify-checksum.enabled": "true",
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
}

_KINDS: Final = {"value", "stream", "id", "timestamp", "rescued"}
_STORED: Final = ("id", "timestamp", "fields")
_GLOB: Final = set("*?[]{}\\,")


class _Parts(NamedTuple):
    """One stream: the files that Spark reads, and the ranges that the source reads. ``entries`` and ``bad`` are
    the numbers of entries and of bad entries in the files."""

    stream: str
    files: list[Path]
    ranges: list[IDRange]
    entries: int
    bad: int


def archived_frame(
    spark: SparkSession, texts: Mapping[str, str], schema: str | StructType
) -> DataFrame | None:
    """Return the frame for the options ``texts``; None if the source should read all entries.

    Raises `DataLoss` for a damaged manifest and for a stream that ends before its archive, and
    `DeclarationError` for another stream's manifest or for invalid options.
    """
    from pyspark.sql.types import StructType

    options = parse_options(texts)
    columns = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    if not isinstance(columns, StructType):
        return None  # a single type without a name, which Spark refuses
    shape = RowShape.of(columns, options)
    if not _may(options, shape):
        return None
    with closing(ArchiveStore(options)) as store:
        parts = [_parts(options, shape, store.manifest(stream)) for stream in options.streams]
        if not _pays(parts):
            return None
        for part in parts:
            store.state(part.stream)  # raises DataLoss; a source whose range has an end may not
            if part.bad:
                _log.warning(
                    "archived entries of %r that did not fit the schema: %d.", part.stream, part.bad
                )
    frames = [frame for part in parts for frame in _frames(spark, part, texts, columns)]
    return reduce(lambda one, other: one.union(other), frames)


def _may(options: SourceOptions, shape: RowShape) -> bool:
    """Return whether the options allow Spark to read files, regardless of their contents."""
    names = {column.name.lower() for column in shape.columns}
    archive = str(Path(options.archive or "").absolute())
    return (
        options.archive is not None
        and len(names) == len(shape.columns)
        and options.pattern is None
        and options.fail_on_data_loss
        and options.min_partitions is None
        and options.max_entries_per_partition is None
        and "latest" not in {options.start_of(stream) for stream in options.streams}
        and all(column.kind in _KINDS and column.nullable for column in shape.columns)
        and all(isinstance(column.type, PLAIN) for column in shape.columns)
        and archive.isascii()  # the JVM's encoding may not support other paths
        and not _GLOB & set(archive)
    )


def _pays(parts: list[_Parts]) -> bool:
    files, entries = sum(len(part.files) for part in parts), sum(part.entries for part in parts)
    return (
        0 < files <= MOST_FILES
        and entries >= files * LEAST_ENTRIES_A_FILE
        and sum(len(part.ranges) for part in parts) <= MOST_RANGES
    )


def _parts(options: SourceOptions, shape: RowShape, manifest: Manifest) -> _Parts:
    """Return the files that Spark reads, and the ranges before, between and after them."""
    stream = manifest.stream
    start, end = options.start_of(stream), options.end_of(stream)
    wanted = IDRange(
        MIN_ID if isinstance(start, str) else start, MAX_ID if isinstance(end, str) else end
    )
    files, ranges, entries, bad = list[Path](), list[IDRange](), 0, 0
    begin, left = wanted.start, False
    for segment, file in _files_within(manifest, wanted):
        ids = IDRange(file.groups[0].first, file.groups[-1].last)
        path = manifest.directory / file.name
        inside = wanted.start <= ids.start and ids.end <= min(wanted.end, before(MAX_ID))
        if not (inside and _is_direct(shape, segment, file) and _is_whole(path, file)):
            left = True
            continue
        if left:
            ranges.append(IDRange(begin, before(ids.start)))
        files.append(path)
        begin, left = after(ids.end), False
        entries += file.entries
        bad += sum(group.bad for group in file.groups)
    if begin <= wanted.end:
        ranges.append(IDRange(begin, wanted.end))
    return _Parts(stream, files, ranges, entries, bad)


def _files_within(manifest: Manifest, ids: IDRange) -> Iterator[tuple[Segment, ArchiveFile]]:
    for segment, among in ((one, among) for one in manifest.segments() for among in one.lists):
        if among.first > ids.end or among.last < ids.start:
            continue
        for file in manifest.files(among):
            if file.groups[0].first <= ids.end and file.groups[-1].last >= ids.start:
                yield segment, file


def _is_direct(shape: RowShape, segment: Segment, file: ArchiveFile) -> bool:
    names = [*types_of(segment), *_STORED]
    # Spark looks columns up without regard to case.
    return len({name.lower() for name in names}) == len(names) and all(
        needs_no_decoder(shape, segment, group) for group in file.groups
    )


def _is_whole(path: Path, file: ArchiveFile) -> bool:
    try:
        return path.stat().st_size == file.bytes
    except OSError:
        return False


def _frames(
    spark: SparkSession, part: _Parts, texts: Mapping[str, str], schema: StructType
) -> Iterator[DataFrame]:
    if part.files:
        yield _direct(spark, part, schema)
    given = {name: text for name, text in texts.items() if name not in PLACES}
    given["stream"] = json.dumps([part.stream])  # a comma or a star is part of the name here
    for ids in part.ranges:
        place = {"startingId": str(ids.start)}
        if ids.end != MAX_ID:
            place["endingId"] = str(ids.end)
        yield spark.read.format("headwater").options(**given, **place).schema(schema).load()


def _direct(spark: SparkSession, part: _Parts, schema: StructType) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812 - the name in Spark's documentation
    from pyspark.sql.types import StructType

    def column(field: StructField) -> Column:
        found = made.get(field.name)
        if found is None:
            found = F.col(f"`{field.name.replace('`', '``')}`")
        if field.dataType.typeName() in {"float", "double"}:
            # The same value, but filters on it are not pushed down to the files.
            found = F.nanvl(found, F.lit(float("nan")).cast(field.dataType))
        return found.alias(field.name)

    made = {"stream": F.lit(part.stream), "_rescued": F.lit(None).cast("string")}
    stored = StructType([field for field in schema.fields if field.name not in made])
    reader = spark.read.schema(stored).options(**_READING)
    frame = reader.parquet(*(f"file://{path.absolute()}" for path in part.files))
    return frame.select(*map(column, schema.fields))
