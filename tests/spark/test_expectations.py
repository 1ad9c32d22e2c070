"""Expectations count, drop, quarantine or refuse rows, each row once, in every mode."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest

from headwater.errors import ExpectationFailed
from headwater.spark.pipeline import Progress, load, run
from headwater.spark.pipeline.quality import QualityLog
from headwater.spark.pipeline.sinks import BatchId
from headwater.spark.pipeline.status import quality
from headwater.spark.pipeline.table_sinks import TableSinks
from tests.spark.checkpoints import give_checkpoint
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
schema = "id string, n bigint, price double"

[table.kept]
mode = "append"
sql = "SELECT * FROM raw"
path = "tables/kept"

[[table.kept.expect]]
name = "price_is_known"
predicate = "price > 0"
action = "quarantine"

[[table.kept.expect]]
name = "small"
predicate = "n < 18"
action = "drop"

[[table.kept.expect]]
name = "odd"
predicate = "n % 2 = 1"
action = "keep"

[table.below]
mode = "append"
sql = "SELECT n FROM kept"
path = "tables/below"

[table.totals]
mode = "complete"
sql = "SELECT n % 5 AS part, count(*) AS n FROM kept GROUP BY n % 5"
path = "tables/totals"

[[table.totals.expect]]
name = "part_is_not_four"
predicate = "part <> 4"
action = "quarantine"
"""


@pytest.fixture
def file(tmp_path: Path, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HW_TEST_URL", shop.url)
    path = tmp_path / "checked.toml"
    path.write_text(FILE)
    return path


def fill(shop: Shop, numbers: range) -> None:
    """Add entries; every seventh price is not a number."""
    pipeline = shop.client.pipeline(transaction=False)
    for number in numbers:
        body: Any = {"n": number, "price": "none" if number % 7 == 0 else "1.5"}
        pipeline.xadd("s", body, id=f"{number}-1")
    pipeline.execute()


def rows(file: Path, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        ds.dataset(str(file.parent / "tables" / name), partitioning="hive").to_table().to_pylist()
    )
    return found


def silent(_line: str) -> None:
    return None


def test_rows_are_kept_dropped_or_quarantined_as_declared(
    spark: SparkSession, shop: Shop, file: Path
) -> None:
    # Given twenty entries, of which 7 and 14 have no price, and 18 to 20 are too large
    fill(shop, range(1, 21))
    progress, lines = Progress(), list[str]()

    run(load(file), report=lines.append, progress=progress)

    # Then a null price violates its expectation, and only dropped rows are missing
    good = [n for n in range(1, 18) if n % 7]
    assert sorted(row["n"] for row in rows(file, "kept")) == good
    held = {row["n"]: row["_expectations"] for row in rows(file, "kept.quarantine")}
    assert held == {7: ["price_is_known"], 14: ["price_is_known", "odd"]}
    kept = progress["kept"]
    assert (kept.rows, kept.dropped, kept.quarantined) == (15, 3, 2)
    assert kept.violations == {"price_is_known": 2, "small": 3, "odd": 10}
    assert any(
        "3 dropped, 2 quarantined; not met: price_is_known 2, small 3, odd 10" in one
        for one in lines
    )

    # And the history has the batch
    (batch,) = quality(load(file))["kept"]
    assert (batch.rows, batch.kept, batch.dropped, batch.quarantined) == (20, 15, 3, 2)
    assert batch.violations == {"price_is_known": 2, "small": 3, "odd": 10}

    # And a table that reads it has the same rows, and a complete table has its own quarantine
    assert sorted(row["n"] for row in rows(file, "below")) == good
    assert {row["part"] for row in rows(file, "totals")} == {0, 1, 2, 3}
    assert [row["part"] for row in rows(file, "totals.quarantine")] == [4]

    # When a run has nothing to add, the quarantine is unchanged and the complete table is rebuilt
    run(load(file), report=silent)
    assert len(rows(file, "kept.quarantine")) == 2
    assert len(rows(file, "totals.quarantine")) == 1


def test_fail_prevents_any_write(spark: SparkSession, shop: Shop, file: Path) -> None:
    file.write_text(
        FILE.replace('action = "drop"', 'action = "fail"').partition("[table.below]")[0]
    )
    fill(shop, range(1, 21))

    with pytest.raises(ExpectationFailed) as raised:
        run(load(file), report=silent)

    assert str(raised.value).startswith(
        f"{file}: table kept: expectation 'small' (n < 18) does not hold for 3 of 20 rows, one of them "
        "with id "
    )
    assert not list((file.parent / "tables").rglob("*.parquet"))

    # And after the expectation is relaxed, the same entries are there once
    file.write_text(FILE.partition("[table.below]")[0])
    run(load(file), report=silent)
    assert len(rows(file, "kept")) == 15


def test_a_batch_is_computed_once_for_all_checks(spark: SparkSession, file: Path) -> None:
    # Given a batch that counts its computed rows
    stores = TableSinks(load(file))
    kept = stores.streamed["kept"]
    kept.prepare()
    give_checkpoint(kept.checkpoint.path)
    computed = spark.sparkContext.accumulator(0)

    def count(row: Any) -> Any:
        computed.add(1)
        return row

    numbers = spark.sparkContext.parallelize(
        [(f"{n}-1", n, 1.0 if n % 7 else None) for n in range(1, 21)]
    )
    frame = spark.createDataFrame(numbers.map(count), "id string, n bigint, price double")

    outcome = kept.write(frame, BatchId(0))

    assert (outcome.rows, outcome.dropped, outcome.quarantined) == (15, 3, 2)
    assert computed.value == 20


def test_an_interrupted_batch_leaves_each_row_in_one_place(
    spark: SparkSession, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a driver that dies after the quarantine is written and before the table is
    def opened() -> Any:
        kept = TableSinks(load(file)).streamed["kept"]
        kept.prepare()
        return kept

    kept = opened()
    give_checkpoint(kept.checkpoint.path)
    frame = spark.range(1, 21).selectExpr(
        "concat(id, '-1') AS id", "id AS n", "CASE WHEN id % 7 <> 0 THEN 1.0D END AS price"
    )

    def die(*_arguments: Any) -> int:
        raise RuntimeError("power loss")

    monkeypatch.setattr(kept.sink, "write", die)
    with pytest.raises(RuntimeError):
        kept.write(frame, BatchId(0))
    assert len(rows(file, "kept.quarantine")) == 2

    # When the batch is repeated twice
    outcomes = [opened().write(frame, BatchId(0)).rows for _ in range(2)]

    assert outcomes == [15, -1]
    assert [one.kept for one in opened().quality.batches()] == [15]
    assert len(rows(file, "kept")) == 15
    assert len(rows(file, "kept.quarantine")) == 2


def test_a_history_is_bounded_and_keeps_its_newest_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.spark.pipeline.quality._MOST_BYTES", 2000)
    log = QualityLog(tmp_path / "own")
    counts = {"rows": 3, "dropped": 1, "quarantined": 0, "violations": {"small": 1}}
    for number in range(100):
        log.note(BatchId(number), counts)
        log.note(BatchId(number), counts | {"rows": 4})

    found = log.batches()

    assert [one.batch.number for one in found] == list(range(100 - len(found), 100))
    assert 8 < len(found) < 100
    assert {one.rows for one in found[1:]} == {4}
    assert sum(path.stat().st_size for path in (tmp_path / "own").iterdir()) < 5000
