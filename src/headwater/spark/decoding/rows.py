"""From a page of entries to an Arrow record batch of the shape that was asked for.

A value that does not fit its column makes its row *bad*. ``mode`` says what becomes of such a row:
``permissive`` keeps it, the value null and the raw fields in ``_rescued`` where the schema has it;
``dropmalformed`` leaves it out; ``failfast`` raises. A null where the schema says NOT NULL is bad
too, and cannot be kept.
"""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import DecodeError
from headwater.messages import DATA_FIELD
from headwater.spark.decoding.casting import Cast, Values, cast_column, caster
from headwater.spark.decoding.columns import Column, Shape
from headwater.spark.decoding.page import Page

_MAX_TIMESTAMP_MS: Final = (2**63 - 1) // 1000
_SAFE_DIGITS: Final = len(str(_MAX_TIMESTAMP_MS)) - 1
_SHOWN: Final = 100


class RowBuilder:
    """Builds record batches for one stream, and counts the rows that were bad.

    ``bad_rows`` and ``first_bad`` (a sentence) are for the warning at the end of a partition.
    """

    def __init__(self, shape: Shape, stream: str) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        self.shape = shape
        self.stream = stream
        self.schema: pa.Schema = to_arrow_schema(shape.schema, timezone="UTC")
        self.bad_rows = 0
        self.first_bad: str | None = None
        in_json = shape.codec == "json"
        self._casts: dict[str, Cast] = {
            column.name: caster(column.type, base64=in_json)
            for column in shape.columns
            if column.kind == "value"
        }

    def build(self, page: Page) -> pa.RecordBatch:
        """The page's entries as rows; raises `DecodeError` where ``mode`` does not accept them."""
        bad: dict[int, str] = {}
        texts = self._texts(page, bad)
        arrays: dict[str, pa.Array] = {}
        for column in self.shape.columns:
            if column.kind == "rescued":
                continue
            array, places = self._array(column, page, texts)
            for place in places:
                bad.setdefault(place, self._say(page, place, column, texts))
            if not column.nullable and array.null_count:
                for place in pc.indices_nonzero(array.is_null()).to_pylist():
                    bad.setdefault(place, self._say_null(page, place, column))
                array = self._fill(array, column, bad)
            arrays[column.name] = array
        if bad:
            self._judge(bad)
        for column in self.shape.columns:
            if column.kind == "rescued":
                arrays[column.name] = _rescued(page, bad)
        batch = pa.RecordBatch.from_arrays(
            [arrays[column.name] for column in self.shape.columns], schema=self.schema
        )
        if bad and self.shape.mode == "dropmalformed":
            keep = pa.array([place not in bad for place in range(len(page))])
            batch = batch.filter(keep)
        return batch

    # --- columns ----------------------------------------------------------------------------------

    def _array(
        self, column: Column, page: Page, texts: dict[str, Values]
    ) -> tuple[pa.Array, list[int]]:
        if column.kind == "value":
            arrow = self.schema.field(column.name).type
            return cast_column(texts[column.name], self._casts[column.name], arrow)
        if column.kind == "stream":
            return pa.repeat(pa.scalar(self.stream, pa.string()), len(page)), []
        if column.kind == "id":
            return pa.array(page.ids, pa.string()), []
        if column.kind == "timestamp":
            return _timestamps(page.ids), []
        return self._maps(page, self.schema.field(column.name).type)

    def _texts(self, page: Page, bad: dict[int, str]) -> dict[str, Values]:
        """The text of each message field that is a column."""
        names = list(self._casts)
        if self.shape.codec == "fields":
            return {name: page.column(name.encode()) for name in names}
        columns: dict[str, list[bytes | None]] = {name: [None] * len(page) for name in names}
        for place, document in enumerate(page.column(DATA_FIELD)):
            try:
                for name, text in _attributes(document, columns):
                    columns[name][place] = text
            except (ValueError, TypeError) as error:
                shown = "no field 'data'" if document is None else f"data={_cut(document)}: {error}"
                bad[place] = f"{self._entry(page, place)}: {shown}"
        return dict(columns)

    def _maps(self, page: Page, type_: pa.MapType) -> tuple[pa.Array, list[int]]:
        starts, names, values = page.pairs(reserved=self.shape.include_metadata)
        try:
            keys = pa.array(names, pa.string())
        except pa.ArrowInvalid:
            # A key cannot be null; what is no UTF-8 in it is shown as \xff.
            keys = pa.array([name.decode("utf-8", "backslashreplace") for name in names])
        bad: list[int] = []
        items = pa.array(values, pa.binary())
        if type_.item_type != pa.binary():
            items, wrong = cast_column(values, lambda part: part.cast(pa.string()), pa.string())
            bad = _entries_of(wrong, starts)
        return pa.MapArray.from_arrays(pa.array(starts, pa.int32()), keys, items).cast(type_), bad

    # --- bad rows ---------------------------------------------------------------------------------

    def _judge(self, bad: dict[int, str]) -> None:
        first = bad[min(bad)]
        if self.shape.mode == "failfast":
            raise DecodeError(
                f"{first}. mode=permissive reads such a value as null (a column `_rescued string` "
                "then keeps the raw entry), mode=dropmalformed leaves such entries out."
            )
        self.bad_rows += len(bad)
        self.first_bad = self.first_bad or first

    def _fill(self, array: pa.Array, column: Column, bad: dict[int, str]) -> pa.Array:
        """A NOT NULL column with nulls: fit to be filtered, or not fit at all."""
        if self.shape.mode == "dropmalformed":
            return array  # those rows are left out before anyone looks
        places = pc.indices_nonzero(array.is_null()).to_pylist()
        raise DecodeError(
            f"{bad[min(places)]}, and the schema says that {column.name!r} is NOT NULL. Declare it "
            "nullable, or leave such entries out by mode=dropmalformed."
        )

    def _say(self, page: Page, place: int, column: Column, texts: dict[str, Values]) -> str:
        if column.kind == "value":
            value = texts[column.name][place]
            shown = _cut(value) if value is not None else "nothing"
        else:
            shown = "a value that is no UTF-8"
        kind = column.type.simpleString()
        return f"{self._entry(page, place)}: {column.name}={shown} is no {kind}"

    def _say_null(self, page: Page, place: int, column: Column) -> str:
        return f"{self._entry(page, place)}: {column.name} is missing"

    def _entry(self, page: Page, place: int) -> str:
        return f"stream {self.stream!r}, entry {page.ids[place].decode()}"


