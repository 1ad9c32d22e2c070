"""Reads a range of ids from archive and stream, in an executor.

**Where archive and stream meet.** Entries are trimmed only after the manifest names them. Therefore a page is
read from the stream first, and then the manifest. If the manifest ends before the page's range, no entry of
that range had been trimmed when the page was read. Otherwise the page is dropped, and the entries that are now
archived are read from the archive. Each entry is read once, even if another process archives and trims at the
same time.

**Two ways to read a row group.** If the requested columns are columns of the file, with the same types and
codec, they are used unchanged. Otherwise the decoder reads the raw fields, as for the stream. It is needed for
another schema, for bad values that must be reported, and for a null in a NOT NULL column.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import closing
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from headwater.common.collector import collector_off
from headwater.common.model import MAX_ID, IDRange, StreamID
from headwater.errors import DataLoss
from headwater.spark.archive.contents import RowGroup, Segment
from headwater.spark.archive.files import bodies_of
from headwater.spark.archive.index import Index, rank_in
from headwater.spark.archive.manifest import FileMissing, Manifest
from headwater.spark.archive.row_groups import Place, ids_of, rows_of
from headwater.spark.archive.store import ArchiveStore
from headwater.spark.core.options import SourceOptions
from headwater.spark.core.positions import after, before
from headwater.spark.core.ranges import EntryRange
from headwater.spark.decoding.columns import Column, RowShape
from headwater.spark.decoding.page import ListPage, Page
from headwater.spark.decoding.reading import judge_count, pages_of
from headwater.spark.decoding.rows import RowBuilder

_log = logging.getLogger("headwater.spark")

BATCH_ENTRIES: Final = 32 * 1024
"""Maximum number of rows in a record batch whose columns are used unchanged."""

DECODED_ENTRIES: Final = 5000
"""Maximum number of rows in a record batch that is decoded from raw fields, as in a page of the stream."""


def read_range(
    options: SourceOptions, shape: RowShape, part: EntryRange
) -> Iterator[pa.RecordBatch]:
    """Yield the entries of ``part`` as record batches of ``shape``, from the archive and the stream.

    Raises `DataLoss` if there are fewer entries than were counted, or if a file of the archive is missing
    or damaged, and `DecodeError` for a bad row if ``mode`` is failfast.
    """
    assert options.archive is not None
    seam = _Seam(options, shape, part)
    for batch in seam.batches():
        if batch.num_rows:
            yield batch
    seam.warn()
    if seam.found != part.count:
        judge_count(ArchiveStore(options), part, seam.found)


class _Seam:
    """Reads one range. ``found`` counts all entries read, including bad rows that were dropped."""

    def __init__(self, options: SourceOptions, shape: RowShape, part: EntryRange) -> None:
        self._options = options
        self._part = part
        self._manifest = Manifest(options.archive or "", part.stream)
        self._builder = RowBuilder(shape, part.stream)
        self._archive = ArchivedRows(options, self._manifest, self._builder)
        self.found = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        start, end = self._part.ids
        while start <= end:
            archived = self._manifest.end.id
            if archived >= start:
                upto = min(archived, end)
                for batch, entries in self._archive.read(IDRange(start, upto)):
                    self.found += entries
                    yield batch
            else:
                upto = before(start)
                for page in self._pages(IDRange(start, end)):
                    if self._manifest.end.id >= start:
                        break
                    with collector_off():
                        batch = self._builder.build(page)
                    self.found += len(page)
                    upto = _last(page)
                    start = after(upto)
                    yield batch
                else:
                    # An empty last page is not yielded: check whether its entries had been trimmed.
                    if self._manifest.end.id < start:
                        return
            if upto == MAX_ID:
                return
            start = after(upto)

    def _pages(self, ids: IDRange) -> Iterator[Page]:
        pages = pages_of(self._options, EntryRange(self._part.stream, ids, self._part.count))
        with closing(pages):
            while True:
                with collector_off():
                    page = next(pages, None)
                if page is None:
                    return
                yield page

    def warn(self) -> None:
        """Log the number of entries that did not fit the schema."""
        builder, kept = self._builder, self._archive.bad_rows
        builder.log_unknown()
        if builder.bad_rows or kept:
            which = builder.first_bad or "the archive counted them when it was written"
            _log.warning(
                "entries that did not fit the schema: %d; %s.", builder.bad_rows + kept, which
            )


def _last(page: Page) -> StreamID:
    return StreamID.parse(page.last_id)


class ArchivedRows:
    """Reads archived entries as rows.

    ``bad_rows`` counts rows that had nulls for bad values in the files and were not decoded again.
    """

    def __init__(self, options: SourceOptions, manifest: Manifest, builder: RowBuilder) -> None:
        self._options = options
        self._manifest = manifest
        self._builder = builder
        self._shape = builder.shape
        self.bad_rows = 0

    def read(self, ids: IDRange) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield record batches of the archived entries of ``ids``, each with its number of entries.

        Files that were merged into others and removed since the manifest was read are looked up again.
        """
        index = Index(self._manifest)
        places = index.within(ids)
        while place := next(places, None):
            begin = start, stop = 0, place.group.entries
            try:
                begin = start, stop = self._bounds(place, ids)
                for batch, entries in self._group(place, start, stop):
                    yield batch, entries
                    start += entries
            except DataLoss as error:
                moved = isinstance(error, FileMissing) and (start, stop) == begin
                if moved and self._manifest.segments() is not index.segments:
                    ids = IDRange(max(ids.start, place.group.first), ids.end)
                    index = Index(self._manifest)
                    places = index.within(ids)
                    continue
                if self._options.fail_on_data_loss:
                    raise
                _log.warning("%s %d entries are omitted.", error, stop - start)

    def _bounds(self, place: Place, ids: IDRange) -> tuple[int, int]:
        """Return the row group's rows that belong to ``ids``: the first row's number, and one past the last."""
        group = place.group
        start, stop = 0, group.entries
        if group.first < ids.start or group.last > ids.end:
            texts = ids_of(self._manifest.directory, place)
            if group.first < ids.start:
                start = rank_in(texts, before(ids.start))
            if group.last > ids.end:
                stop = rank_in(texts, ids.end)
        return start, stop

    def _group(self, place: Place, start: int, stop: int) -> Iterator[tuple[pa.RecordBatch, int]]:
        whole = stop - start == place.group.entries
        if needs_no_decoder(self._shape, place.segment, place.group):
            kept = [one for one in self._shape.columns if one.kind not in {"stream", "rescued"}]
            names = [one.name for one in kept] or ["id"]
            for read in rows_of(self._manifest.directory, place, names, BATCH_ENTRIES, start, stop):
                rows = self._from_columns(read)
                if rows is None:
                    break
                yield rows, read.num_rows
                start += read.num_rows
            else:
                if whole:
                    self.bad_rows += place.group.bad
                return
        for read in rows_of(
            self._manifest.directory, place, ["id", "fields"], DECODED_ENTRIES, start, stop
        ):
            page = ListPage(
                read.column("id").cast(pa.binary()).to_pylist(), bodies_of(read["fields"])
            )
            yield self._builder.build(page), len(page)

    def _from_columns(self, read: pa.RecordBatch) -> pa.RecordBatch | None:
        """Return rows made from the file's columns; None if a column needs the decoder."""
        arrays: list[pa.Array] = []
        for column in self._shape.columns:
            array = self._column(column, read)
            if array is None or (not column.nullable and array.null_count):
                return None
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=self._builder.schema)

    def _column(self, column: Column, read: pa.RecordBatch) -> pa.Array | None:
        wanted = self._builder.schema.field(column.name).type
        if column.kind == "stream":
            return pa.repeat(pa.scalar(self._builder.stream, wanted), read.num_rows)
        if column.kind == "rescued":
            return pa.nulls(read.num_rows, wanted)
        array = read.column(column.name)
        if array.type == wanted:
            return array
        if column.kind != "fields":
            return array.cast(wanted)
        try:
            keys, items = array.keys.cast(pa.string()), array.items.cast(wanted.item_type)
        except pa.ArrowInvalid:
            return None  # a value that is not UTF-8
        return pa.MapArray.from_arrays(array.offsets, keys, items).cast(wanted)


def needs_no_decoder(shape: RowShape, segment: Segment, group: RowGroup) -> bool:
    """Return whether a row group can be read without the decoder for ``shape``."""
    if shape.keeps_unknown:
        return False  # only the raw entry has unknown fields
    typed = types_of(segment)
    same_codec = segment.codec == shape.codec
    reported = shape.mode != "permissive"
    for column in shape.columns:
        if column.kind == "value":
            # Types are compared as jsonValue(), the form in which the manifest stores them.
            same = same_codec and typed.get(column.name) == column.type.jsonValue()
            if not same or column.formats:
                return False
            reported = reported or not column.nullable
        elif column.kind == "rescued":
            reported = True
        elif column.kind == "fields":
            if not group.plain:
                return False
        elif column.kind not in {"stream", "id", "timestamp"}:
            return False
    return not (reported and group.bad)


def types_of(segment: Segment) -> dict[str, Any]:
    """Return the types of the typed columns in a segment's files by name, in Spark's JSON."""
    return {} if segment.schema is None else _types(segment.schema)


@lru_cache(16)
def _types(schema: str) -> dict[str, Any]:
    return {field["name"]: field["type"] for field in json.loads(schema)["fields"]}
