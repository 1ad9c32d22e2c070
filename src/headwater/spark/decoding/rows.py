"""Builds an Arrow record batch of the requested shape from a page of entries.

A row is *bad* if a value does not fit its column. ``mode`` decides about bad rows: ``permissive`` keeps the row
with a null, and stores the raw fields in ``_rescued`` if the schema has that column; ``dropmalformed`` omits the
row; ``failfast`` raises an error. A row with a null in a NOT NULL column is also bad; with ``permissive``, it
raises an error.
"""

from __future__ import annotations

import bisect
import json
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import DecodeError
from headwater.spark.decoding.casting import cast_column
from headwater.spark.decoding.codecs import IN_BASE64, Documents, Texts, cut
from headwater.spark.decoding.columns import Column, RowShape
from headwater.spark.decoding.nested import Formats, Misfits, reader_of, reading_of
from headwater.spark.decoding.page import Page
from headwater.spark.decoding.unknown import UnknownAttributes


class _Delivered(NamedTuple):
    """The delivery counts of a page's entries and their consumer. Both are None in log mode."""

    deliveries: Sequence[int] | None
    consumer: str | None

    def counts(self, rows: int) -> pa.Int32Array:
        if self.deliveries is None:
            return pa.nulls(rows, pa.int32())
        assert len(self.deliveries) == rows, f"{len(self.deliveries)} counts for {rows} entries"
        return pa.array(self.deliveries, pa.int32())


