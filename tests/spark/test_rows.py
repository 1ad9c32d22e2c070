"""Entries become typed rows; values that do not fit are null, kept, dropped or refused."""

from __future__ import annotations

import datetime as dt
import decimal
import itertools
import json
from typing import Any

import hiredis
import pyarrow as pa
import pytest

from headwater.errors import DeclarationError, DecodeError
from headwater.spark.core.ddl import parse_schema
from headwater.spark.core.options import parse_options
from headwater.spark.decoding.columns import DEFAULT_SCHEMA, RowShape
from headwater.spark.decoding.reply import PageDecoder
from headwater.spark.decoding.rows import RowBuilder
from tests.spark.replies import Fields, page_of, reply_of, rows_of


def values_of(type_: str, *texts: bytes) -> list[Any]:
    return [row["v"] for row in rows_of(f"v {type_}", *({b"v": text} for text in texts))]


# --- the wire -------------------------------------------------------------------------------------


def test_a_page_is_the_same_whether_fed_at_once_or_byte_by_byte() -> None:
    wire = reply_of((b"1-0", [b"a", b"x\r\ny", b"b", b""]), (b"2-0", []))
    decoder = PageDecoder()

    halves = [decoder.feed(bytes([byte])) for byte in wire]

    page = halves[-1]
    assert halves[:-1] == [None] * (len(wire) - 1)
    assert page is not None
    assert page.ids == [b"1-0", b"2-0"]
    assert page.bodies == [[b"a", b"x\r\ny", b"b", b""], []]


def test_an_error_reply_is_raised_and_an_empty_page_is_valid() -> None:
    with pytest.raises(hiredis.ReplyError, match="WRONGTYPE"):
        PageDecoder().feed(b"-WRONGTYPE Operation\r\n")
    empty = PageDecoder().feed(b"*0\r\n")
    assert empty is not None
    assert len(empty) == 0


@pytest.mark.parametrize(
    "bodies",
    [
        [[b"a", b"1", b"b", b"2"], [b"a", b"3", b"b", b"4"]],
        [[b"a", b"1", b"b", b"2"], [b"b", b"4", b"a", b"3"]],
        [[b"a", b"1", b"b", b"2"], [b"a", b"0", b"b", b"4", b"a", b"3"]],
    ],
)
def test_columns_are_the_same_for_regular_and_irregular_entries(bodies: list[list[bytes]]) -> None:
    page = page_of(*bodies)

    assert page.column(b"a").to_pylist() == [b"1", b"3"]
    assert page.column(b"b").to_pylist() == [b"2", b"4"]
    assert page.column(b"c").to_pylist() == [None, None]
    starts, names, values = (column.to_pylist() for column in page.pairs(reserved=False))
    assert [
        dict(zip(names[s:e], values[s:e], strict=True)) for s, e in itertools.pairwise(starts)
    ] == [{b"a": b"1", b"b": b"2"}, {b"a": b"3", b"b": b"4"}]


# --- types ----------------------------------------------------------------------------------------


def test_text_is_cast_to_its_columns_type() -> None:
    utc = dt.UTC
    assert values_of("string", b"", b"a\nb\r\n", "né".encode()) == ["", "a\nb\r\n", "né"]
    assert values_of("binary", b"\xff\x00", b"") == [b"\xff\x00", b""]
    assert values_of("boolean", b"true", b"false") == [True, False]
    assert values_of("int", b"-17", b"2147483647") == [-17, 2147483647]
    assert values_of("double", b"1.5", b"1e3") == [1.5, 1000.0]
    assert values_of("decimal(10, 2)", b"1.5", b"-2") == [
        decimal.Decimal("1.50"),
        decimal.Decimal("-2.00"),
    ]
    assert values_of("date", b"2013-01-31") == [dt.date(2013, 1, 31)]
    assert values_of(
        "timestamp",
        b"2013-01-01T05:00:00Z",
        b"2013-01-01 05:00:00.25",
        b"2013-01-01",
        b"2013-01-01T05:00:00+02:00",
    ) == [
        dt.datetime(2013, 1, 1, 5, tzinfo=utc),
        dt.datetime(2013, 1, 1, 5, 0, 0, 250000, tzinfo=utc),
        dt.datetime(2013, 1, 1, tzinfo=utc),
        dt.datetime(2013, 1, 1, 3, tzinfo=utc),
    ]
    assert values_of("timestamp_ntz", b"2013-01-01T05:00:00Z") == [dt.datetime(2013, 1, 1, 5)]  # noqa: DTZ001


