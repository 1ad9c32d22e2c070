"""The columns of an archive's Parquet files, and the writers of these files.

    id string                     the entry's id
    timestamp timestamp           the id's milliseconds
    <a column per field>          of the source's schema, cast as the source casts it; null if the value is
                                  missing or does not fit
    fields map<binary, binary>    the raw fields in their order, including repeated names

``fields`` has the same bytes as the stream's entry. The typed columns are derived from ``fields``, so that a
reader with the same schema need not cast. No data depends on a cast: a wrongly declared column, or a bug in a
cast, costs only speed.

Files are sorted by id, contain one day each, and are closed at about `FILE_BYTES`.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.types import StringType, StructField, StructType

from headwater.common.model import StreamID
from headwater.messages.keys import is_reserved
from headwater.spark.archive.contents import ArchiveFile, RowGroup
from headwater.spark.core.durable import sync, sync_all
from headwater.spark.core.options import SourceOptions
from headwater.spark.decoding.columns import RowShape
from headwater.spark.decoding.cut_page import CutPage
from headwater.spark.decoding.page import Page
from headwater.spark.decoding.rows import RowBuilder

GROUP_ENTRIES: Final = 128 * 1024
"""Number of entries at which a row group is written. A reader finds an id in one group and skips the others."""

GROUP_BYTES: Final = 64 * 1024 * 1024
"""Number of bytes in memory at which a row group is written, even with fewer entries."""

FILE_BYTES: Final = 256 * 1024 * 1024
"""Size at which a file is closed: large enough for few files in a list, small enough to be written again."""

FIELDS: Final = pa.map_(pa.binary(), pa.binary())
_RESCUED: Final = "_rescued"
_DAY_MS: Final = 86_400_000
_NO_DAY: Final = "__HIVE_DEFAULT_PARTITION__"
"""The name for null in partitioned directories; used for an id beyond the year 9999."""


def typed_columns(schema: StructType | None, options: SourceOptions) -> StructType:
    """Return the columns of ``schema`` that are fields of the message, all of them nullable.

    Columns with timestamp formats are left out: readers with other formats would get values of these formats.
    """
    if schema is None:
        return StructType([])
    shape = RowShape.of(schema, options)
    return StructType(
        [
            StructField(one.name, one.type)
            for one in shape.columns
            if one.kind == "value" and not one.formats
        ]
    )


def day_of(ms: int) -> str:
    """Return the UTC day of a moment in Unix milliseconds, such as ``2026-11-21``; `_NO_DAY` after the year 9999."""
    try:
        return str(dt.date(1970, 1, 1) + dt.timedelta(days=ms // _DAY_MS))
    except OverflowError:
        return _NO_DAY


class PartWriter:
    """Writes entries, in the order of their ids, to files below ``directory``."""

    def __init__(
        self,
        directory: Path,
        stream: str,
        typed: StructType,
        options: SourceOptions,
        *,
        group_entries: int = GROUP_ENTRIES,
    ) -> None:
        shape = StructType([*typed.fields, StructField(_RESCUED, StringType())])
        self._builder = RowBuilder(RowShape.of(shape, options), stream, keep_unknown=False)
        typed_fields = [self._builder.schema.field(name) for name in typed.names]
        self._schema = pa.schema(
            [
                pa.field("id", pa.string(), nullable=False),
                pa.field("timestamp", pa.timestamp("us", "UTC")),
                *typed_fields,
                pa.field("fields", FIELDS, nullable=False),
            ]
        )
        self._writer = DayWriter(directory, self._schema, group_entries=group_entries)

    def write(self, pages: Iterable[Page]) -> list[ArchiveFile]:
        """Write and sync ``pages``; return the files."""
        with self._writer as writer:
            for page in pages:
                batch, bad = self._batch(page)
                plain = _is_plain(page)
                for day, start, stop in _days(page.ids):
                    amiss = sum(start <= place < stop for place in bad)
                    writer.add(f"day={day}", [batch.slice(start, stop - start)], amiss, plain)
        return writer.files

    def _batch(self, page: Page) -> tuple[pa.RecordBatch, list[int]]:
        """Return the page in the form of the file, and the indexes of entries that do not fit the schema."""
        rows = self._builder.build(page)
        rescued = rows.column(_RESCUED)
        bad = [place for place in range(len(page)) if rescued[place].is_valid]
        if rescued.null_count == len(page):
            bad = []
        columns = {name: rows.column(name) for name in rows.schema.names if name != _RESCUED}
        columns |= {
            "id": page.id_column(),
            "timestamp": page.moments(),
            "fields": _raw(page),
        }
        arrays = [columns[name] for name in self._schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema), bad


class DayWriter:
    """Writes rows to files of one day each below ``directory``. The files are complete when the block ends.

    Each file has a new name. If a task runs twice, it writes two files, and the manifest names only one of them.
    An error in the block removes the unfinished file.
    """

    def __init__(
        self,
        directory: Path,
        schema: pa.Schema,
        *,
        group_entries: int = GROUP_ENTRIES,
    ) -> None:
        self.files: list[ArchiveFile] = []
        self._directory = directory
        self._schema = schema
        self._group_entries = group_entries
        self._day = ""
        self._file: _OpenFile | None = None
        self._group: list[pa.RecordBatch] = []
        self._marks: list[tuple[int, bool]] = []  # for each addition: number of bad entries, plain
        self._entries = self._weight = 0  # entries and bytes of the group

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_of: object) -> None:
        try:
            if kind is None:
                self._close()
        finally:
            if self._file is not None:
                self._file.abandon()
        paths = [self._directory / file.name for file in self.files]
        if kind is None and paths:
            sync_all({*paths, *(path.parent for path in paths)})
            sync(self._directory)

    def add(self, day: str, batches: list[pa.RecordBatch], bad: int, plain: bool) -> None:
        """Add rows of one day to the directory ``day``; ``bad`` and ``plain`` describe the rows, as in `RowGroup`."""
        if day != self._day:
            self._close()
            self._day = day
        self._group += batches
        self._marks.append((bad, plain))
        self._entries += sum(one.num_rows for one in batches)
        self._weight += sum(one.get_total_buffer_size() for one in batches)
        if self._entries >= self._group_entries or self._weight >= GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if not self._group:
            return
        if self._file is None:
            self._file = _OpenFile(self._directory, self._day, self._schema)
        table = pa.Table.from_batches(self._group, self._schema)
        ids = table.column("id")
        self._file.add(
            table,
            RowGroup(
                first=StreamID.parse(ids[0].as_py()),
                last=StreamID.parse(ids[-1].as_py()),
                entries=table.num_rows,
                bad=sum(bad for bad, _plain in self._marks),
                plain=all(plain for _bad, plain in self._marks),
            ),
        )
        self._group, self._marks, self._entries, self._weight = [], [], 0, 0
        if self._file.bytes >= FILE_BYTES:
            self._close()

    def _close(self) -> None:
        self._flush()
        if self._file is not None:
            self.files.append(self._file.close())
            self._file = None


class _OpenFile:
    """A file to which row groups are added. The file is incomplete until it is closed."""

    def __init__(self, directory: Path, day: str, schema: pa.Schema) -> None:
        self._name = f"{day}/{uuid.uuid4().hex}.parquet"
        self._path = directory / self._name
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._sink = self._path.open("wb")
        self._groups: list[RowGroup] = []
        typed = [field.name for field in schema if field.name not in {"id", "timestamp", "fields"}]
        self._writer = pq.ParquetWriter(
            self._sink,
            schema,
            compression="zstd",
            compression_level=1,
            # Ids and times are all different; names of fields and typed values often repeat.
            use_dictionary=[*typed, "fields.key_value.key"],
            column_encoding={"timestamp": "DELTA_BINARY_PACKED"},
            write_page_checksum=True,
        )

    @property
    def bytes(self) -> int:
        return self._sink.tell()

    def add(self, table: pa.Table, group: RowGroup) -> None:
        self._writer.write_table(table, row_group_size=table.num_rows)
        self._groups.append(group)

    def close(self) -> ArchiveFile:
        self._writer.close()
        size = self._sink.tell()
        self._sink.close()
        return ArchiveFile(self._name, size, tuple(self._groups))

    def abandon(self) -> None:
        self._sink.close()
        self._path.unlink(missing_ok=True)


def _raw(page: Page) -> pa.MapArray:
    return pa.MapArray.from_arrays(*page.all_pairs())


def bodies_of(fields: pa.MapArray) -> list[list[bytes]]:
    """Return the fields of each entry as a flat list of names and values: the inverse of `_raw`."""
    offsets: list[int] = fields.offsets.to_pylist()
    first, last = offsets[0], offsets[-1]
    pairs: list[Any] = [b""] * (2 * (last - first))
    pairs[::2] = fields.keys.slice(first, last - first).to_pylist()
    pairs[1::2] = fields.items.slice(first, last - first).to_pylist()
    return [pairs[2 * (start - first) : 2 * (stop - first)] for start, stop in pairwise(offsets)]


def _is_plain(page: Page) -> bool:
    """Return whether ``fields`` of these entries can be read directly as a map (`RowGroup.plain`)."""
    bodies = page.bodies[:1] if isinstance(page, CutPage) else page.bodies
    for names in {tuple(body[::2]) for body in bodies}:
        if len(set(names)) < len(names) or any(map(is_reserved, names)):
            return False
        try:
            b"".join(names).decode()
        except UnicodeDecodeError:
            return False
    return True


def _days(ids: list[bytes]) -> Iterator[tuple[str, int, int]]:
    """Yield the days of ``ids``, which must increase, each with its first place and one past its last."""
    moments = [int(id_[: id_.index(b"-")]) for id_ in (ids[0], ids[-1])]
    if moments[0] // _DAY_MS == moments[1] // _DAY_MS:
        yield day_of(moments[0]), 0, len(ids)
        return
    start = 0
    days = [int(id_[: id_.index(b"-")]) // _DAY_MS for id_ in ids]
    for place in range(1, len(ids) + 1):
        if place == len(ids) or days[place] != days[start]:
            yield day_of(days[start] * _DAY_MS), start, place
            start = place
