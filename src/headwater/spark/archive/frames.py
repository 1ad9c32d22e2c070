"""Archive and stream as one frame, of which Spark itself reads the archived part where it can.

    frame = parquet(files that hold the columns as they are asked for)   Spark's vectorized reader
            UNION the source, for each range of ids that is left         archive/reading.py

Spark's reader passes no row through Python, reads only the columns that a query uses, and takes its
filters down to the row groups. The source reads what needs its decoder, what lies on the edge of the
range, and all that comes after the archive as it was when the frame was made.

Rule 1. The parts are ranges of ids that do not meet and leave nothing out. What is archived and trimmed
        later is in the range after the archive's end: the source finds it on either side of the seam.
Rule 2. A file that is missing or has another size is the source's to judge; one whose bytes changed is
        an error of Spark's, whatever its session says of corrupt files.
Rule 3. Only flat columns are handed on. Filters on float and double stay with Spark's rows: a file's
        statistics know nothing of NaN, and take -0.0 for another number than 0.0.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from headwater.model import MAX_ID, MIN_ID, IDRange
from headwater.spark.archive.manifest import ArchiveFile, Manifest, Segment
from headwater.spark.archive.reading import as_asked, types_of
from headwater.spark.archive.store import ArchiveStore
from headwater.spark.core.ids import after, before
from headwater.spark.core.options import PLACES, SourceOptions, parse_options
from headwater.spark.decoding.columns import PLAIN, RowShape

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructField, StructType

_log = logging.getLogger("headwater.spark")

MOST_FILES: Final = 1000
LEAST_ENTRIES_A_FILE: Final = 50_000
"""Spark takes 5 ms to list a file and 0.2 s less than the source to read a million entries; the source
plans any number of files by the manifest alone."""

MOST_RANGES: Final = 4
"""Each is a read of the source, with a Python process that plans it."""

_READING: Final = {
    "datetimeRebaseMode": "CORRECTED",  # a date is the date that it was
    "parquet.page.verify-checksum.enabled": "true",
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
}

_KINDS: Final = {"value", "stream", "id", "timestamp", "rescued"}
_STORED: Final = ("id", "timestamp", "fields")
_GLOB: Final = set("*?[]{}\\,")


class _Parts(NamedTuple):
    """One stream: the files that Spark reads, with their entries and how many of these did not fit,
    and the ranges that the source reads."""

    stream: str
    files: list[Path]
    ranges: list[IDRange]
    entries: int
    bad: int


def archived_frame(
    spark: SparkSession, texts: Mapping[str, str], schema: str | StructType
) -> DataFrame | None:
    """What the source reads by the options ``texts``; None where it is to read it all by itself.

    Raises `DataLoss` for a damaged manifest and for a stream that ends before its archive does,
    `DeclarationError` for another stream's manifest or for options.
    """
    from pyspark.sql.types import StructType

    options = parse_options(texts)
    columns = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    if not isinstance(columns, StructType):
        return None  # one type without a name, which Spark refuses
    shape = RowShape.of(columns, options)
    if not _may(options, shape):
        return None
    with closing(ArchiveStore(options)) as store:
        parts = [_parts(options, shape, store.manifest(stream)) for stream in options.streams]
        if not _pays(parts):
            return None
        for part in parts:
            store.state(part.stream)  # where the range has an end, the source may not be asked
            if part.bad:
                _log.warning(
                    "%d archived entries of %r did not fit the schema.", part.bad, part.stream
                )
    frames = [frame for part in parts for frame in _frames(spark, part, texts, columns)]
    return reduce(lambda one, other: one.union(other), frames)


def _may(options: SourceOptions, shape: RowShape) -> bool:
    """Whether the files' columns could be what is asked for, whatever is in them."""
    names = {column.name.lower() for column in shape.columns}
    archive = str(Path(options.archive or "").absolute())
    return (
        options.archive is not None
        and len(names) == len(shape.columns)
        and options.pattern is None
        and options.fail_on_data_loss
        and options.min_partitions is None
        and "latest" not in {options.start_of(stream) for stream in options.streams}
        and all(column.kind in _KINDS and column.nullable for column in shape.columns)
        and all(isinstance(column.type, PLAIN) for column in shape.columns)
        and archive.isascii()  # the JVM may not know the letters of our paths
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
    """Which files Spark reads and what is left: before each run of them, and after the last."""
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
    for segment in manifest.segments():
        for file in segment.files:
            if file.groups[0].first <= ids.end and file.groups[-1].last >= ids.start:
                yield segment, file


def _is_direct(shape: RowShape, segment: Segment, file: ArchiveFile) -> bool:
    names = [*types_of(segment), *_STORED]
    # Spark looks columns up without regard to case.
    return len({name.lower() for name in names}) == len(names) and all(
        as_asked(shape, segment, group) for group in file.groups
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
    given["stream"] = json.dumps([part.stream])  # a comma or a star in it is part of the name
    for ids in part.ranges:
        place = {"startingId": str(ids.start)}
        if ids.end != MAX_ID:
            place["endingId"] = str(ids.end)
        yield spark.read.format("headwater").options(**given, **place).schema(schema).load()


def _direct(spark: SparkSession, part: _Parts, schema: StructType) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812 - as Spark's own pages call it
    from pyspark.sql.types import StructType

    def column(field: StructField) -> Column:
        found = made.get(field.name)
        if found is None:
            found = F.col(f"`{field.name.replace('`', '``')}`")
        if field.dataType.typeName() in {"float", "double"}:
            # Itself, and no filter goes below it.
            found = F.nanvl(found, F.lit(float("nan")).cast(field.dataType))
        return found.alias(field.name)

    made = {"stream": F.lit(part.stream), "_rescued": F.lit(None).cast("string")}
    stored = StructType([field for field in schema.fields if field.name not in made])
    reader = spark.read.schema(stored).options(**_READING)
    frame = reader.parquet(*(f"file://{path.absolute()}" for path in part.files))
    return frame.select(*map(column, schema.fields))