WHOLE = "99999999999999999999999999999999999999"


@pytest.mark.parametrize(
    ("type_", "texts"),
    [
        ("decimal(38, 0)", [WHOLE, f"-{WHOLE}", "0", "-0", "+7", "007", "1e37", "5.", "1200e-2"]),
        ("decimal(38, 18)", [f"{WHOLE[:20]}.{WHOLE[:18]}", "1e-18", "1.5000000000000000000"]),
        ("decimal(2, 2)", ["0.25", ".25", "-0.99"]),
        ("decimal(20, 2)", ["123456789012345678.25", "1.5"]),
    ],
)
def test_a_decimal_is_exactly_what_was_written(type_: str, texts: list[str]) -> None:
    found = values_of(type_, *map(str.encode, texts))
    assert found == [decimal.Decimal(text) for text in texts]
    assert [values_of(type_, text.encode()) for text in texts] == [[value] for value in found]


def test_times_are_read_as_programs_of_other_languages_write_them() -> None:
    # Given times of Go, Java, .NET, Python's logging and RFC 3339, with what follows the microseconds
    texts = [
        "2013-01-31T05:00:00.123456789Z",
        "2013-01-31T05:00:00.1234567Z",
        "2013-01-31T07:00:00.123456999+02:00",
        "2013-01-31T06:00:00.1234569+01:00[Europe/Paris]",
        "2013-01-31 05:00:00,123456",
        "2013-01-31t05:00:00.123456z",
    ]
    moment = dt.datetime(2013, 1, 31, 5, 0, 0, 123456, tzinfo=dt.UTC)
    # When they are read, together and alone
    # Then each is that moment to the microsecond
    assert values_of("timestamp", *map(str.encode, texts)) == [moment] * len(texts)
    assert [values_of("timestamp", text.encode()) for text in texts] == [[moment]] * len(texts)
    hour = moment.replace(microsecond=0)
    short = [b"2013-01-31T05:00Z", b"2013-01-31T05Z", b"2013-01-31T07:00+02:00", b"2013-01-31T05"]
    assert values_of("timestamp", *short) == [hour] * len(short)
    assert values_of("timestamp", b"1969-12-31T23:59:59.9999999Z", b"0001-01-01T00:00:00Z") == [
        dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC),
        dt.datetime(1, 1, 1, tzinfo=dt.UTC),
    ]


