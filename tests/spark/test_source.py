"""The source inside Spark: found by name, typed, replayed, with every missing entry reported."""

from __future__ import annotations

import datetime as dt
import decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.stores import Shop

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.peer, pytest.mark.xdist_group("spark")]

STORES = ("headwater",)
"""Spark's part does not depend on the server; test_readers.py tests all of them."""

BOTH_WAYS = pytest.mark.parametrize("shop", ["headwater", "redis-8.2"], indirect=True)
"""One is planned with XSPLIT, one with Lua."""


def batch(spark: SparkSession, shop: Shop, schema: str | None = None, **options: Any) -> DataFrame:
    reader = spark.read.format("headwater").options(**({"url": shop.url, "stream": "s"} | options))
    return (reader.schema(schema) if schema else reader).load()


class Copy:
    """A streaming query that copies a stream to Parquet with Spark's own sink."""

    def __init__(self, spark: SparkSession, shop: Shop, directory: Path, **options: Any) -> None:
        self.spark, self.shop, self.directory = spark, shop, directory
        self.options = {"url": shop.url, "stream": "s"} | options

    def run(self, **changed: Any) -> list[Any]:
        """Run a query for the current entries; return the progress of each batch with rows."""
        stream = (
            self.spark.readStream.format("headwater")
            .options(**(self.options | changed))
            .schema("stream string, id string, n bigint")
            .load()
        )
        query = (
            stream.writeStream.format("parquet")
            .option("path", str(self.directory / "copy"))
            .option("checkpointLocation", str(self.directory / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        finally:
            query.stop()
        return [progress for progress in query.recentProgress if progress.numInputRows]

    def numbers(self) -> list[int]:
        rows = self.spark.read.parquet(str(self.directory / "copy")).select("n").collect()
        return sorted(row.n for row in rows)


@BOTH_WAYS
def test_the_source_is_found_without_registration(spark: SparkSession, shop: Shop) -> None:
    shop.add("s", range(1, 6), item="tea")
    shop.add("t", [6])

    frame = batch(spark, shop, stream="s,t", minPartitions=3)

    assert frame.schema.simpleString() == (
        "struct<stream:string,id:string,timestamp:timestamp,fields:map<string,string>>"
    )
    rows = frame.orderBy("timestamp").collect()
    assert [(row.stream, row.id) for row in rows] == [("s", f"{n}-1") for n in range(1, 6)] + [
        ("t", "6-1")
    ]
    assert rows[0].fields == {"n": "1", "item": "tea"}


def test_a_table_is_created_and_read_with_the_options_in_the_query(
    spark: SparkSession, shop: Shop
) -> None:
    # Given a table, whose columns are the source's
    shop.add("s", range(1, 6))
    options = f"(url '{shop.url}', stream 's')"
    spark.sql(f"CREATE TABLE entries USING headwater OPTIONS {options}")
    try:
        # When it is read, with the options that Spark does not keep for a source in Python
        (row,) = spark.sql(f"SELECT count(*) AS n FROM entries WITH {options}").collect()

        # Then its rows are those of the stream, and without options the error says what to write
        assert row.n == 5
        with pytest.raises(Exception, match=r"WITH \(url"):
            spark.sql("SELECT * FROM entries").collect()
    finally:
        spark.sql("DROP TABLE entries")


def test_a_view_keeps_its_options(spark: SparkSession, shop: Shop) -> None:
    shop.add("s", range(1, 6))
    spark.sql(
        f"CREATE TEMPORARY VIEW entries_now USING headwater OPTIONS (url '{shop.url}', stream 's')"
    )

    assert spark.table("entries_now").count() == 5
    spark.sql("DROP VIEW entries_now")


def test_values_have_the_types_of_the_schema(spark: SparkSession, shop: Shop) -> None:
    body: Any = {
        "whole": "-9223372036854775808",
        "price": "12.50",
        "day": "2013-01-31",
        "at": "2013-01-31T23:00:00Z",
        "raw": b"\xff\r\n\x00",
        "text": "a\nb",
        "empty": "",
        "lines": '[{"item": "tea", "n": 2}, null]',
        "hw.trace": "hidden",
    }
    shop.client.xadd("s", body, id="1-1")
    shop.client.xadd("s", {"whole": "many"}, id="2-1")
    schema = (
        "id string not null, whole bigint, price decimal(10, 2), day date, at timestamp, "
        "raw binary, text string, empty string, lines array<struct<item: string, n: int>>, "
        "fields map<string, binary>, _rescued string"
    )

    good, bad = batch(spark, shop, schema).orderBy("id").collect()

    assert (good.whole, good.price) == (-(2**63), decimal.Decimal("12.50"))
    assert good.day == dt.date(2013, 1, 31)
    assert bytes(good.raw) == b"\xff\r\n\x00"
    assert (good.text, good.empty) == ("a\nb", "")
    assert [line and tuple(line) for line in good.lines] == [("tea", 2), None]
    assert sorted(good.fields) == sorted(set(body) - {"hw.trace"})
    assert good._rescued is None
    assert (bad.whole, bad.text, bad._rescued) == (None, None, '{"whole": "many"}')
    hour = batch(spark, shop, schema).selectExpr("hour(at) AS h").where("h = 23")
    assert hour.count() == 1


def test_a_narrow_schema_can_be_read_from_an_empty_stream(spark: SparkSession, shop: Shop) -> None:
    shop.client.xadd("s", {"n": 1, "big": "x" * 1000}, id="1-1")

    assert batch(spark, shop, "n int").collect()[0].asDict() == {"n": 1}
    shop.client.xtrim("s", maxlen=0, approximate=False)
    assert batch(spark, shop, "n int").count() == 0


@BOTH_WAYS
def test_a_query_continues_from_its_checkpoint_and_reads_each_entry_once(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    shop.add("s", range(1, 2501))
    copy = Copy(spark, shop, tmp_path, maxEntriesPerTrigger=1000, minPartitions=3)

    first = copy.run()
    shop.add("s", range(2501, 2701))
    shop.client.xtrim("s", minid="2501", approximate=False)
    second = copy.run(maxEntriesPerTrigger=150)

    assert [progress.numInputRows for progress in first] == [1000, 1000, 500]
    assert [progress.numInputRows for progress in second] == [150, 50]
    assert copy.numbers() == list(range(1, 2701))


def test_a_first_run_that_failed_is_replayed_from_where_it_began(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    shop.add("s", range(1, 11))
    stream = (
        spark.readStream.format("headwater")
        .options(url=shop.url, stream="s", startingId="latest")
        .schema("n bigint")
        .load()
    )
    seen: list[list[int]] = []
    failing = [True]

    def sink(frame: DataFrame, number: int) -> None:
        if number == 0:
            shop.add("s", range(11, 16) if failing[0] else range(16, 21))
        seen.append(sorted(row.n for row in frame.collect()))
        if failing[0] and number == 1:
            raise RuntimeError("the disk is full")

    def run() -> None:
        writer = stream.writeStream.foreachBatch(sink)
        query = writer.option("checkpointLocation", str(tmp_path)).start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()

    with pytest.raises(Exception, match="the disk is full"):
        run()
    failing[0] = False
    shop.add("s", range(16, 18))
    run()

    assert seen == [[], [11, 12, 13, 14, 15], [11, 12, 13, 14, 15], [16, 17]]


def test_trimmed_entries_stop_a_query_unless_loss_is_accepted(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    shop.add("s", range(1, 101))
    copy = Copy(spark, shop, tmp_path)
    copy.run()
    shop.add("s", range(101, 201))
    shop.client.xtrim("s", maxlen=40, approximate=False)

    with pytest.raises(Exception, match=r"DataLoss: stream 's': 60 of 100 entries after 100-1"):
        copy.run()
    continuing = copy.run(failOnDataLoss="false")

    assert [progress.numInputRows for progress in continuing] == [40]
    assert copy.numbers() == [*range(1, 101), *range(161, 201)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"startngId": "5"}, "unknown option 'startngid'. Did you mean 'startingId'?"),
        ({"stream": "text"}, "the key 'text' holds a string, not a stream"),
        (
            {"url": "redis://:hunter2@127.0.0.1:1"},
            "cannot reach the store at redis://***@127.0.0.1",
        ),
    ],
)
def test_an_impossible_read_is_one_error(
    spark: SparkSession, shop: Shop, options: dict[str, str], said: str
) -> None:
    shop.client.set("text", "no stream")

    with pytest.raises(Exception, match=r"headwater\.errors") as raised:
        batch(spark, shop, **options).count()

    assert said in str(raised.value)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("shop", ["redis-8.2"], indirect=True)
def test_no_plan_shows_the_password(
    spark: SparkSession, shop: Shop, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.add("s", [1])
    shop.client.config_set("requirepass", "hunter2")
    try:
        secret = shop.url.replace("://", "://:hunter2@")
        frame = batch(spark, shop, url=secret)
        frame.explain(mode="extended")
        assert frame.count() == 1
        Copy(spark, shop, tmp_path, url=secret).run()
        written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    finally:
        shop.client.config_set("requirepass", "")

    said = capsys.readouterr()
    assert "BatchScan headwater" in said.out
    assert "hunter2" not in said.out + said.err
    assert not any(b"hunter2" in text for text in written)
