"""Archives with Spark: its executors write and read them, and its queries continue from them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headwater.errors import DataLoss
from headwater.spark.pipeline.archiving import archive_status, archived_options, run_archive
from headwater.spark.pipeline.declaration.loading import load
from headwater.spark.pipeline.declaration.model import Archive
from headwater.spark.pipeline.runner import run
from tests.spark.stores import Shop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.peer, pytest.mark.xdist_group("spark")]

STORES = ("headwater",)
"""Differences between servers are tested without Spark (test_archive.py)."""

PIPELINE = """
[source.events]
url = "{url}"
stream = "s"
schema = "n bigint, item string, id string"

[table.numbers]
mode = "append"
sql = "SELECT n FROM events"
path = "numbers"

[archive]
path = "history"
keep = "1d"
"""


def declared(shop: Shop, base: Path) -> Archive:
    file = base / "events.toml"
    file.write_text(PIPELINE.format(url=shop.url))
    archive = load(file).archive
    assert isinstance(archive, Archive)
    return archive


def test_executors_archive_and_a_table_is_read_from_archive_and_stream(
    shop: Shop, tmp_path: Path, spark: SparkSession
) -> None:
    archive = declared(shop, tmp_path)
    shop.add("s", range(1, 50_001), item="tea")
    lines: list[str] = []
    (done,) = run_archive(spark, archive, lines.append)
    shop.add("s", range(50_001, 50_101), item="milk")

    options = archived_options(archive, archive.sources[0])
    reader = spark.read.format("headwater").options(**options)
    table = reader.schema("n bigint, item string, id string").load()

    assert (done.entries, done.trimmed) == (50_000, 50_000)
    assert lines == [str(done)]
    rows = table.selectExpr("count(*)", "count(DISTINCT id)", "sum(n)", "max(item)").collect()
    assert [tuple(row) for row in rows] == [(50_100, 50_100, 50_100 * 50_101 // 2, "tea")]
    (status,) = archive_status(archive)
    assert (status.entries, status.waiting) == (50_000, 100)


def test_the_files_are_a_table_for_any_reader(
    shop: Shop, tmp_path: Path, spark: SparkSession
) -> None:
    archive = declared(shop, tmp_path)
    shop.add("s", [1, 2, 86_400_003], item="tea")
    run_archive(spark, archive)

    table = spark.read.parquet(str(tmp_path / "history" / "s"))

    assert table.columns == ["id", "timestamp", "n", "item", "fields", "day"]
    assert sorted((row.n, str(row.day)) for row in table.select("n", "day").collect()) == [
        (1, "1970-01-01"),
        (2, "1970-01-01"),
        (86_400_003, "1970-01-02"),
    ]


def test_a_stopped_query_continues_in_the_archive(
    shop: Shop, tmp_path: Path, spark: SparkSession
) -> None:
    archive = declared(shop, tmp_path)
    options = archived_options(archive, archive.sources[0]) | {"maxEntriesPerTrigger": "700"}
    numbers: list[int] = []

    def take() -> None:
        query = (
            spark.readStream.format("headwater")
            .options(**options)
            .schema("n bigint")
            .load()
            .writeStream.foreachBatch(lambda df, _id: numbers.extend(r.n for r in df.collect()))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    shop.add("s", range(1, 1001))
    take()
    shop.add("s", range(1001, 2001))
    shop.client.delete("{s}:hw:queries")
    run_archive(spark, archive)
    assert shop.client.xlen("s") == 0
    shop.add("s", range(2001, 2101))
    take()

    assert numbers == list(range(1, 2101))


def test_a_pipeline_archives_after_its_tables_and_continues(
    shop: Shop, tmp_path: Path, spark: SparkSession
) -> None:
    declared(shop, tmp_path)
    pipeline = load(tmp_path / "events.toml")
    lines: list[str] = []

    shop.add("s", range(1, 101), item="tea")
    run(pipeline, once=True, report=lines.append)
    assert shop.client.xlen("s") == 0
    shop.add("s", range(101, 111), item="milk")
    run(pipeline, once=True, report=lines.append)

    table = spark.read.parquet(str(tmp_path / "numbers"))
    assert sorted(row.n for row in table.collect()) == list(range(1, 111))
    assert [line for line in lines if line.startswith("archive of s: 100 entries")]
    assert shop.client.xlen("s") == 0


def test_an_error_of_an_executor_is_one_sentence(
    shop: Shop, tmp_path: Path, spark: SparkSession
) -> None:
    archive = declared(shop, tmp_path)
    shop.add("s", range(1, 11))
    run_archive(spark, archive)
    shop.add("s", [11, 12])
    shop.delete("s", 11)

    with pytest.raises(DataLoss, match=r"^stream 's': 1 of 2 entries after 10-1"):
        run_archive(spark, archive)
