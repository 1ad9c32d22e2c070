"""Attributes of a document that the schema does not have are kept in `_rescued`, and named once in the log."""

from __future__ import annotations

import json
import math
import time
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from headwater.spark.archive.files import PartWriter, typed_columns
from headwater.spark.core.ddl import parse_schema
from headwater.spark.core.options import parse_options
from headwater.spark.decoding import unknown
from headwater.spark.decoding.columns import RowShape
from headwater.spark.decoding.page import ListPage
from headwater.spark.decoding.rows import RowBuilder
from tests.spark.replies import rows_of
from tests.spark.stores import Shop
from tests.spark.writes import task_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

STORES = ("headwater",)

SCHEMA = (
    "n int, o struct<a: int, at: timestamp>, items array<struct<a: int>>, of map<string, struct<a: int>>, "
    "plain array<int>, any string, _rescued string"
)

KNOWN: dict[str, Any] = {
    "n": 1,
    "o": {"a": 1, "at": "2026-11-21T12:00:00Z"},
    "items": [{"a": 1}, None, {}],
    "of": {"x": {"a": 1}},
    "plain": [1],
    "any": {"anything": 1},
}


def body_of(codec: str, document: Any) -> dict[bytes, bytes]:
    if codec == "msgpack":
        return {b"data": msgspec.msgpack.encode(document)}
    encoded = msgspec.json.encode(document)
    if codec == "json":
        return {b"data": encoded}
    return {b"__data__": msgspec.json.encode({"data": encoded.decode(), "headers": {}})}


CASES: list[tuple[dict[str, Any], dict[str, Any] | None]] = [
    ({}, None),
    ({"n": None, "o": None, "items": None, "of": None}, None),
    ({"colour": "red"}, {"colour": "red"}),
    ({"N": 2}, {"N": 2}),
    ({"": 1, "a.b": [1, {"x": None}]}, {"": 1, "a.b": [1, {"x": None}]}),
    ({"big": 10**18, "text": 'ü\n"', "no": None, "yes": True}, ...),  # type: ignore[list-item]
    ({"o": {"a": 1, "b": 2}}, {"o.b": 2}),
    ({"items": [{"a": 1}, {"b": {"c": 1}}, {"d": 1}]}, {"items[1].b": {"c": 1}, "items[2].d": 1}),
    ({"of": {"x": {"a": 1}, "y": {"b": 1}}}, {"of.y.b": 1}),
    ({"colour": "red", "o": {"b": 2}}, {"colour": "red", "o.b": 2}),
]


@pytest.mark.parametrize("codec", ["json", "msgpack", "faststream"])
@pytest.mark.parametrize(("change", "kept"), CASES)
@pytest.mark.parametrize("mode", ["permissive", "failfast", "dropmalformed"])
def test_unknown_attributes_are_kept_by_their_paths(
    codec: str, change: dict[str, Any], kept: Any, mode: str
) -> None:
    # Given a document with attributes that the schema does not have
    document = KNOWN | change
    rows = rows_of(SCHEMA, body_of(codec, KNOWN), body_of(codec, document), codec=codec, mode=mode)

    # Then the column has these, and the others are read as ever
    expected = change if kept is ... else kept
    found = rows[1]["_rescued"]
    assert (None if found is None else json.loads(found)) == expected
    assert rows[0]["_rescued"] is None
    without = rows_of(
        SCHEMA.replace(", _rescued string", ""), body_of(codec, document), codec=codec
    )
    assert {name: value for name, value in rows[1].items() if name != "_rescued"} == without[0]


def test_a_number_is_kept_as_it_is_written() -> None:
    document = b'{"n": 1, "price": 1.50, "id": 123456789012345678901234567890, "e": 1e400, "n": 2}'

    (row,) = rows_of("n int, _rescued string", {b"data": document}, codec="json")

    assert row == {
        "n": 2,
        "_rescued": '{"price":1.50,"id":123456789012345678901234567890,"e":1e400}',
    }


@pytest.mark.parametrize(
    "document",
    [b'{"n": "x", "colour": "red"}', b'{"n": 1, "colour": "\\ud800"}', b"[1]", b"{", b'{"n": 1'],
)
def test_an_entry_that_does_not_fit_is_kept_as_a_whole(document: bytes) -> None:
    (row,) = rows_of("n int, _rescued string", {b"data": document}, codec="json")

    assert json.loads(row["_rescued"]) == {"data": document.decode()}


