"""Inferred columns can hold every sampled value, and the same streams give the same columns."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import msgspec
import pytest

from headwater.errors import DeclarationError
from headwater.messages.fields import text
from headwater.spark.core.options import parse_options
from headwater.spark.log_mode.inference import inferred_schema
from headwater.spark.log_mode.value_types import type_of_texts, type_of_values
from headwater.spark.source import HeadwaterSource
from tests.spark.stores import Shop

pytestmark = pytest.mark.peer

STORES = ("headwater", "redis-8.2")


def inferred(shop: Shop, **options: str) -> str:
    given = {"url": shop.url, "stream": "s", "inferSchema": "true"} | options
    return inferred_schema(parse_options(given)).simpleString()


def columns(shop: Shop, **options: str) -> str:
    """Return the columns between the entry's own columns."""
    return (
        inferred(shop, **options)
        .removeprefix("struct<stream:string,id:string,timestamp:timestamp,")
        .removesuffix(",_rescued:string>")
    )


@pytest.mark.parametrize(
    ("texts", "type_"),
    [
        (["true", "false"], "boolean"),
        (["true", "1"], "string"),
        (["0", "-3", "9223372036854775807"], "bigint"),
        (["9223372036854775808", "-1"], "decimal(38,0)"),
        (["9" * 38, "-" + "9" * 38], "decimal(38,0)"),
        (["1" * 39], "string"),
        (["1", "1" * 5000], "string"),
        ([str(2**128 - 1 - n) for n in range(4)], "string"),
        (["0.1", "1.50", "12345.678", "1e22", "-0"], "double"),
        (["0.12345678901234567"], "string"),
        (["9007199254740993", "0.5"], "string"),
        (["1e400"], "string"),
        (["1e-400"], "string"),
        (["1e99999999999999999999"], "string"),
        (["007"], "string"),
        (["+5"], "string"),
        (["1", ""], "string"),
        (["1", "0.5", "-2e9"], "double"),
        (["nan"], "string"),
        (["0x11"], "string"),
        (["2013-01-31"], "date"),
        (["2013-01-31T23:00:00Z", "2013-01-31 23:00"], "timestamp"),
        (["2013-01-31", "2013-01-31T23:00:00Z"], "string"),
        (["2013-01-31T23:00:00.1234560Z"], "timestamp"),
        (["2013-01-31T23:00:00.123456789Z"], "string"),
        (['{"n": 0.12345678901234567}'], "string"),
        (['{"n": [1.5, 1]}'], "struct<n:array<double>>"),
        (['{"a": [1, 2.5]}', '{"b": null}'], "struct<a:array<double>,b:string>"),
        (["[1]", "[]"], "array<bigint>"),
        (["[tea]"], "string"),
        (["{}"], "string"),
        (["", "x\ny"], "string"),
    ],
)
def test_a_text_has_the_narrowest_lossless_type(texts: list[str], type_: str) -> None:
    assert type_of_texts([one.encode() for one in texts]).simpleString() == type_


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        ([1, None, 2.5], "double"),
        (["17", "4"], "string"),
        (["2013-01-31"], "date"),
        ([1, "1"], "string"),
        ([2**53 + 1, 0.5], "string"),
        ([2**128], "string"),
        ([None], "string"),
        ([[{"n": 1}, {"n": 2**70}], [None]], "array<struct<n:decimal(38,0)>>"),
        ([{"a": 1}, {"a": {}}], "string"),
        ([b"\xff"], "binary"),
        ([dt.datetime(2013, 1, 31, tzinfo=dt.UTC)], "timestamp"),
    ],
)
def test_a_documents_value_keeps_its_type(values: list[Any], type_: str) -> None:
    assert type_of_values(values).simpleString() == type_


def test_a_deep_document_stays_text() -> None:
    deep: Any = 1
    for _level in range(100):
        deep = [deep]

    assert type_of_values([deep]).simpleString() == "string"