class RowBuilder:
    """Builds record batches for one stream, and counts the bad rows.

    ``bad_rows`` (their number) and ``first_bad`` (a sentence) are for the warning at the end of a partition.
    """

    def __init__(self, shape: RowShape, stream: str, *, keep_unknown: bool = True) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        self.shape = shape
        self.stream = stream
        self.schema: pa.Schema = to_arrow_schema(shape.schema, timezone="UTC")
        self.bad_rows = 0
        self.first_bad: str | None = None
        in_base64 = shape.codec in IN_BASE64
        own = [column for column in shape.columns if column.kind == "value"]
        formats = {each.name: Formats(each.name, each.formats) for each in own}
        self._readers = {
            each.name: reader_of(each.type, base64=in_base64, formats=formats[each.name])
            for each in own
        }
        readings = {each.name: reading_of(each.type, formats[each.name]) for each in own}
        self._unknown: UnknownAttributes | None = None
        if keep_unknown and shape.keeps_unknown:
            types = {each.name: each.type for each in own}
            self._unknown = UnknownAttributes(types, packed=shape.codec == "msgpack")
        self._documents = Documents(shape.codec, readings, self._unknown)

    def build(
        self,
        page: Page,
        *,
        deliveries: Sequence[int] | None = None,
        consumer: str | None = None,
    ) -> pa.RecordBatch:
        """Return the page's entries as rows. Raises `DecodeError` if ``mode`` does not accept a bad row.

        In group mode, ``deliveries`` (one for each entry) and ``consumer`` are the values of the columns
        ``_delivery_count`` and ``_consumer``. If they are None, these columns are null.
        """
        unknown: dict[int, bytes] = {}
        texts, no_documents = self._documents.texts(page, unknown)
        bad = {place: f"{self._entry(page, place)}: {why}" for place, why in no_documents.items()}
        delivered = _Delivered(deliveries, consumer)
        arrays: dict[str, pa.Array] = {}
        for column in self.shape.columns:
            if column.kind == "rescued":
                continue
            array, places = self._array(column, page, texts, delivered)
            for place, path in places.items():
                bad.setdefault(place, self._describe_misfit(page, place, column, path, texts))
            if not column.nullable and array.null_count:
                for place in pc.indices_nonzero(array.is_null()).to_pylist():
                    bad.setdefault(place, self._describe_missing(page, place, column))
                array = self._fill(array, column, bad)
            arrays[column.name] = array
        if bad:
            self._judge(bad)
        for column in self.shape.columns:
            if column.kind == "rescued":
                arrays[column.name] = _rescued(page, bad, unknown)
        batch = pa.RecordBatch.from_arrays(
            [arrays[column.name] for column in self.shape.columns], schema=self.schema
        )
        if bad and self.shape.mode == "dropmalformed":
            keep = pa.array([place not in bad for place in range(len(page))])
            batch = batch.filter(keep)
        return batch

    def log_unknown(self) -> None:
        """Log the attributes of documents that the schema does not have."""
        if self._unknown is not None:
            self._unknown.log(self.stream)

    # --- columns ----------------------------------------------------------------------------------

    def _array(
        self, column: Column, page: Page, texts: Texts, delivered: _Delivered
    ) -> tuple[pa.Array, Misfits]:
        """Return one column, and the places of values that did not fit."""
        if column.kind == "value":
            return self._readers[column.name](texts[column.name])
        if column.kind == "fields":
            return self._maps(page, self.schema.field(column.name).type)
        if column.kind == "id":
            return page.id_column(), {}
        if column.kind == "entry":
            starts, names, values = page.all_pairs()
            type_ = self.schema.field(column.name).type
            pairs = pa.StructArray.from_arrays([names, values], fields=list(type_.value_type))
            return pa.ListArray.from_arrays(starts, pairs, type=type_), {}
        if column.kind == "timestamp":
            moments = page.moments()
            beyond = pc.indices_nonzero(moments.is_null()).to_pylist() if moments.null_count else []
            return moments, dict.fromkeys(beyond, "")
        if column.kind == "delivery_count":
            return delivered.counts(len(page)), {}
        given = self.stream if column.kind == "stream" else delivered.consumer
        return pa.repeat(pa.scalar(given, pa.string()), len(page)), {}

    def _maps(self, page: Page, type_: pa.MapType) -> tuple[pa.Array, Misfits]:
        starts, names, values = page.pairs(reserved=self.shape.include_metadata)
        try:
            keys = names.cast(pa.string())
        except pa.ArrowInvalid:
            # A key cannot be null, so bytes that are not UTF-8 are shown as \xff.
            keys = pa.array(
                [name.decode("utf-8", "backslashreplace") for name in names.to_pylist()],
                pa.string(),
            )
        bad: list[int] = []
        items = values
        if type_.item_type != pa.binary():
            items, wrong = cast_column(values, lambda part: part.cast(pa.string()), pa.string())
            bad = _entries_of(wrong, starts)
        return pa.MapArray.from_arrays(starts, keys, items).cast(type_), dict.fromkeys(bad, "")

    # --- bad rows ---------------------------------------------------------------------------------

    def _judge(self, bad: dict[int, str]) -> None:
        first = bad[min(bad)]
        if self.shape.mode == "failfast":
            raise DecodeError(
                f"{first}. mode=permissive reads such a value as null (a column `_rescued string` "
                "then holds the raw entry); mode=dropmalformed omits such entries."
            )
        self.bad_rows += len(bad)
        self.first_bad = self.first_bad or first

    def _fill(self, array: pa.Array, column: Column, bad: dict[int, str]) -> pa.Array:
        """Return ``array`` if bad rows will be dropped. Otherwise raise `DecodeError` for a null in it."""
        if self.shape.mode == "dropmalformed":
            return array  # the rows with nulls are filtered out later
        places = pc.indices_nonzero(array.is_null()).to_pylist()
        raise DecodeError(
            f"{bad[min(places)]}, but the schema says that {column.name!r} is NOT NULL. Declare it "
            "nullable, or omit such entries with mode=dropmalformed."
        )

    def _describe_misfit(
        self, page: Page, place: int, column: Column, path: str, texts: Texts
    ) -> str:
        if column.kind == "value":
            value = texts[column.name][place].as_py()
            shown = cut(value) if value is not None else "nothing"
        elif column.kind == "timestamp":
            shown = page.ids[place].decode()
        else:
            shown = "a value that is not UTF-8"
        kind = column.type.simpleString()
        if column.formats:
            kind += f" ({', '.join(f'{name}: {text}' for name, text in column.formats.items())})"
        where = f"{column.name}{path} of {column.name}" if path else column.name
        return f"{self._entry(page, place)}: {where}={shown} is not a valid {kind}"

    def _describe_missing(self, page: Page, place: int, column: Column) -> str:
        return f"{self._entry(page, place)}: {column.name} is missing"

    def _entry(self, page: Page, place: int) -> str:
        return f"stream {self.stream!r}, entry {page.ids[place].decode()}"


def _entries_of(values: list[int], starts: pa.Int32Array) -> list[int]:
    """Return the places of the entries that contain ``values``, which are indexes over all entries' pairs."""
    if not values:
        return []
    begins = starts.to_pylist()
    return sorted({bisect.bisect_right(begins, value) - 1 for value in values})


def _rescued(page: Page, bad: dict[int, str], unknown: dict[int, bytes]) -> pa.Array:
    kept: list[str | None] = [None] * len(page)
    for place, attributes in unknown.items():
        kept[place] = attributes.decode("utf-8", "backslashreplace")
    for place in {*bad, *(place for place, attributes in unknown.items() if not attributes)}:
        body = [part.decode("utf-8", "backslashreplace") for part in page.bodies[place]]
        fields = dict(zip(body[::2], body[1::2], strict=True))
        kept[place] = json.dumps(fields, ensure_ascii=False)
    return pa.array(kept, pa.string())