def test_a_value_that_json_does_not_have_leaves_the_entry_readable() -> None:
    # Given attributes of MessagePack: an extension, bytes, a map with numbers as names, and NaN
    for value, kept in (
        (msgspec.msgpack.Ext(5, b"x"), None),
        (b"\x00", "AA=="),
        ({1: 2}, {"1": 2}),
        ([math.nan, {"deep": -math.inf}], ["NaN", {"deep": "-Infinity"}]),
    ):
        body = {b"data": msgspec.msgpack.encode({"n": 1, "other": value})}

        (row,) = rows_of("n int, _rescued string", body, codec="msgpack", mode="failfast")

        assert row["n"] == 1
        found = json.loads(row["_rescued"])
        assert found == {"other": kept} if kept is not None else "data" in found


def test_a_deep_document_is_read_too() -> None:
    deep = b'{"n": 1, "deep": ' + b"[" * 500 + b"]" * 500 + b"}"

    (row,) = rows_of("n int, _rescued string", {b"data": deep}, codec="json")

    assert row["n"] == 1
    assert row["_rescued"] is not None


def builder_of(schema: str, codec: str = "json") -> RowBuilder:
    options = parse_options({"url": "redis://h", "stream": "s", "codec": codec})
    return RowBuilder(RowShape.of(parse_schema(schema), options), "s")


def build(builder: RowBuilder, *documents: dict[str, Any]) -> None:
    bodies = [[b"data", msgspec.json.encode(one)] for one in documents]
    builder.build(ListPage([b"%d-0" % place for place in range(1, 1 + len(bodies))], bodies))
    builder.log_unknown()


def test_new_attributes_are_named_once_a_query(warned: pytest.LogCaptureFixture) -> None:
    # Given two tasks of a query in one process
    query = f"q{time.monotonic_ns()}"
    for _task in range(2):
        with task_of(query):
            build(
                builder_of("n int, _rescued string"),
                {"n": 1, "colour": 1},
                {"colour": 2, "a\nb": 1},
            )

    # Then the names are logged once, and a later one by itself
    (record,) = warned.records
    assert record.getMessage() == (
        "stream 's' has attributes that the schema does not have, which are kept in _rescued: "
        "'colour', 'a\\nb'."
    )
    warned.clear()
    with task_of(query):
        build(builder_of("n int, _rescued string"), {"colour": 1, "size": 1})
    assert [record.getMessage().rpartition(": ")[2] for record in warned.records] == ["'size'."]

    # And another query logs them too
    warned.clear()
    with task_of(query + "b"):
        build(builder_of("n int, _rescued string"), {"colour": 1})
    assert len(warned.records) == 1


def test_names_that_never_repeat_fill_neither_memory_nor_log(
    warned: pytest.LogCaptureFixture,
) -> None:
    for place in range(150):
        with task_of(f"many{place}"):
            for page in range(3):
                names = {f"{page} {number} {'x' * 500}": 1 for number in range(200)}
                build(builder_of("n int, _rescued string"), names)

    assert len(warned.records) <= 150 * 2
    assert max(len(record.getMessage()) for record in warned.records) < 100 * 110 + 200
    assert len(unknown._logged) <= 100
    assert max(map(len, unknown._logged.values())) <= 100


@pytest.mark.parametrize("codec", ["fields", "bytes"])
def test_codecs_without_documents_have_no_unknown_attributes(codec: str) -> None:
    kind = "binary" if codec == "bytes" else "int"
    (row,) = rows_of(f"n {kind}, _rescued string", {b"n": b"1", b"x": b"2"}, codec=codec)

    assert row["_rescued"] is None


def test_unknown_attributes_are_no_misfits_in_an_archive(tmp_path: Path) -> None:
    options = parse_options({"url": "redis://h", "stream": "s", "codec": "json"})
    typed = typed_columns(parse_schema("n int, _rescued string"), options)
    writer = PartWriter(tmp_path, "s", typed, options)
    body = [b"data", b'{"n": 1, "colour": "red"}']

    (file,) = writer.write(iter([ListPage([b"1-0"], [body])]))

    assert [group.bad for group in file.groups] == [0]


@pytest.mark.spark
@pytest.mark.peer
@pytest.mark.xdist_group("spark")
def test_a_query_keeps_them(spark: SparkSession, shop: Shop) -> None:
    shop.client.xadd("s", {"data": '{"n": 1, "colour": "red"}'})
    shop.client.xadd("s", {"data": '{"n": 2}'})

    reader = spark.read.format("headwater").options(url=shop.url, stream="s", codec="json")
    rows = reader.schema("n int, _rescued string").load().collect()

    assert sorted(map(tuple, rows)) == [(1, '{"colour":"red"}'), (2, None)]
