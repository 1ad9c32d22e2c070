"""How codecs read an entry, which columns there are, and the warning of a plain executor."""

from __future__ import annotations

import asyncio
import datetime as dt
import decimal
import json
import struct

import msgspec
import pytest

from headwater.errors import DeclarationError
from headwater.spark.core.ddl import parse_schema
from headwater.spark.core.options import SourceOptions, parse_options
from headwater.spark.decoding import reading
from headwater.spark.decoding.columns import DEFAULT_SCHEMA, RowShape, default_schema, narrowed
from headwater.spark.decoding.rows import RowBuilder
from tests.spark.replies import Fields, page_of, rows_of

# --- codec json -----------------------------------------------------------------------------------


def test_json_documents_are_read_by_attribute() -> None:
    rows = rows_of(
        "n bigint, s string, at timestamp, l array<int>, b binary, _rescued string",
        {b"data": b'{"n": 9007199254740993, "s": "a\\nb", "at": "2013-01-01T00:00:00Z", "x": {}}'},
        {b"data": b'{"n": "17", "s": 1.50, "l": [1], "b": "aGk=", "at": null}'},
        codec="json",
    )

    at = dt.datetime(2013, 1, 1, tzinfo=dt.UTC)
    expected = {"n": 9007199254740993, "s": "a\nb", "at": at, "l": None, "b": None}
    assert rows[0] == expected | {"_rescued": '{"x":{}}'}
    expected = {"n": 17, "s": "1.50", "at": None, "l": [1], "b": b"hi"}
    assert rows[1] == expected | {"_rescued": None}


@pytest.mark.parametrize("body", [{b"data": b'{"n": 1'}, {b"data": b"[1]"}, {b"n": b"1"}])
def test_an_invalid_document_is_a_bad_entry(body: Fields) -> None:
    rows = rows_of("n int, _rescued string", body, {b"data": b'{"n": 2}'}, codec="json")

    assert [row["n"] for row in rows] == [None, 2]
    assert rows[0]["_rescued"]
    assert rows_of("n int", body, codec="json", mode="dropmalformed") == []


# --- other codecs ---------------------------------------------------------------------------------


def test_msgpack_documents_are_read_by_attribute() -> None:
    at = dt.datetime(2013, 1, 1, tzinfo=dt.UTC)
    document = {"n": 17, "s": "né", "d": "1.5", "at": at, "l": [1, None], "b": b"\xff\x00", "x": {}}

    rows = rows_of(
        "n bigint, s string, d decimal(4, 2), at timestamp, l array<int>, b binary, t boolean",
        {b"data": msgspec.msgpack.encode(document)},
        {b"data": msgspec.msgpack.encode({"t": True, "d": 2.25, "s": None})},
        codec="msgpack",
    )

    del document["x"]
    assert rows[0] == document | {"d": decimal.Decimal("1.50"), "t": None}
    assert (rows[1]["t"], rows[1]["d"], rows[1]["s"]) == (True, decimal.Decimal("2.25"), None)


@pytest.mark.parametrize("document", [b"\xc1", b"", b"\x93\x01\x02\x03", b"\x81\xa1n"])
def test_an_invalid_packed_document_is_a_bad_entry(document: bytes) -> None:
    rows = rows_of("n int, _rescued string", {b"data": document}, codec="msgpack")

    assert rows[0]["n"] is None
    assert rows[0]["_rescued"]


def test_faststreams_entries_are_read_in_both_of_its_formats() -> None:
    body = b'{"n": 17, "s": "tea"}'
    envelope = json.dumps({"data": body.decode(), "headers": {"correlation_id": "1"}}).encode()
    header = b"\x00\x01\x00\x0ecorrelation_id\x00\x011"
    binary = b"\x89BIN\r\n\x1a\n" + struct.pack(">HII", 1, 18, 18 + len(header)) + header + body

    rows = rows_of(
        "n int, s string, _rescued string",
        *({b"__data__": data} for data in (envelope, binary, body)),
        {b"__data__": binary[:12]},
        {b"data": body},
        codec="faststream",
    )

    assert [row["n"] for row in rows] == [17, 17, 17, None, None]
    assert [row["s"] for row in rows] == ["tea", "tea", "tea", None, None]
    assert [row["_rescued"] is None for row in rows] == [True, True, True, False, False]


