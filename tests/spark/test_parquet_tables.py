"""Tables of Parquet files contain each batch once, and only files that can be read together."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from headwater.errors import PipelineError
from headwater.spark.pipeline.sinks import BatchId
from headwater.spark.pipeline.sinks.parquet import AppendTable, CompleteTable
from tests.spark.checkpoints import give_checkpoint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


def rows_in(kept: AppendTable) -> list[int]:
    found: list[int] = ds.dataset(str(kept.path)).to_table().column("id").to_pylist()
    return sorted(found)


def test_an_existing_batch_is_not_written_again(spark: SparkSession, tmp_path: Path) -> None:
    kept = AppendTable(tmp_path / "t", ())
    kept.prepare()
    give_checkpoint(kept.checkpoint)

    assert kept.write(spark.range(0, 5), BatchId(0)) == 5
    assert kept.write(spark.range(5, 5), BatchId(1)) == 0
    assert kept.write(spark.range(5, 8), BatchId(2)) == 3
    assert kept.write(spark.range(5, 8), BatchId(2)) == -1
    kept.prepare()
    with pytest.raises(
        PipelineError, match=r"has batch 2, .* batch 1: the query's checkpoint was set"
    ):
        kept.write(spark.range(0, 100), BatchId(1))

    assert rows_in(kept) == list(range(8))
    assert sorted(kept.files()) == sorted(kept.path.glob("*.parquet"))


def test_batches_that_another_writer_has_added_are_noticed(
    spark: SparkSession, tmp_path: Path
) -> None:
    # Given a table, to which a backfill adds a column between two batches of its query
    kept, backfill = AppendTable(tmp_path / "t", ()), AppendTable(tmp_path / "t", ())
    kept.prepare()
    give_checkpoint(kept.checkpoint)
    kept.write(spark.range(2), BatchId(0))
    wider = spark.range(2, 4).selectExpr("id", "1 AS n")
    assert backfill.write(wider, BatchId(0, "backfill-1")) == 2

    # Then the query and the backfill each know what the other has written
    with pytest.raises(PipelineError, match="n is int, but the SQL has string"):
        kept.write(spark.range(4, 6).selectExpr("id", "'1' AS n"), BatchId(1))
    assert kept.write(wider, BatchId(0, "backfill-1")) == -1
    assert kept.write(spark.range(4, 6), BatchId(1)) == 2
    assert backfill.write(spark.range(4, 6), BatchId(1)) == -1
    assert rows_in(kept) == list(range(6))


def test_rows_that_do_not_fit_the_existing_ones_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    kept = AppendTable(tmp_path / "t", ("day",))
    kept.prepare()
    give_checkpoint(kept.checkpoint)
    rows = spark.range(2).selectExpr("id", "'mon' AS day")
    kept.write(rows, BatchId(0))

    # A column may be added, and removed again
    assert kept.write(rows.selectExpr("*", "1 AS n"), BatchId(1)) == 2
    assert kept.write(rows, BatchId(2)) == 2
    # Its type must not change, and neither must the directories
    with pytest.raises(PipelineError, match=r"n is int, but the SQL has string: its files"):
        kept.write(rows.selectExpr("*", "'1' AS n"), BatchId(3))
    with pytest.raises(PipelineError, match=r"N is int, but the SQL has string"):
        kept.write(rows.selectExpr("*", "'1' AS N"), BatchId(3))
    with pytest.raises(PipelineError, match="partitioned by day, but should be by nothing"):
        AppendTable(tmp_path / "t", ()).write(rows, BatchId(3))

    assert rows_in(kept) == [0, 0, 0, 1, 1, 1]
    assert [batch.rows for batch in kept.batches()] == [2, 2, 2]


def test_an_interrupted_move_is_undone(spark: SparkSession, tmp_path: Path) -> None:
    def rows(start: int, end: int) -> DataFrame:
        return spark.range(start, end).selectExpr("id", "id AS part")

    kept = AppendTable(tmp_path / "t", ("part",))
    kept.prepare()
    give_checkpoint(kept.checkpoint)
    kept.write(rows(0, 2), BatchId(0))
    # Given a run that was killed with one of its three files in place and half a line written
    (kept.path / "part=2").mkdir()
    victim = kept.path / "part=2" / "batch-00000001-00000.parquet"
    victim.write_bytes(next(kept.path.rglob("batch-00000000-*.parquet")).read_bytes())
    (kept.state / "moving.json").write_text('{"batch": 1}')
    with (kept.state / "manifest.jsonl").open("ab") as manifest:
        manifest.write(b'{"batch": 1, "qu')

    again = AppendTable(tmp_path / "t", ("part",))
    again.prepare()

    assert not victim.exists()
    assert again.write(rows(2, 5), BatchId(1)) == 3
    assert [batch.id.number for batch in again.batches()] == [0, 1]
    assert rows_in(kept) == [0, 1, 2, 3, 4]


def test_another_checkpoint_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    kept = AppendTable(tmp_path / "t", ())
    kept.prepare()
    give_checkpoint(kept.checkpoint)
    kept.write(spark.range(3), BatchId(0))

    give_checkpoint(kept.checkpoint, "other")
    with pytest.raises(PipelineError, match="from another checkpoint"):
        kept.prepare()
    (kept.checkpoint / "metadata").unlink()
    with pytest.raises(PipelineError, match="checkpoint that is gone"):
        kept.prepare()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a.parquet").write_text("")
    with pytest.raises(PipelineError, match="did not write"):
        AppendTable(tmp_path / "mine", ()).prepare()


def test_a_complete_table_is_replaced_atomically(spark: SparkSession, tmp_path: Path) -> None:
    kept = CompleteTable(tmp_path / "t", ())
    kept.prepare()
    kept.write(spark.range(3))
    open_before = sorted((tmp_path / "t").resolve().glob("*.parquet"))

    kept.prepare()
    assert kept.write(spark.range(3, 8)) == 5

    assert sorted(pq.read_table(tmp_path / "t").column("id").to_pylist()) == [3, 4, 5, 6, 7]
    assert all(path.exists() for path in open_before)
    (tmp_path / "mine").mkdir()
    with pytest.raises(PipelineError, match="is not a table of mode complete"):
        CompleteTable(tmp_path / "mine", ()).prepare()


# --- killed drivers -------------------------------------------------------------------------------