def test_nested_values_are_json() -> None:
    assert values_of("array<int>", b"[1, null]", b"[]") == [[1, None], []]
    assert values_of("map<string, double>", b'{"a": 1}') == [[("a", 1.0)]]
    assert values_of(
        "struct<item: string, at: timestamp, n: bigint>",
        b'{"item": "tea", "at": "2013-01-01T00:00:00Z", "n": 9007199254740993, "more": 1}',
        b"{}",
    ) == [
        {"item": "tea", "at": dt.datetime(2013, 1, 1, tzinfo=dt.UTC), "n": 9007199254740993},
        {"item": None, "at": None, "n": None},
    ]


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        ("int", b""),
        ("int", b"x"),
        ("int", b"17.0"),
        ("int", b"0x11"),
        ("int", b"2147483648"),
        ("tinyint", b"128"),
        ("double", b"one"),
        ("boolean", b"yes"),
        ("decimal(4, 2)", b"123.45"),
        ("decimal(4, 2)", b"1.234"),
        ("decimal(38, 0)", str(2**256 - 1).encode()),
        ("decimal(38, 0)", WHOLE.encode() + b"9"),
        ("decimal(38, 0)", b"1e38"),
        ("decimal(38, 0)", b"1e999999999"),
        ("decimal(38, 0)", b"0.5"),
        ("decimal(38, 18)", b"123456789012345678901234567890.12345678"),
        ("decimal(38, 18)", b"1e-19"),
        ("decimal(2, 2)", b"1"),
        ("decimal(4, 2)", b"1_0"),
        ("decimal(4, 2)", b"nan"),
        ("decimal(4, 2)", "\u0663".encode()),
        ("double", b"1e400"),
        ("double", b"-1e400"),
        ("float", b"1e39"),
        ("date", b"2013-02-30"),
        ("date", b"0000-01-01"),
        ("timestamp", b"0000-12-31T00:00:00Z"),
        ("timestamp", b"0001-01-01T00:00:00+01:00"),
        ("timestamp", b"9999-12-31T23:59:59-01:00"),
        ("timestamp", b"2016-12-31T23:59:60Z"),
        ("timestamp", b"2013-01-01T05:00:00.1234567x9Z"),
        ("timestamp", b"2013-01-01T05:00:00.Z"),
        ("timestamp", b"2013-01-01T05:00:00.1234567\xff"),
        ("timestamp", b"2013-13-01T00:00:00Z"),
        ("timestamp", b"soon"),
        ("string", b"\xff"),
        ("array<int>", b"[1"),
        ("array<int>", b'{"n": 1}'),
        ("struct<n: tinyint>", b"[300]"),
        ("struct<n: tinyint NOT NULL>", b'{"n": 300}'),
        ("map<string, int>", b"17"),
    ],
)
def test_a_value_that_does_not_fit_is_null_and_its_entry_is_kept(type_: str, text: bytes) -> None:
    good = {"int": b"1", "tinyint": b"1"}.get(type_)
    bodies = [{b"v": text, b"w": b"kept"}, {b"w": b"fine"}]
    if good:
        bodies.append({b"v": good})

    rows = rows_of(f"v {type_}, id string, _rescued string", *bodies)

    assert [row["v"] for row in rows] == [None, None, 1][: len(bodies)]
    assert [row["id"] for row in rows] == ["1-0", "2-0", "3-0"][: len(bodies)]
    assert json.loads(rows[0]["_rescued"]) == {
        "v": text.decode("utf-8", "backslashreplace"),
        "w": "kept",
    }
    assert [row["_rescued"] for row in rows[1:]] == [None] * (len(bodies) - 1)


def test_one_bad_value_among_thousands_affects_only_itself() -> None:
    bodies: list[Fields] = [{b"v": b"%d" % number} for number in range(3000)]
    bodies[1234] = {b"v": b"bad"}

    rows = rows_of("v int, _rescued string", *bodies)

    assert [row["v"] for row in rows] == [n if n != 1234 else None for n in range(3000)]
    assert [n for n, row in enumerate(rows) if row["_rescued"]] == [1234]


# --- modes ----------------------------------------------------------------------------------------


def test_dropmalformed_omits_bad_entries() -> None:
    bodies: list[Fields] = [{b"v": b"1"}, {b"v": b"x"}, {b"v": b"3"}]

    assert [r["v"] for r in rows_of("v int", *bodies, mode="dropmalformed")] == [1, 3]


def test_failfast_names_stream_entry_field_value_and_type() -> None:
    with pytest.raises(DecodeError, match=r"stream 's', entry 2-0: v='x{100}…' is not a valid int"):
        rows_of("v int", {b"v": b"1"}, {b"v": b"x" * 200}, mode="failfast")


def test_a_missing_value_in_a_not_null_column_is_an_error_or_dropped() -> None:
    bodies: list[Fields] = [{b"v": b"1"}, {b"w": b""}]

    assert [r["v"] for r in rows_of("v int not null", *bodies, mode="dropmalformed")] == [1]
    with pytest.raises(DecodeError, match=r"entry 2-0: v is missing.*NOT NULL"):
        rows_of("v int not null", *bodies)
    with pytest.raises(DecodeError, match=r"v='x' is not a valid int.*NOT NULL"):
        rows_of("v int not null", {b"v": b"x"})