def test_the_output_of_faststreams_own_writer_is_read() -> None:
    from faststream.redis.parser import BinaryMessageFormatV1

    data = asyncio.run(
        BinaryMessageFormatV1.encode(
            message={"n": 17}, reply_to=None, headers={"kind": "order"}, correlation_id="1"
        )
    )

    assert rows_of("n int", {b"__data__": data}, codec="faststream") == [{"n": 17}]


def test_raw_fields_are_not_converted() -> None:
    body = {b"a": b"\xff\r\n\x00", b"b": b"", b"c": b"text"}

    assert rows_of("a binary, b binary, c string, d binary", body, codec="bytes") == [
        {"a": b"\xff\r\n\x00", "b": b"", "c": "text", "d": None}
    ]
    with pytest.raises(DeclarationError, match="codec=bytes does not convert fields"):
        rows_of("a int", body, codec="bytes")


# --- columns --------------------------------------------------------------------------------------


def options(**given: str) -> SourceOptions:
    return parse_options({"url": "redis://localhost", "stream": "s"} | given)


@pytest.mark.parametrize(
    ("given", "schema"),
    [
        ({}, DEFAULT_SCHEMA),
        ({"columns": "id,item"}, "id string, item string"),
        ({"columns": "timestamp,a b,fields"}, "timestamp timestamp, `a b` string, fields map<…>"),
        ({"codec": "bytes", "columns": "item,id"}, "item binary, id string"),
        ({"includeMetadata": "true", "columns": "hw.error"}, "`hw.error` string"),
        (
            {"group": "g", "includeMetadata": "true"},
            DEFAULT_SCHEMA + ", _delivery_count int, _consumer string",
        ),
        ({"codec": "bytes"}, DEFAULT_SCHEMA.replace("map<string, string>", "map<string, binary>")),
    ],
)
def test_options_determine_the_columns_without_a_schema(given: dict[str, str], schema: str) -> None:
    found = parse_schema(default_schema(options(**given)))

    assert found == parse_schema(schema.replace("map<…>", "map<string, string>"))
    assert RowShape.of(found, options(**given)).schema == found


def test_columns_must_agree_with_a_schema() -> None:
    schema = parse_schema("id string, n int")

    assert RowShape.of(schema, options(columns="n, id")).schema == schema
    with pytest.raises(DeclarationError, match=r"columns names n, item, but the schema has id, n"):
        RowShape.of(schema, options(columns="n, item"))


def test_columns_select_from_an_inferred_schema() -> None:
    found = parse_schema("id string, n int, item string")

    assert narrowed(found, options()) == found
    assert narrowed(found, options(columns="n, other")) == parse_schema("n int, other string")


def test_columns_of_a_delivery_exist_only_in_group_mode() -> None:
    schema = parse_schema("n int, _delivery_count int, _consumer string")
    shape = RowShape.of(schema, options(group="g"))
    page = page_of({b"n": b"1"}, {b"n": b"2"})

    batch = RowBuilder(shape, "s").build(page, deliveries=[1, 3], consumer="spark-1")
    unknown = RowBuilder(shape, "s").build(page)

    assert batch.column("_delivery_count").to_pylist() == [1, 3]
    assert batch.column("_consumer").to_pylist() == ["spark-1", "spark-1"]
    assert unknown.column("_delivery_count").null_count == 2
    with pytest.raises(DeclarationError, match="'_delivery_count' describes a delivery"):
        RowShape.of(schema, options())


# --- executors without the compiled modules ---------------------------------------------------------


def test_a_plain_executor_warns_once(
    warned: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_rows", 0)
    monkeypatch.delenv("HEADWATER_PURE", raising=False)

    for _ in range(60):
        reading.counted(5000, compiled=False)

    (said,) = [record.getMessage() for record in warned.records]
    assert "0.4 million rows a second instead of 1.1 million" in said
    assert "--archives" in said


def test_an_executor_that_is_compiled_or_intentionally_plain_does_not_warn(
    warned: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "_rows", 0)
    reading.counted(1_000_000, compiled=True)
    monkeypatch.setenv("HEADWATER_PURE", "1")
    reading.counted(1_000_000, compiled=False)

    assert not warned.records