def test_columns_have_the_order_of_their_first_occurrence_in_the_whole_stream(
    shop: Shop,
) -> None:
    shop.add("s", range(1, 1001), item="tea", day="2013-01-31")
    shop.add("s", range(1001, 2001), item="tea", price="1.50")
    shop.client.xadd("s", {"n": "many", "hw.trace": "x"}, id="2001-1")

    found = columns(shop, samplingEntries="50")

    assert found == "n:bigint,item:string,day:date,price:double"
    assert found == columns(shop, samplingEntries="50")
    assert columns(shop, samplingEntries="5000").startswith("n:string,")
    assert "hw.trace" in columns(shop, samplingEntries="5000", includeMetadata="true")
    assert columns(shop, endingId="10-1") == "n:bigint,item:string,day:date"
    assert "_rescued" not in inferred(shop, mode="failfast")
    assert inferred(shop, columns="price,id") == "struct<price:double,id:string>"


def test_streams_are_sampled_together(shop: Shop) -> None:
    shop.add("a", [1])
    shop.add("b", [], item="x")
    shop.client.xadd("b", {"n": "0.5", "item": "x"})

    assert columns(shop, stream="a,b") == "n:double,item:string"
    assert columns(shop, stream="[ab]") == "n:double,item:string"


def test_names_that_columns_cannot_have_are_omitted_and_reported(
    shop: Shop, warned: pytest.LogCaptureFixture
) -> None:
    body: Any = {"n": 1, "N": 2, "id": 3, "": 4, b"\xff": 5}
    shop.client.xadd("s", body)

    assert columns(shop) == "n:bigint"
    assert "no column for 'N', 'id', ''" in warned.messages[0]


def test_documents_have_nested_types(shop: Shop) -> None:
    documents = [
        {"order": 1, "lines": [{"item": "tea", "n": 2}], "at": "2013-01-31T23:00:00Z", "x": None},
        {"order": 2, "lines": [], "paid": True, "odd": [1, "1"]},
    ]
    for document in documents:
        shop.client.xadd("s", {"data": json.dumps(document)})
        shop.client.xadd("m", {"data": msgspec.msgpack.encode(document)})
        shop.client.xadd("f", {"__data__": json.dumps({"data": json.dumps(document)})})
    shop.client.xadd("s", {"data": "not a document"})
    nested = (
        "order:bigint,lines:array<struct<item:string,n:bigint>>,at:timestamp,x:string,"
        "paid:boolean,odd:string"
    )

    assert columns(shop, codec="json") == nested
    assert columns(shop, stream="m", codec="msgpack") == nested
    assert columns(shop, stream="f", codec="faststream") == nested
    assert columns(shop, codec="bytes") == "data:binary"


def test_sampled_values_are_read_without_a_bad_value(
    shop: Shop, warned: pytest.LogCaptureFixture
) -> None:
    values: list[Any] = [True, 17, 2**80, -1.5e300, "né\n", b"\xff\x00", "", [1, None], {"a": "b"}]
    for value in values:
        shop.client.xadd("s", {f"f{number}": text(one) for number, one in enumerate(values)})
        shop.client.xadd("s", {"mixed": text(value)})
    source = HeadwaterSource({"url": shop.url, "stream": "s", "inferSchema": "true"})
    schema: Any = source.schema()

    reader = source.reader(schema)
    rows = [
        row
        for part in reader.partitions()
        for batch in reader.read(part)
        for row in batch.to_pylist()
    ]

    assert len(rows) == 18
    assert {row["_rescued"] for row in rows} == {None}
    assert rows[0]["f2"] == 2**80
    assert rows[0]["f8"] == {"a": "b"}
    assert warned.messages == []


def test_nothing_to_sample_is_an_error_with_the_remedy(shop: Shop) -> None:
    shop.client.xgroup_create("s", "g", mkstream=True)
    with pytest.raises(DeclarationError, match=r"no entry to sample in s .*\.schema"):
        inferred(shop)
    shop.client.xadd("s", {"data": "[1]"})
    with pytest.raises(DeclarationError, match="none of the 1 sampled entries holds a document"):
        inferred(shop, codec="json")
    shop.client.xadd("s", {f"field{number}": 1 for number in range(1001)})
    with pytest.raises(DeclarationError, match="1002 different fields"):
        inferred(shop)
    with pytest.raises(DeclarationError, match="no stream 'none'"):
        inferred(shop, stream="none")


def test_a_streaming_query_does_not_infer(shop: Shop) -> None:
    shop.add("s", [1])
    source = HeadwaterSource({"url": shop.url, "stream": "s", "inferSchema": "true"})
    schema: Any = source.schema()

    with pytest.raises(DeclarationError, match=r"inferSchema is for batch reads: .*\.schema"):
        source.streamReader(schema)
