"""The column ``entry`` holds an entry exactly, and what the source reads by default is not written by accident."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from headwater.errors import DeclarationError, EncodeError
from headwater.spark.core.ddl import parse_schema
from headwater.spark.core.options import parse_options
from headwater.spark.decoding.columns import RowShape, default_schema
from headwater.spark.decoding.page import ListPage
from headwater.spark.decoding.rows import RowBuilder
from headwater.spark.sink.columns import check_schema
from headwater.spark.sink.entries import RowEncoder, words
from headwater.spark.source import HeadwaterSource
from tests.spark.stores import Shop

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.peer, pytest.mark.xdist_group("spark")]

STORES = ("headwater", "redis-8.2", "valkey-9.1")

ENTRY = "entry array<struct<name: binary, value: binary>>"
PLACE = {"url": "redis://h", "stream": "s"}
BODIES = [
    [b"a", b"\xff\x00", b"a", b"2", b"\xfe", b""],
    [b"hw.retry", b"1", b"stream", b"x", b"timestamp", b"y"],
    [b"a", b"1"],
]


def encoded(rows: pa.RecordBatch, schema: str) -> list[tuple[bytes, int]]:
    return [
        (row.words, row.number) for row in RowEncoder(parse_schema(schema), "fields").rows([rows])
    ]


def test_what_is_read_is_written_byte_for_byte() -> None:
    options = parse_options(PLACE | {"includeEntry": "true", "columns": "entry"})
    shape = RowShape.of(parse_schema(default_schema(options)), options)
    page = ListPage([b"1-0", b"2-0", b"3-0"], BODIES)

    rows = RowBuilder(shape, "s").build(page)

    assert encoded(rows, ENTRY) == [(words(*body), len(body)) for body in BODIES]
    assert encoded(rows.slice(1, 1), ENTRY) == [(words(*BODIES[1]), 6)]


def test_entries_are_read_only_on_request_and_by_their_type() -> None:
    assert "entry" not in default_schema(parse_options(PLACE))
    assert default_schema(parse_options(PLACE | {"includeEntry": "true"})).endswith(f", {ENTRY}")
    # A column of another type is a field of the message, as it always was.
    shape = RowShape.of(parse_schema("entry string"), parse_options(PLACE))
    assert shape.columns[0].kind == "value"
    with pytest.raises(DeclarationError, match="includeEntry has no effect"):
        RowShape.of(parse_schema("id string"), parse_options(PLACE | {"includeEntry": "true"}))


def test_an_entry_is_written_alone_and_as_it_is() -> None:
    check_schema(parse_schema(f"id string, {ENTRY}"))
    with pytest.raises(DeclarationError, match="'n', 'fields' cannot be written with it"):
        check_schema(parse_schema(f"id string, n bigint, fields map<string, string>, {ENTRY}"))
    with pytest.raises(DeclarationError, match="codec=json has no effect"):
        check_schema(parse_schema(ENTRY), "json")


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ([{"name": None, "value": b"1"}], "null as a field's name or value"),
        ([{"name": b"a", "value": None}], "null as a field's name or value"),
        ([None], "null as a field's name or value"),
        ([], "no fields in the column"),
        (None, "no fields in the column"),
    ],
)
def test_an_entry_without_fields_is_refused_with_its_row(entry: Any, why: str) -> None:
    pair = pa.struct([("name", pa.binary()), ("value", pa.binary())])
    good = [{"name": b"a", "value": b"1"}]
    rows = pa.record_batch({"entry": pa.array([good, entry], pa.list_(pair))})
    with pytest.raises(EncodeError, match=f"row 1 of this task .*{why}"):
        encoded(rows, ENTRY)


def test_a_time_after_the_year_9999_is_null_and_the_entry_is_rescued() -> None:
    schema = parse_schema("id string, timestamp timestamp, n bigint, _rescued string")
    page = ListPage(
        [b"253402300799999-0", b"253402300800000-0", b"18446744073709551615-1"],
        [[b"n", b"1"], [b"n", b"2"], [b"n", b"3"]],
    )
    rows = RowBuilder(RowShape.of(schema, parse_options(PLACE)), "s").build(page).to_pylist()

    assert [row["n"] for row in rows] == [1, 2, 3]
    assert [row["timestamp"] is None for row in rows] == [False, True, True]
    assert [row["_rescued"] for row in rows] == [None, '{"n": "2"}', '{"n": "3"}']
    builder = RowBuilder(RowShape.of(schema, parse_options(PLACE | {"mode": "failfast"})), "s")
    with pytest.raises(Exception, match="timestamp=253402300800000-0 is not a valid timestamp"):
        builder.build(page)


def add_odd(shop: Shop) -> None:
    for body in BODIES:
        shop.client.execute_command("XADD", "s", "*", *body)


def raw(shop: Shop, stream: str) -> list[Any]:
    """Return entries as the server sends them: redis-py would make a dictionary of the fields."""
    connection = shop.client.connection_pool.get_connection()
    connection.send_command("XRANGE", stream, "-", "+")
    found: list[Any] = connection.read_response()
    shop.client.connection_pool.release(connection)
    return found


def read(spark: SparkSession, shop: Shop, **options: str) -> DataFrame:
    given = {"url": shop.url, "stream": "s"} | options
    return spark.readStream.format("headwater").options(**given).load()


def write(frame: DataFrame, shop: Shop, at: Path, **options: str) -> None:
    given = {"url": shop.url, "stream": "t", "checkpointLocation": str(at)} | options
    query = (
        frame.writeStream.format("headwater").options(**given).trigger(availableNow=True).start()
    )
    query.awaitTermination()


def test_spark_copies_entries_exactly(spark: SparkSession, shop: Shop, tmp_path: Path) -> None:
    add_odd(shop)
    write(read(spark, shop, includeEntry="true").select("id", "entry"), shop, tmp_path / "c")
    assert raw(shop, "t") == raw(shop, "s")
    assert [fields for _id, fields in raw(shop, "t")] == BODIES


def test_a_default_frame_is_written_only_if_its_loss_is_accepted(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    add_odd(shop)
    frame = spark.read.format("headwater").options(url=shop.url, stream="s").load()
    given = {"url": shop.url, "stream": "t"}

    # Then a batch and a new query are refused
    for more in ({}, {"txnAppId": "a", "txnVersion": "1"}):
        with pytest.raises(Exception, match=r"is lost\. To copy entries"):
            frame.write.format("headwater").mode("append").options(**given, **more).save()
    with pytest.raises(Exception, match=r"is lost\. To copy entries"):
        write(read(spark, shop), shop, tmp_path / "c")
    assert not shop.client.exists("t")

    # When the option accepts it, then it is written, and what was begun goes on
    more = {"txnAppId": "a", "txnVersion": "1"}
    accepted = more | {"writeSourceColumns": "true"}
    frame = frame.drop("id")
    frame.write.format("headwater").mode("append").options(**given, **accepted).save()
    frame.write.format("headwater").mode("append").options(
        **given, **more | {"txnVersion": "2"}
    ).save()
    assert shop.client.xlen("t") == 6
    write(read(spark, shop).drop("id"), shop, tmp_path / "d", writeSourceColumns="true")
    add_odd(shop)
    write(read(spark, shop).drop("id"), shop, tmp_path / "d")
    assert shop.client.xlen("t") == 12


def test_the_source_describes_the_column() -> None:
    source = HeadwaterSource(PLACE | {"includeEntry": "true"})
    assert str(source.schema()).endswith(ENTRY)
