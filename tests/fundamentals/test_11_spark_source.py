"""The Spark source: streams are tables, and a streaming query reads each entry in exactly one batch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headwater
import headwater.spark

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

SCHEMA = "number int, item string"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"headwater://{tmp_path}/shop"


@pytest.fixture
def shop(url: str) -> Iterator[Any]:
    """A store with a stream of three orders."""
    with headwater.connect(url) as store:
        for number in range(3):
            store.xadd("orders", {"number": number, "item": "tea"})
        yield store


def numbers(path: Path) -> list[int]:
    """Return the orders in a table, sorted."""
    rows = headwater.spark.session().read.parquet(str(path)).collect()
    return sorted(row["number"] for row in rows)


def test_a_stream_is_a_table(shop: Any, url: str) -> None:
    spark = headwater.spark.session()
    orders = headwater.spark.read(spark, "orders", url=url, schema=SCHEMA)
    (row,) = orders.where("number < 2").groupBy("item").count().collect()
    assert (row["item"], row["count"]) == ("tea", 2)


def test_a_query_continues_where_it_ended(shop: Any, url: str, tmp_path: Path) -> None:
    def run() -> None:
        orders = headwater.spark.read_stream(
            headwater.spark.session(), "orders", url=url, schema=SCHEMA
        )
        (
            orders.writeStream.format("parquet")
            .option("path", str(tmp_path / "orders"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
            .awaitTermination()
        )

    run()
    shop.xadd("orders", {"number": 3, "item": "milk"})
    run()
    assert numbers(tmp_path / "orders") == [0, 1, 2, 3]


def test_a_value_that_does_not_fit_its_column_is_kept(shop: Any, url: str) -> None:
    shop.xadd("orders", {"number": "four", "item": "salt"})
    spark = headwater.spark.session()
    orders = headwater.spark.read(spark, "orders", url=url, schema=f"{SCHEMA}, _rescued string")
    (row,) = orders.where("item = 'salt'").collect()
    assert row["number"] is None
    assert json.loads(row["_rescued"]) == {"number": "four", "item": "salt"}
