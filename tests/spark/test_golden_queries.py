"""Queries and pipelines of earlier versions continue: no entry is lost, and none is there twice."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest

from headwater.spark.pipeline import load
from headwater.spark.pipeline.plan import plan
from tests.spark.golden_queries import copy, fill, restore, run_pipeline
from tests.spark.stores import Shop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.peer, pytest.mark.xdist_group("spark")]

STORES = ("headwater",)

GOLDEN = Path(__file__).parent / "golden"


def column(directory: Path, table: str) -> list[Any]:
    found: list[Any] = (
        ds.dataset(str(directory / "tables" / table)).to_table().column("n").to_pylist()
    )
    return sorted(found)


@pytest.mark.parametrize("version", sorted(path.name for path in GOLDEN.iterdir()))
def test_queries_of_an_earlier_version_continue(
    spark: SparkSession, shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    # Given what that version left, with a batch that it wrote in part
    directory = tmp_path / version
    shutil.copytree(GOLDEN / version, directory)
    restore(shop.client, json.loads((directory / "keys.json").read_text()))
    monkeypatch.setenv("HW_TEST_URL", shop.url)
    assert 30 < shop.client.xlen("copy") < 50

    # When this version goes on with more entries
    fill(shop.client, 51, 80)
    run_pipeline(directory)
    copy(spark, shop.url, directory)

    # Then each table and stream has each entry once
    whole = list(range(1, 81))
    assert shop.numbers("copy") == whole
    assert shop.numbers("out") == whole
    assert column(directory, "bronze") == column(directory, "orders") == whole
    assert column(directory, "silver") == whole[1::2]
    assert column(directory, "patterns") == sorted(3 * whole)
    pending: Any = shop.client.xpending("o", "g")
    assert pending["pending"] == 0
    # And the table that reads a table reads the source, as it began
    planned = {
        one.table.name: one for one in plan(load(directory / "queries.toml"), analyse=False).tables
    }
    assert planned["silver"].through == ["bronze"]
