"""Spark reads archived files itself where it can: the same rows as through the source, each once."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from pyspark.errors import PythonException

import headwater.spark
from headwater.errors import DataLoss
from headwater.spark.archive import frames
from tests.spark.archives import archive
from tests.spark.stores import Shop

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.peer, pytest.mark.xdist_group("spark")]

STORES = ("headwater",)

TYPED = (
    "n bigint, flag boolean, tiny tinyint, small smallint, whole int, ratio float, exact double, "
    "price decimal(10, 2), day date, at timestamp, local timestamp_ntz, item string, raw binary"
)
VALUES = {
    "flag": "true",
    "tiny": "-7",
    "small": "300",
    "whole": "70000",
    "ratio": "0.5",
    "exact": "1e-9",
    "price": "19.99",
    "day": "1500-01-02",
    "at": "2026-11-21T10:00:00.123456Z",
    "local": "2026-11-21T10:00:00",
    "item": "tea\r\nmilk",
    "raw": b"\x00\xff",
}


@pytest.fixture(autouse=True)
def small_files_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "LEAST_ENTRIES_A_FILE", 1)


def read(spark: SparkSession, shop: Shop, path: Path, schema: str, **options: Any) -> DataFrame:
    return headwater.spark.read(spark, "s", url=shop.url, schema=schema, archive=path, **options)


def through_the_source(spark: SparkSession, shop: Shop, path: Path, schema: str) -> DataFrame:
    reader = spark.read.format("headwater").options(url=shop.url, stream="s", archive=str(path))
    return reader.schema(schema).load()


def plan(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan())


def test_rows_of_every_type_equal_those_of_the_source(
    shop: Shop, tmp_path: Path, spark: SparkSession
) -> None:
    schema = TYPED + ", id string, timestamp timestamp, stream string, _rescued string"
    shop.add("s", range(1, 4), **VALUES)
    shop.client.xadd("s", {"n": "4"}, id="4-0")
    archive(shop, tmp_path, TYPED)
    shop.add("s", [5, 6], **VALUES)

    frame = read(spark, shop, tmp_path, schema)

    assert "FileScan parquet" in plan(frame)
    rows = frame.orderBy("n").collect()
    assert rows == through_the_source(spark, shop, tmp_path, schema).orderBy("n").collect()
    assert [row.n for row in rows] == [1, 2, 3, 4, 5, 6]
    assert frame.schema == through_the_source(spark, shop, tmp_path, schema).schema


def test_entries_archived_after_the_frame_was_made_are_read_once(
    shop: Shop, tmp_path: Path, spark: SparkSession
) -> None:
    shop.add("s", range(1, 10))
    archive(shop, tmp_path)
    frame = read(spark, shop, tmp_path, "n bigint")
    shop.add("s", range(10, 20))
    archive(shop, tmp_path)
    shop.add("s", range(20, 30))

    assert sorted(row.n for row in frame.collect()) == list(range(1, 30))


@pytest.mark.parametrize(
    ("places", "numbers", "scanned"),
    [
        ({"starting_id": "2-0"}, range(2, 41), 2),
        ({"starting_id": "1-1", "ending_id": "25"}, range(1, 26), 2),
        ({"starting_id": "11-0", "ending_id": "30-1"}, range(11, 31), 2),
        ({"starting_id": "35-0"}, range(35, 41), 0),
        ({"starting_id": "3-0", "ending_id": "8"}, range(3, 9), 0),
    ],
)
def test_spark_reads_whole_files_and_the_source_the_edges_of_a_range(
    shop: Shop,
    tmp_path: Path,
    spark: SparkSession,
    places: dict[str, str],
    numbers: range,
    scanned: int,
) -> None:
    for start in (1, 11, 21):
        shop.add("s", range(start, start + 10))
        archive(shop, tmp_path)
    shop.add("s", range(31, 41))

    frame = read(spark, shop, tmp_path, "n bigint", **places)

    assert sorted(row.n for row in frame.collect()) == list(numbers)
    assert len(frame.inputFiles()) == scanned


def test_small_files_are_left_to_the_source(
    shop: Shop, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    shop.add("s", range(1, 10))
    archive(shop, tmp_path)

    assert read(spark, shop, tmp_path, "n bigint").inputFiles() == []


@pytest.mark.parametrize("schema", ["x double, n bigint", "x float, n bigint"])
def test_filters_consider_numbers_that_statistics_do_not(
    shop: Shop, tmp_path: Path, spark: SparkSession, schema: str
) -> None:
    for n, x in enumerate(("1.5", "nan", "-0.0", "inf"), 1):
        shop.add("s", [n], x=x)
    archive(shop, tmp_path, schema)

    frame = read(spark, shop, tmp_path, schema)

    assert len(frame.inputFiles()) == 1
    for where, numbers in (
        ("x > 100", {2, 4}),
        ("x = 0.0", {3}),
        ("x = double('NaN')", {2}),
        ("NOT (x <= 2)", {2, 4}),
    ):
        assert {row.n for row in frame.where(where).collect()} == numbers, where


def test_a_field_with_the_name_of_a_files_column_is_left_to_the_source(
    shop: Shop, tmp_path: Path, spark: SparkSession
) -> None:
    shop.add("s", [1, 2], ID=7)
    archive(shop, tmp_path, "ID bigint, n bigint")

    frame = read(spark, shop, tmp_path, "n bigint, id string")

    assert sorted(frame.collect()) == [(1, "1-1"), (2, "2-1")]
    rows = read(spark, shop, tmp_path, "ID bigint, n bigint").collect()
    assert sorted((row.ID, row.n) for row in rows) == [(7, 1), (7, 2)]


@pytest.mark.parametrize("end", [{}, {"ending_id": "10"}, {"ending_id": "20"}])
def test_a_stream_that_ends_before_its_archive_is_refused(
    shop: Shop, tmp_path: Path, spark: SparkSession, end: dict[str, str]
) -> None:
    shop.add("s", range(1, 11))
    archive(shop, tmp_path)
    shop.client.delete("s")
    shop.add("s", [1, 2])

    with pytest.raises(DataLoss, match=r"deleted, recreated or set back: .* up to 10-1"):
        read(spark, shop, tmp_path, "n bigint", **end)
    through = through_the_source(spark, shop, tmp_path, "n bigint")
    with pytest.raises(Exception, match="deleted, recreated or set back"):
        through.collect()


def test_a_relative_path_is_relative_to_this_process(
    shop: Shop, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.add("s", range(1, 11))
    archive(shop, tmp_path / "here")
    monkeypatch.chdir(tmp_path)

    frame = read(spark, shop, Path("here"), "n bigint", starting_id="3-0", ending_id="9")

    assert sorted(row.n for row in frame.collect()) == list(range(3, 10))


def test_files_that_need_the_decoder_may_lie_between_others(
    shop: Shop, tmp_path: Path, spark: SparkSession
) -> None:
    # Given three files, of which the middle one has the column with another type
    for start, schema in ((1, "n bigint"), (4, "n string"), (7, "n bigint")):
        shop.add("s", range(start, start + 3))
        archive(shop, tmp_path, schema)

    frame = read(spark, shop, tmp_path, "n bigint")

    assert sorted(row.n for row in frame.collect()) == list(range(1, 10))
    assert plan(frame).count("BatchScan headwater") == 2
    # The source decodes a map of all fields, and a text that was archived as a number
    for schema in ("fields map<string, string>", "n decimal(5, 1)"):
        other = read(spark, shop, tmp_path, schema)
        assert "FileScan" not in plan(other)
        assert other.count() == 9


def test_filters_and_columns_reach_the_files(
    shop: Shop, tmp_path: Path, spark: SparkSession
) -> None:
    shop.add("s", range(1, 10), item="tea")
    archive(shop, tmp_path, "n bigint, item string")

    frame = read(spark, shop, tmp_path, "n bigint, item string").where("n > 4").select("n")

    assert "PushedFilters: [IsNotNull(n), GreaterThan(n,4)]" in plan(frame)
    assert "ReadSchema: struct<n:bigint>" in plan(frame)
    assert frame.count() == 5


def test_bad_values_are_reported_depending_on_the_mode(
    shop: Shop, tmp_path: Path, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    shop.client.xadd("s", {"n": "many"}, id="1-0")
    shop.client.xadd("s", {"n": "2"}, id="2-0")
    archive(shop, tmp_path)

    with caplog.at_level(logging.WARNING, logger="headwater.spark"):
        nulls = read(spark, shop, tmp_path, "n bigint")
    assert "archived entries of 's' that did not fit the schema: 1" in caplog.text
    assert sorted([row.n for row in nulls.collect()], key=str) == [2, None]
    assert read(spark, shop, tmp_path, "n bigint", mode="dropmalformed").count() == 1
    rescued = read(spark, shop, tmp_path, "n bigint, _rescued string").where("n IS NULL").first()
    assert rescued is not None
    assert "many" in rescued._rescued


def test_a_damaged_file_is_data_loss_or_omitted(
    shop: Shop, tmp_path: Path, spark: SparkSession
) -> None:
    for start in (1, 4):
        shop.add("s", range(start, start + 3))
        archive(shop, tmp_path)
    victim = min(tmp_path.rglob("*.parquet"), key=lambda file: file.stat().st_mtime_ns)
    victim.write_bytes(victim.read_bytes()[:-1])

    with pytest.raises(
        PythonException, match=r"DataLoss: the archive's file .* is damaged: it has"
    ):
        read(spark, shop, tmp_path, "n bigint").collect()
    left = read(spark, shop, tmp_path, "n bigint", fail_on_data_loss=False)
    assert sorted(row.n for row in left.collect()) == [4, 5, 6]


def test_a_file_whose_bytes_changed_is_not_read(
    shop: Shop, tmp_path: Path, spark: SparkSession
) -> None:
    shop.add("s", range(1, 1001))
    archive(shop, tmp_path)
    (file,) = tmp_path.rglob("*.parquet")
    content = bytearray(file.read_bytes())
    column = pq.read_metadata(file).row_group(0).column(2)
    assert column.path_in_schema == "n"
    first = column.dictionary_page_offset or column.data_page_offset
    content[first + column.total_compressed_size - 1] ^= 0xFF
    file.write_bytes(content)

    with pytest.raises(Exception, match=file.name):
        read(spark, shop, tmp_path, "n bigint").collect()
