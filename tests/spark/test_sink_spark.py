"""The sink in real Spark, with its commits, retries and restarts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headwater.spark.sink.appending import STAGE_SECONDS
from tests.spark.stores import Shop
from tests.spark.writes import stages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.peer, pytest.mark.xdist_group("spark")]

STORES = ("headwater",)


def copy(
    spark: SparkSession,
    shop: Shop,
    at: Path,
    *,
    columns: str = "n",
    where: str = "true",
    **options: str,
) -> None:
    """Run a query from ``s`` to ``t`` over the current entries."""
    frame = (
        spark.readStream.format("headwater")
        .options(url=shop.url, stream="s", maxEntriesPerTrigger="40", minPartitions="3")
        .schema("id string, n bigint")
        .load()
        .where(where)
        .selectExpr(*columns.split(";"))
    )
    query: StreamingQuery = (
        frame.writeStream.format("headwater")
        .options(url=shop.url, stream="t", checkpointLocation=str(at), **options)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def test_a_stream_is_copied_to_a_stream_once_across_restarts(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    shop.add("s", range(1, 101))
    copy(spark, shop, tmp_path / "c", columns="id;n")
    shop.add("s", range(101, 131))

    # When a batch is repeated whose end Spark had not logged
    last = max((tmp_path / "c" / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    for file in (last, last.with_name(f".{last.name}.crc")):
        file.unlink(missing_ok=True)
    copy(spark, shop, tmp_path / "c", columns="id;n")

    assert shop.client.xrange("t") == shop.client.xrange("s")
    assert stages(shop) == {}
    keys: Any = shop.client.keys("*:hw:sink:*")
    (marker,) = keys
    metadata = (tmp_path / "c" / "metadata").read_text()
    assert marker.decode().removeprefix("{t}:hw:sink:") in metadata


def test_a_query_whose_target_was_emptied_with_its_record_is_refused(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    # Given a first batch of which no partition is left to read: Spark runs a task nevertheless
    shop.add("s", range(1, 21))
    copy(spark, shop, tmp_path / "c", columns="n", where="false")
    keys: Any = shop.client.keys("{t}:hw:sink:*")
    (marker,) = keys
    shop.add("s", range(21, 31))
    copy(spark, shop, tmp_path / "c")
    assert shop.numbers("t") == list(range(21, 31))

    # When the stream and the record are gone
    shop.client.delete("t", marker)
    shop.add("s", range(31, 41))

    # Then the query fails, and goes on if its options accept the loss
    with pytest.raises(Exception, match=r"has no batch of query .* on record"):
        copy(spark, shop, tmp_path / "c")
    assert shop.client.keys("{t}*") == shop.client.keys("t") == []
    copy(spark, shop, tmp_path / "c", failOnDataLoss="false")
    assert shop.numbers("t") == list(range(31, 41))


@pytest.mark.slice
def test_a_task_that_fails_and_is_repeated_leaves_each_row_once(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    shop.add("s", range(1, 21))

    with pytest.raises(Exception, match="is null in every column"):
        copy(spark, shop, tmp_path / "c", columns="nullif(n, 15) AS n")
    # Then nothing is published. A task that Spark cancelled may have left its stage, which expires.
    assert not shop.client.exists("t", *shop.client.keys("*:hw:sink:*"))
    assert all(0 < seconds <= STAGE_SECONDS for seconds in stages(shop).values())
    copy(spark, shop, tmp_path / "c", columns="coalesce(n, 0) AS n", codec="fields")

    assert sorted(shop.numbers("t")) == list(range(1, 21))


def test_foreach_batch_writes_each_version_once(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    shop.add("s", range(1, 51))
    frame = (
        spark.readStream.format("headwater")
        .options(url=shop.url, stream="s", maxEntriesPerTrigger="20")
        .schema("n bigint")
        .load()
    )

    def add(batch: DataFrame, number: int) -> None:
        for _again in range(2):
            (
                batch.write.format("headwater")
                .mode("append")
                .options(url=shop.url, stream="t", txnAppId="copy", txnVersion=str(number))
                .save()
            )

    query = (
        frame.writeStream.foreachBatch(add)
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    assert sorted(shop.numbers("t")) == list(range(1, 51))


def test_a_table_is_appended_to_a_stream(spark: SparkSession, shop: Shop) -> None:
    frame = spark.range(1, 3001).selectExpr(
        "id AS n",
        "timestamp'2026-11-21 14:30:00 America/New_York' AS at",
        "array(struct(id AS x)) AS nested",
        "if(id % 2 = 0, null, 'odd') AS text",
    )

    frame.write.format("headwater").mode("append").options(url=shop.url, stream="t").save()

    entries: Any = shop.client.xrange("t")
    assert sorted(int(fields[b"n"]) for _id, fields in entries) == list(range(1, 3001))
    assert Counter(len(fields) for _id, fields in entries) == {3: 1500, 4: 1500}
    first = next(fields for _id, fields in entries if fields[b"n"] == b"1")
    assert first == {
        b"n": b"1",
        b"at": b"2026-11-21T19:30:00Z",
        b"nested": b'[{"x":1}]',
        b"text": b"odd",
    }


def test_overwrite_and_complete_are_refused_with_the_remedy(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    shop.add("s", [1])
    frame = spark.range(3).selectExpr("id AS n")
    writer = frame.write.format("headwater").options(url=shop.url, stream="t")

    with pytest.raises(Exception, match=r'cannot be overwritten: write with mode\("append"\)'):
        writer.mode("overwrite").save()
    counted = (
        spark.readStream.format("headwater")
        .options(url=shop.url, stream="s")
        .schema("n bigint")
        .load()
        .groupBy("n")
        .count()
        .writeStream.format("headwater")
        .options(url=shop.url, stream="t", checkpointLocation=str(tmp_path / "c"))
        .trigger(availableNow=True)
    )
    with pytest.raises(Exception, match="would write the whole result again"):
        counted.outputMode("complete").start().awaitTermination()
    assert not shop.client.exists("t")