def _attributes(document: bytes | None, wanted: Any) -> list[tuple[str, bytes | None]]:
    """The wanted top-level attributes of a JSON document, each as the text that `fields` would
    hold: strings without their quotes, everything else as JSON. Null is as if absent."""
    if document is None:
        raise ValueError("missing")
    found: list[tuple[str, bytes | None]] = []
    for name, raw in _ATTRIBUTES.decode(document).items():
        if name in wanted:
            text = bytes(raw).strip()
            if text.startswith(b'"'):
                text = _STRING.decode(text).encode()
            found.append((name, None if text == b"null" else text))
    return found


_ATTRIBUTES: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_STRING: Final = msgspec.json.Decoder(str)


def _timestamps(ids: list[bytes]) -> pa.Array:
    texts = pa.array(ids, pa.string())
    dashes = pc.min_max(pc.find_substring(texts, "-"))
    first, last = dashes["min"].as_py(), dashes["max"].as_py()
    if first == last and first is not None and first <= _SAFE_DIGITS:
        moments = pc.utf8_slice_codeunits(texts, 0, first).cast(pa.int64())
        return moments.cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))
    # Ids of different lengths, or beyond the last time that Spark knows (the year 294247).
    numbers = (int(id_[: id_.index(b"-")]) for id_ in ids)
    kept = [ms * 1000 if ms <= _MAX_TIMESTAMP_MS else None for ms in numbers]
    return pa.array(kept, pa.int64()).cast(pa.timestamp("us", "UTC"))


def _entries_of(values: list[int], starts: list[int]) -> list[int]:
    """The entries to which values belong that are numbered through all entries."""
    import bisect

    return sorted({bisect.bisect_right(starts, value) - 1 for value in values})


def _rescued(page: Page, bad: dict[int, str]) -> pa.Array:
    kept: list[str | None] = [None] * len(page)
    for place in bad:
        body = [part.decode("utf-8", "backslashreplace") for part in page.bodies[place]]
        fields = dict(zip(body[::2], body[1::2], strict=True))
        kept[place] = json.dumps(fields, ensure_ascii=False)
    return pa.array(kept, pa.string())


def _cut(value: bytes) -> str:
    text = value.decode("utf-8", "backslashreplace")
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")
