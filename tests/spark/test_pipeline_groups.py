"""A pipeline whose source has a group leaves nothing pending when it ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest

from headwater.spark.pipeline import load, run
from headwater.spark.pipeline.status import status
from tests.spark.stores import Shop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.peer, pytest.mark.xdist_group("spark")]

STORES = ("headwater",)

FILE = """
[spark]
master = "local[2]"

[source.raw]
url = "${HW_TEST_URL}"
stream = "s"
group = "tables"
schema = "id string, n bigint"

[table.numbers]
mode = "append"
sql = "SELECT * FROM raw"
path = "tables/numbers"
"""


def silent(_line: str) -> None:
    return None


def test_the_last_batch_is_settled_when_the_run_has_ended(
    spark: SparkSession, shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HW_TEST_URL", shop.url)
    (tmp_path / "numbers.toml").write_text(FILE)
    shop.add("s", range(1, 21))

    run(load(tmp_path / "numbers.toml"), report=silent)

    pending: Any = shop.client.xpending("s", "tables")
    assert pending["pending"] == 0
    table = ds.dataset(str(tmp_path / "tables" / "numbers")).to_table()
    assert sorted(table.column("n").to_pylist()) == list(range(1, 21))
    shop.add("s", range(21, 24))
    (lag,) = status(load(tmp_path / "numbers.toml")).tables[0].lags
    assert (lag.entries, lag.length) == (3, 23)
    assert json.dumps(status(load(tmp_path / "numbers.toml")).as_json())
