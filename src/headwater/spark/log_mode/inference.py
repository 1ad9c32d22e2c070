"""``inferSchema=true``: infers the columns of a batch read from a sample of its entries.

Rule 1. The same streams give the same schema: the sample depends only on their contents, and the columns
        have the order in which they first occur in the sample.
Rule 2. A type is chosen only if the decoder reads every sampled value unchanged as that type. Other values that do
        not fit are bad values, so with ``mode=permissive`` the columns include ``_rescued``.

The sample has up to ``samplingEntries`` entries of each stream. The part of a stream that the batch would read is
split into up to ten parts, as into partitions, and the first entries of each part are sampled.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    DataType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headwater.errors import DeclarationError, HeadwaterError
from headwater.messages.keys import is_reserved
from headwater.spark.core.options import SourceOptions
from headwater.spark.core.planning.planners import planner
from headwater.spark.core.planning.planning import Planner
from headwater.spark.core.positions import ReadSpan
from headwater.spark.core.store import SourceStore
from headwater.spark.decoding.codecs import IN_BASE64, Documents
from headwater.spark.decoding.columns import narrowed
from headwater.spark.decoding.nested import reader_of
from headwater.spark.decoding.page import ListPage, Page
from headwater.spark.log_mode.batch import batch_spans
from headwater.spark.log_mode.value_types import decode_json, type_of_texts, type_of_values

_log = logging.getLogger("headwater.spark")

_PARTS: Final = 10
"""Maximum number of parts of a stream from which its sample is taken."""

_MOST_BYTES: Final = 64 * 1024 * 1024
"""Maximum size of one stream's sample in bytes, by the server's estimate. The sample is held in memory."""

_MOST_COLUMNS: Final = 1000
"""Maximum number of different fields in the sample."""

_OWN: Final = ("stream", "id", "timestamp", "fields", "_rescued", "_delivery_count", "_consumer")
"""Names of the source's own columns, which are never columns for sampled fields."""


def inferred_schema(options: SourceOptions) -> StructType:
    """Return ``stream``, ``id``, ``timestamp``, a column for each sampled field and, with ``mode=permissive``,
    ``_rescued``. If the option ``columns`` is given, return the columns that it names.

    Raises `DeclarationError` if a named stream does not exist, if the streams are empty, if no sampled entry
    holds a document, or if the sample has too many fields.
    """
    page = _sample(options)
    typed = _typed_fields(options, page)
    columns = [
        StructField("stream", StringType()),
        StructField("id", StringType()),
        StructField("timestamp", TimestampType()),
        *(StructField(name, type_) for name, type_ in typed.items()),
    ]
    if options.mode == "permissive":
        columns.append(StructField("_rescued", StringType()))
    return narrowed(StructType(columns), options)


def _sample(options: SourceOptions) -> Page:
    """Return the sampled entries of all streams as one page."""
    store = SourceStore(options)
    try:
        plans = planner(store)
        ids: list[bytes] = []
        bodies: list[list[bytes]] = []
        for stream, span in batch_spans(options, store, plans).items():
            for id_, fields in _entries(options, store, plans, stream, span):
                ids.append(id_)
                bodies.append(fields)
    finally:
        store.close()
    if not ids:
        asked = options.asked
        raise DeclarationError(
            f"inferSchema: there is no entry to sample in {asked} between the read's start and its "
            'end. Give the columns: .schema("order_id bigint, item string")'
        )
    return ListPage(ids, bodies)


def _entries(
    options: SourceOptions, store: SourceStore, plans: Planner, stream: str, span: ReadSpan
) -> Iterable[tuple[bytes, list[bytes]]]:
    """Yield the sampled entries of one stream: an id, and a list of names and values in turn."""
    weight = store.entry_sizes({stream: span.entries})[stream]
    wanted = max(1, min(options.sampling_entries, _MOST_BYTES // weight))
    parts = plans.cut(stream, span, min(_PARTS, wanted)).parts
    for place, (ids, _count) in enumerate(parts):
        count = wanted * (place + 1) // len(parts) - wanted * place // len(parts)
        # A bytes name: for a str, redis-py would turn the reply into objects of its own.
        yield from store.ask(b"XRANGE", stream, str(ids.start), str(ids.end), "COUNT", count)


def _typed_fields(options: SourceOptions, page: Page) -> dict[str, DataType]:
    """Return the type of each sampled field that can be a column."""
    found = _fields(page) if options.codec in ("fields", "bytes") else _attributes(options, page)
    if len(found) > _MOST_COLUMNS:
        raise DeclarationError(
            f"inferSchema: the sample has {len(found)} different fields, which would all be "
            "columns. Remove inferSchema and read the column `fields`, or name the columns that "
            "you need with .schema(…)."
        )
    typed: dict[str, DataType] = {}
    texts, _bad = Documents(options.codec, dict.fromkeys(found, "other")).texts(page)
    for name in _column_names(found, options):
        type_ = BinaryType() if options.codec == "bytes" else _type(options, found[name])
        typed[name] = type_ if _reads(options, texts[name], type_) else StringType()
    return typed


def _fields(page: Page) -> dict[str, list[Any]]:
    """Return the values of each field, in the order in which the fields first occur."""
    found: dict[str, list[Any]] = {}
    for body in page.bodies:
        for name, value in zip(body[::2], body[1::2], strict=True):
            try:
                found.setdefault(name.decode(), []).append(value)
            except UnicodeDecodeError:
                continue  # not a valid column name; the column `fields` has it
    return found


def _attributes(options: SourceOptions, page: Page) -> dict[str, list[Any]]:
    """Return the values of each attribute of the documents. Entries without a valid document are skipped."""
    documents = Documents(options.codec, {})
    decode = msgspec.msgpack.decode if options.codec == "msgpack" else decode_json
    found: dict[str, list[Any]] = {}
    for text in documents.bodies(page):
        try:
            document = decode(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(document, dict):
            for name, value in document.items():
                found.setdefault(str(name), []).append(value)
    if not found:
        raise DeclarationError(
            f"inferSchema: none of the {len(page)} sampled entries holds a document of codec "
            f"{options.codec!r} with attributes. Is the codec right?"
        )
    return found


def _column_names(found: Iterable[str], options: SourceOptions) -> list[str]:
    """Return the names that can be columns, and warn about the others: empty names, and names that another column
    has (Spark ignores case). Metadata fields are omitted without a warning unless the options include them."""
    used = {name.lower() for name in _OWN}
    kept: list[str] = []
    omitted: list[str] = []
    for name in found:
        if is_reserved(name) and not options.include_metadata:
            continue
        if not name or name.lower() in used:
            omitted.append(name)
            continue
        used.add(name.lower())
        kept.append(name)
    if omitted:
        _log.warning(
            "inferSchema: no column for %s: the name is empty, or another column has it. A schema with "
            "`fields map<string, string>` shows them.",
            ", ".join(map(repr, omitted)),
        )
    return kept


def _type(options: SourceOptions, values: list[Any]) -> DataType:
    return type_of_texts(values) if options.codec == "fields" else type_of_values(values)


def _reads(options: SourceOptions, texts: pa.BinaryArray, type_: DataType) -> bool:
    """Return whether the decoder can read every text as ``type_``."""
    try:
        return not reader_of(type_, base64=options.codec in IN_BASE64)(texts)[1]
    except HeadwaterError:
        return False
