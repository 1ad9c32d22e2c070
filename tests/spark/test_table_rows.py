"""`pipeline status` counts the rows of a table by its log or manifest, without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from headwater.spark.pipeline import load
from headwater.spark.pipeline.sinks.delta import DeltaAppend, DeltaComplete
from headwater.spark.pipeline.sinks.parquet import AppendTable, CompleteTable
from headwater.spark.pipeline.status import status
from tests.spark.stores import Shop

pytestmark = pytest.mark.peer

STORES = ("headwater",)

DECLARED = """
[source.raw]
url = "STORE"
stream = "s"
schema = "n bigint"

[table.kept]
sql = "SELECT n FROM raw"
mode = "append"
sink = "delta"
path = "kept"

[table.summed]
sql = "SELECT sum(n) AS n FROM kept"
mode = "complete"
sink = "delta"
path = "summed"
"""


@pytest.fixture
def rows() -> pa.Table:
    return pa.table({"n": [1, 2, 3]})


def test_status_counts_the_rows_of_delta_tables(shop: Shop, tmp_path: Path, rows: pa.Table) -> None:
    # Given an append table of two commits, one of them rewritten, and a complete table
    shop.add("s", [1])
    write_deltalake(tmp_path / "kept", rows)
    write_deltalake(tmp_path / "kept", rows, mode="append")
    DeltaTable(tmp_path / "kept").optimize.compact()
    write_deltalake(tmp_path / "summed", rows)
    write_deltalake(tmp_path / "summed", rows.slice(2), mode="overwrite")
    file = tmp_path / "pipeline.toml"
    file.write_text(DECLARED.replace("STORE", shop.url))

    # Then the rows are those of the newest versions
    found = {table.name: table.rows for table in status(load(file)).tables}
    assert found == {"kept": 6, "summed": 1}


def test_a_table_that_does_not_exist_yet_has_no_number_of_rows(tmp_path: Path) -> None:
    path = tmp_path / "t"

    assert DeltaAppend(path).rows() is None
    assert DeltaComplete(path).rows() is None
    assert CompleteTable(path, ()).rows() is None
    assert AppendTable(path, ()).rows() == 0


def test_rows_that_the_log_does_not_count_are_not_guessed(tmp_path: Path, rows: pa.Table) -> None:
    # Given a commit of another writer, without statistics
    write_deltalake(tmp_path, rows)
    log = tmp_path / "_delta_log" / f"{0:020d}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        action.get("add", {}).pop("stats", None)
    log.write_text("\n".join(map(json.dumps, actions)))

    assert DeltaAppend(tmp_path).rows() is None
