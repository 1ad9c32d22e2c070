"""Rows are written to a stream with the same bytes as a producer's messages."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql.types import DayTimeIntervalType, NullType, StructField, StructType

from headwater.errors import DeclarationError, EncodeError
from headwater.messages.fields import text
from headwater.spark.core.ddl import parse_schema
from headwater.spark.sink.entries import RowEncoder
from headwater.spark.sink.options import parse_options
from headwater.spark.source import HeadwaterSource

SCHEMA = (
    "s string, b binary, t boolean, n bigint, i int, f double, g float, m decimal(10, 2), d date, "
    "at timestamp, local timestamp_ntz, l array<int>, p map<string, timestamp>, "
    "r struct<x: decimal(4, 1), y: array<string>>"
)
WITH_VOID = StructType([*parse_schema(SCHEMA).fields, StructField("nothing", NullType())])
NEW_YORK = "America/New_York"
INSTANT = dt.datetime(2026, 11, 21, 14, 30, tzinfo=dt.UTC)
ARROW = pa.schema(
    [
        ("s", pa.string()),
        ("b", pa.binary()),
        ("t", pa.bool_()),
        ("n", pa.int64()),
        ("i", pa.int32()),
        ("f", pa.float64()),
        ("g", pa.float32()),
        ("m", pa.decimal128(10, 2)),
        ("d", pa.date32()),
        ("at", pa.timestamp("us", NEW_YORK)),
        ("local", pa.timestamp("us")),
        ("l", pa.list_(pa.int32())),
        ("p", pa.map_(pa.string(), pa.timestamp("us", NEW_YORK))),
        ("r", pa.struct([("x", pa.decimal128(4, 1)), ("y", pa.list_(pa.string()))])),
        ("nothing", pa.null()),
    ]
)
ROW: dict[str, Any] = {
    "s": "tea\r\n$5 für é",
    "b": b"\x00\xff\n",
    "t": True,
    "n": -(2**63),
    "i": 7,
    "f": 1.0,
    "g": 0.1,
    "m": Decimal("1.50"),
    "d": dt.date(2026, 11, 21),
    "at": INSTANT,
    "local": dt.datetime(2026, 11, 21, 14, 30, 0, 1000),  # noqa: DTZ001 - timestamp_ntz
    "l": [1, None],
    "p": [("a", INSTANT)],
    "r": {"x": Decimal("2.5"), "y": []},
    "nothing": None,
}


def entries(
    schema: str | StructType, arrow: pa.Schema, rows: list[dict[str, Any]], codec: Any
) -> list[Any]:
    """Return the fields of each row, parsed from the RESP arguments."""
    batch = pa.RecordBatch.from_pylist(rows, arrow)
    wanted = parse_schema(schema) if isinstance(schema, str) else schema
    found = []
    for row in RowEncoder(wanted, codec).rows([batch]):
        words, rest = [], row.words
        while rest:
            length, _, rest = rest[1:].partition(b"\r\n")
            words.append(rest[: int(length)])
            assert rest[int(length) :][:2] == b"\r\n"
            rest = rest[int(length) + 2 :]
        assert len(words) == row.number
        found.append(list(zip(words[::2], words[1::2], strict=True)))
    return found


def test_columns_are_written_like_messages() -> None:
    (found,) = entries(WITH_VOID, ARROW, [ROW], "fields")

    assert found == [
        (b"s", ROW["s"].encode()),
        (b"b", b"\x00\xff\n"),
        (b"t", b"true"),
        (b"n", b"-9223372036854775808"),
        (b"i", b"7"),
        (b"f", b"1.0"),
        (b"g", b"0.1"),
        (b"m", b"1.50"),
        (b"d", b"2026-11-21"),
        (b"at", b"2026-11-21T14:30:00Z"),
        (b"local", b"2026-11-21T14:30:00.001000"),
        (b"l", b"[1,null]"),
        (b"p", b'{"a":"2026-11-21T14:30:00Z"}'),
        (b"r", b'{"x":"2.5","y":[]}'),
    ]


@pytest.mark.parametrize(
    ("spark", "arrow", "values"),
    [
        ("double", pa.float64(), [0.1, 1e300, -0.0, 1e16, 5e-324, float("inf")]),
        ("bigint", pa.int64(), [0, -1, 2**62]),
        ("boolean", pa.bool_(), [True, False]),
        ("date", pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
        ("decimal(12, 4)", pa.decimal128(12, 4), [Decimal("0.0001"), Decimal("-12.3400")]),
        (
            "timestamp",
            pa.timestamp("us", "Asia/Tokyo"),
            [INSTANT, INSTANT.replace(microsecond=120), dt.datetime(1900, 1, 1, tzinfo=dt.UTC)],
        ),
        ("string", pa.string(), ["", "é", "\x00"]),
        ("binary", pa.binary(), [b"", b"\xff"]),
    ],
)
def test_a_value_has_the_same_bytes_as_with_the_codec_of_messages(
    spark: str, arrow: pa.DataType, values: list[Any]
) -> None:
    rows = [{"v": value} for value in values]

    found = entries(f"v {spark}", pa.schema([("v", arrow)]), rows, "fields")

    assert found == [[(b"v", text(value))] for value in values]


NAN = float("nan")
PRICES = pa.schema([("price", pa.float64()), ("r", pa.struct([("x", pa.list_(pa.float32()))]))])


@pytest.mark.parametrize(
    ("codec", "row", "column"),
    [
        ("json", {"price": NAN, "r": None}, "price"),
        ("json", {"price": 1.0, "r": {"x": [1.0, float("-inf")]}}, "r"),
        ("fields", {"price": NAN, "r": {"x": [NAN]}}, "r"),
    ],
)
def test_what_json_does_not_have_is_refused(codec: str, row: dict[str, Any], column: str) -> None:
    # Given rows of which one has NaN or an infinity where JSON is written
    rows: list[dict[str, Any]] = [{"price": None, "r": None}, {"price": 2.5, "r": {"x": []}}, row]

    # When they are written, then the error names the row and the column: null would be another value
    with pytest.raises(EncodeError, match=rf"row 2 of this task .* in the column '{column}'"):
        entries("price double, r struct<x: array<float>>", PRICES, rows, codec)


def test_what_json_does_not_have_is_written_in_words_if_the_option_says_so() -> None:
    # Given rows with NaN and infinities, and the option
    rows = [{"price": NAN, "r": {"x": [float("inf"), None, -float("inf")]}}]
    schema = parse_schema("price double, r struct<x: array<float>>")

    # When they are written as JSON
    batch = pa.RecordBatch.from_pylist(rows, PRICES)
    (row,) = RowEncoder(schema, "json", "text").rows([batch])

    # Then words that float() reads stand for them
    assert row.words.endswith(b'{"price":"NaN","r":{"x":["Infinity",null,"-Infinity"]}}\r\n')


def test_only_the_rows_of_a_slice_are_judged() -> None:
    # Given more rows than are encoded at a time, with NaN in a map of the last one, and in a null map
    rows: list[dict[str, Any]] = [{"m": [("a", 1.0)]}] * 1500 + [{"m": [("a", NAN)]}]
    batch = pa.RecordBatch.from_pylist(rows, pa.schema([("m", pa.map_(pa.string(), pa.float64()))]))
    encoder = RowEncoder(parse_schema("m map<string, double>"), "fields")

    # When they are encoded, then the error comes with that row, not before
    found = encoder.rows([batch])
    assert len([next(found) for _ in range(1000)]) == 1000
    with pytest.raises(EncodeError, match="row 1500 of this task"):
        list(found)


def test_msgpack_has_nan_and_infinities() -> None:
    rows = [{"price": NAN, "r": {"x": [float("inf")]}}]

    ((field,),) = entries("price double, r struct<x: array<float>>", PRICES, rows, "msgpack")

    found = msgspec.msgpack.decode(field[1])
    assert found["price"] != found["price"]
    assert found["r"] == {"x": [float("inf")]}


def test_null_is_a_missing_field_and_empty_is_empty() -> None:
    schema = pa.schema([("a", pa.string()), ("b", pa.string())])
    rows: list[dict[str, Any]] = [{"a": "", "b": None}, {"a": None, "b": "x"}, {"a": "y", "b": "z"}]

    assert entries("a string, b string", schema, rows, "fields") == [
        [(b"a", b"")],
        [(b"b", b"x")],
        [(b"a", b"y"), (b"b", b"z")],
    ]


def test_the_contents_of_the_column_fields_are_written_as_fields() -> None:
    schema = pa.schema([("fields", pa.map_(pa.string(), pa.binary())), ("n", pa.int64())])
    rows: list[dict[str, Any]] = [
        {"fields": [("a", b"\xff"), ("gone", None), ("hw.error", b"x")], "n": 1},
        {"fields": None, "n": 2},
        {"fields": [], "n": 3},
    ]

    assert entries("fields map<string, binary>, n bigint", schema, rows, "fields") == [
        [(b"a", b"\xff"), (b"hw.error", b"x"), (b"n", b"1")],
        [(b"n", b"2")],
        [(b"n", b"3")],
    ]


def test_json_and_msgpack_write_one_document_of_all_columns() -> None:
    ((name, document),) = entries(WITH_VOID, ARROW, [ROW], "json")[0]
    ((packed_name, packed),) = entries(WITH_VOID, ARROW, [ROW], "msgpack")[0]

    assert name == packed_name == b"data"
    found = json.loads(document)
    assert list(found) == list(ROW)
    assert found["at"] == "2026-11-21T14:30:00Z"
    assert (found["m"], found["b"], found["nothing"]) == ("1.50", "AP8K", None)
    again = msgspec.msgpack.decode(packed)
    assert again["at"] == INSTANT
    assert (again["b"], again["p"]) == (b"\x00\xff\n", {"a": INSTANT})


def test_a_batch_is_split_into_slices_without_losing_a_row() -> None:
    rows = [{"n": number if number % 3 else None, "m": number} for number in range(2500)]

    found = entries(
        "n bigint, m bigint", pa.schema([("n", pa.int64()), ("m", pa.int64())]), rows, "fields"
    )

    assert [int(dict(fields)[b"m"]) for fields in found] == list(range(2500))
    assert [len(fields) for fields in found[:4]] == [1, 2, 2, 1]


# --- refusals -------------------------------------------------------------------------------------

GOOD = {"url": "redis://localhost:1", "stream": "s"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"strem": "s"}, "unknown option 'strem'. Did you mean 'stream'?"),
        ({"stream": "a,b"}, "is not one stream"),
        ({"stream": "a*"}, "is not one stream"),
        ({"url": "localhost"}, "does not begin with one of"),
        (
            {"maxlen": "many"},
            "not a number of entries; 100000 keeps about as many, =100000 exactly",
        ),
        ({"maxlen": "5", "minid": "5-0"}, "maxlen and minid exclude each other"),
        ({"minid": "x"}, "'x' is not an id"),
        ({"codec": "jsn"}, "Did you mean 'json'"),
        ({"txnAppId": "a"}, "Only txnAppId is set"),
        ({"txnAppId": "a", "txnVersion": "-1"}, "not a whole number of at least 0"),
        ({"delivery": "exactlyOnce"}, "delivery says how a streaming query writes"),
        ({"checkpointLocation": "/c"}, "unknown option 'checkpointLocation'"),
    ],
)
def test_wrong_options_of_a_batch_are_refused_with_the_remedy(
    options: dict[str, str], said: str
) -> None:
    with pytest.raises(DeclarationError) as raised:
        HeadwaterSource(GOOD | options).writer(parse_schema("n bigint"), overwrite=False)

    assert said in str(raised.value)


def test_wrong_options_of_a_stream_are_refused_with_the_remedy() -> None:
    def write(**options: str) -> None:
        HeadwaterSource(GOOD | options).streamWriter(parse_schema("n bigint"), overwrite=False)

    write(checkpointlocation="/c", queryname="q", delivery="atleastonce")
    with pytest.raises(DeclarationError, match="Did you mean 'atLeastOnce'"):
        write(delivery="atLeastTwice")
    with pytest.raises(DeclarationError, match="txnAppId is for batch writes"):
        write(txnAppId="a", txnVersion="1")


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("id bigint, n bigint", "the column 'id' is the entry's id.*AS order_id"),
        ("n map<int, string>", "'n' has the type map<int,string>"),
        ("n array<map<int, string>>", "'n' has the type array<map<int,string>>"),
        ("id string", "'id' is the only column"),
    ],
)
def test_columns_that_a_message_cannot_contain_are_refused(schema: str, said: str) -> None:
    with pytest.raises(DeclarationError, match=said):
        HeadwaterSource(GOOD).writer(parse_schema(schema), overwrite=False)


def test_intervals_are_refused() -> None:
    schema = StructType([StructField("n", DayTimeIntervalType())])

    with pytest.raises(DeclarationError, match="interval day to second, which a message cannot"):
        HeadwaterSource(GOOD).writer(schema, overwrite=False)


NOT_UTF8 = pa.array([b"a\xff"], pa.binary()).view(pa.string())
YEAR_10000 = pa.array([253_402_300_800_000_000]).cast(pa.timestamp("us"))
YEAR_0 = pa.array([-62_135_596_800_000_001]).cast(pa.timestamp("us", "UTC"))
LATE_DAY = pa.array([2_932_897], pa.int32()).cast(pa.date32())
TWICE = pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int32()))


@pytest.mark.parametrize("codec", ["fields", "json", "msgpack"])
@pytest.mark.parametrize(
    ("kind", "bad"),
    [
        ("string", NOT_UTF8),
        ("date", LATE_DAY),
        ("timestamp", YEAR_0),
        ("timestamp_ntz", YEAR_10000),
        ("array<string>", pa.ListArray.from_arrays([0, 1], NOT_UTF8)),
        ("array<timestamp_ntz>", pa.ListArray.from_arrays([0, 1], YEAR_10000)),
        ("map<string, int>", TWICE),
    ],
)
def test_a_value_that_would_not_be_read_back_is_refused(
    kind: str, bad: pa.Array, codec: Any
) -> None:
    # Given a row with such a value between two others
    nothing = pa.nulls(1, bad.type)
    batch = pa.record_batch(
        [pa.concat_arrays([nothing, bad, nothing]), pa.array([1, 2, 3])], ["c", "n"]
    )

    with pytest.raises(
        EncodeError, match=r"^row 1 of this task has a value in the column 'c' that a"
    ) as raised:
        list(RowEncoder(parse_schema(f"c {kind}, n bigint"), codec).rows([batch]))
    assert "UTF-8, days and times in the years 1 to 9999, and the keys" in str(raised.value)
    assert raised.value.__suppress_context__, "Spark would show the first error of a chain"


def test_a_stream_whose_name_is_not_text_is_refused() -> None:
    batch = pa.record_batch([NOT_UTF8, pa.array([1])], ["to", "n"])

    with pytest.raises(EncodeError, match="a value in the column 'to' that a message cannot"):
        list(
            RowEncoder(parse_schema("to string, n bigint"), "fields", stream_column="to").rows(
                [batch]
            )
        )


def test_replacing_the_stream_is_refused() -> None:
    schema = parse_schema("n bigint")

    with pytest.raises(
        DeclarationError, match=r'cannot be overwritten: write with mode\("append"\)'
    ):
        HeadwaterSource(GOOD).writer(schema, overwrite=True)
    with pytest.raises(DeclarationError, match=r'use outputMode\("append"\), or foreachBatch'):
        HeadwaterSource(GOOD).streamWriter(schema, overwrite=True)


def test_options_never_show_the_password() -> None:
    options = parse_options({"url": "redis://me:secret@localhost:1", "stream": "s"}, streaming=True)

    assert "secret" not in repr(options)
    assert "secret" not in repr(
        vars(HeadwaterSource(GOOD).writer(parse_schema("n int"), overwrite=False))
    )