def test_bad_entries_are_counted_for_the_log() -> None:
    shape = RowShape.of(
        parse_schema("v int"), parse_options({"url": "redis://localhost", "stream": "s"})
    )
    builder = RowBuilder(shape, "s")

    builder.build(page_of({b"v": b"x"}, {b"v": b"1"}))
    builder.build(page_of({b"v": b"y"}))

    assert builder.bad_rows == 2
    assert builder.first_bad == "stream 's', entry 1-0: v='x' is not a valid int"


# --- columns --------------------------------------------------------------------------------------


def test_without_a_schema_the_fields_are_a_map() -> None:
    rows = rows_of(DEFAULT_SCHEMA, {b"a": b"1", b"b": b""}, [b"a", b"1", b"a", b"2"], [])

    assert [row["fields"] for row in rows] == [[("a", "1"), ("b", "")], [("a", "2")], []]
    assert rows[0]["stream"] == "s"
    assert rows[0]["timestamp"] == dt.datetime(1970, 1, 1, 0, 0, 0, 1000, tzinfo=dt.UTC)


def test_invalid_utf8_is_null_in_a_map_of_strings_and_unchanged_in_one_of_binary() -> None:
    body = {b"ok": b"1", b"v\xff": b"\xfe"}

    assert rows_of("fields map<string, string>", body)[0]["fields"] == [
        ("ok", "1"),
        ("v\\xff", None),
    ]
    assert rows_of("fields map<string, binary>", body)[0]["fields"] == [
        ("ok", b"1"),
        ("v\\xff", b"\xfe"),
    ]
    assert rows_of("fields map<string, string>, _rescued string", {b"n": b"x"}, body)[1]["_rescued"]


def test_a_narrow_schema_reads_only_its_columns() -> None:
    rows = rows_of("b int", {b"a": b"x", b"b": b"1", b"c": b"\xff"}, {b"a": b"y"})

    assert rows == [{"b": 1}, {"b": None}]
    assert rows_of("id string", {b"a": b"x"}) == [{"id": "1-0"}]


def test_reserved_fields_are_hidden_unless_they_are_requested() -> None:
    body = {b"a": b"1", b"hw.error": b"E", b"traceparent": b"00"}

    assert rows_of("fields map<string, string>", body)[0]["fields"] == [("a", "1")]
    shown = rows_of("fields map<string, string>", body, includeMetadata="true")[0]["fields"]
    assert [name for name, _value in shown] == ["a", "hw.error", "traceparent"]
    with pytest.raises(DeclarationError, match="includeMetadata"):
        rows_of("traceparent string", body)
    assert rows_of("traceparent string", body, includeMetadata="true") == [{"traceparent": "00"}]


def test_an_id_beyond_the_last_timestamp_has_a_null_timestamp() -> None:
    builder = RowBuilder(
        RowShape.of(
            parse_schema("id string, timestamp timestamp"),
            parse_options({"url": "redis://localhost", "stream": "s"}),
        ),
        "s",
    )
    page = PageDecoder().feed(reply_of((b"5-0", []), (b"18446744073709551615-1", [])))
    assert page is not None

    assert builder.build(page).column("timestamp").null_count == 1


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("id bigint", "the entry's metadata and has the type string"),
        ("timestamp string", "has the type timestamp"),
        ("fields map<string, int>", "map<string, string> or map<string, binary>"),
        ("v map<int, string>", "cannot be read from a message's text"),
    ],
)
def test_an_impossible_column_is_refused_by_name(schema: str, said: str) -> None:
    with pytest.raises(DeclarationError, match=said):
        rows_of(schema)


def test_record_batches_contain_strings_and_not_string_views() -> None:
    shape = RowShape.of(
        parse_schema("v string"), parse_options({"url": "redis://localhost", "stream": "s"})
    )

    assert RowBuilder(shape, "s").build(page_of({b"v": b"x"})).schema.field("v").type == pa.string()
