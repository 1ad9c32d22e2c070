"""Each sink of a pipeline contains a batch once, however the previous run ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from headwater.errors import DataLoss, DeclarationError, PipelineError
from headwater.spark.pipeline import load, run
from headwater.spark.pipeline.sinks import THERE_ALREADY, BatchId
from headwater.spark.pipeline.sinks.console import Console
from headwater.spark.pipeline.sinks.delta import DeltaAppend, DeltaComplete, DeltaUpdate
from headwater.spark.pipeline.sinks.stream import StreamTable
from tests.spark.checkpoints import give_checkpoint
from tests.spark.stores import Shop
from tests.spark.writes import stages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.peer, pytest.mark.xdist_group("spark")]

STORES = ("headwater",)


def rows_of(path: Path, *columns: str) -> list[tuple[Any, ...]]:
    """Return the rows as any reader of Delta sees them."""
    table = DeltaTable(path).to_pyarrow_table(columns=list(columns))
    return sorted(tuple(row.values()) for row in table.to_pylist())


def some(spark: SparkSession, start: int, end: int) -> DataFrame:
    return spark.range(start, end).selectExpr(
        "id",
        "CASE id % 3 WHEN 0 THEN 'a b/ü%' WHEN 1 THEN NULL ELSE 'x' END AS kind",
        "timestamp'2026-11-21 10:00:00' AS at",
        "cast(1.5 AS decimal(10, 2)) AS price",
        "array(struct(id AS x)) AS nested",
    )


# --- delta ----------------------------------------------------------------------------------------


def test_delta_has_each_batch_of_each_series_once(spark: SparkSession, tmp_path: Path) -> None:
    kept = DeltaAppend(tmp_path / "t", partition_by=("kind",))
    kept.prepare()
    give_checkpoint(kept.checkpoint)

    assert kept.write(some(spark, 0, 6), BatchId(0)) == 6
    assert kept.write(some(spark, 0, 6), BatchId(0)) == THERE_ALREADY
    assert kept.write(some(spark, 6, 6), BatchId(1)) == 0
    assert kept.write(some(spark, 6, 9), BatchId(2)) == 3
    assert kept.write(some(spark, 100, 102), BatchId(0, "backfill")) == 2
    kept.prepare()
    with pytest.raises(
        PipelineError, match=r"has batch 2, .* batch 1: the query's checkpoint was set back"
    ):
        kept.write(some(spark, 0, 99), BatchId(1))
    assert kept.write(some(spark, 0, 99), BatchId(0, "backfill")) == THERE_ALREADY

    assert [id_ for (id_,) in rows_of(kept.path, "id")] == [*range(9), 100, 101]
    read = kept.finished(spark, some(spark, 0, 0).schema)
    expected = some(spark, 0, 9).union(some(spark, 100, 102))
    assert sorted(read.collect()) == sorted(expected.collect())
    assert read.schema.simpleString() == expected.schema.simpleString()


def test_files_that_were_not_committed_are_not_part_of_the_table(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = DeltaAppend(tmp_path / "t")
    kept.prepare()
    give_checkpoint(kept.checkpoint)
    kept.write(some(spark, 0, 3), BatchId(0))

    def die(*_arguments: object, **_options: object) -> None:
        raise RuntimeError("power loss")

    with monkeypatch.context() as patched:
        patched.setattr(DeltaTable, "create_write_transaction", die)
        with pytest.raises(RuntimeError, match="power"):
            kept.write(some(spark, 3, 30), BatchId(1))
    assert [id_ for (id_,) in rows_of(kept.path, "id")] == [0, 1, 2]

    kept.prepare()
    assert kept.write(some(spark, 3, 5), BatchId(1)) == 2

    assert [id_ for (id_,) in rows_of(kept.path, "id")] == [0, 1, 2, 3, 4]
    files = {str(Path(file)) for file in DeltaTable(kept.path).file_uris()}
    assert files == {str(file) for file in kept.path.glob("*.parquet")}


def test_an_update_replaces_the_rows_with_the_same_keys(
    spark: SparkSession, tmp_path: Path
) -> None:
    kept = DeltaUpdate(tmp_path / "t", ("id",), partition_by=("kind",))
    kept.prepare()
    give_checkpoint(kept.checkpoint)

    def version(start: int, end: int, name: str) -> DataFrame:
        return some(spark, start, end).selectExpr("*", f"'{name}' AS version")

    assert kept.write(version(0, 6, "one"), BatchId(0)) == 6
    assert kept.write(version(3, 9, "two"), BatchId(1)) == 6
    assert kept.write(version(0, 9, "one"), BatchId(1)) == THERE_ALREADY
    with pytest.raises(PipelineError, match=r"batch 2 has the key \{'id': 0\} 2 times"):
        kept.write(version(0, 3, "x").union(version(0, 1, "y")), BatchId(2))
    with pytest.raises(PipelineError, match="whose key 'id' is null"):
        kept.write(version(0, 3, "x").replace({1: None}, subset=["id"]), BatchId(2))

    read = kept.finished(spark, version(0, 0, "").schema)
    expected = version(0, 3, "one").union(version(3, 9, "two"))
    assert sorted(read.collect()) == sorted(expected.collect())


def test_a_complete_delta_table_is_replaced_atomically(spark: SparkSession, tmp_path: Path) -> None:
    for parts in ((), ("kind",)):
        kept = DeltaComplete(tmp_path / f"t{len(parts)}", partition_by=parts)
        kept.prepare()
        assert kept.write(some(spark, 0, 5)) == 5
        assert kept.write(some(spark, 3, 9).drop("nested")) == 6

        schema = some(spark, 0, 0).drop("nested").schema
        assert sorted(row.id for row in kept.finished(spark, schema).collect()) == [
            3,
            4,
            5,
            6,
            7,
            8,
        ]
        assert "nested" not in DeltaTable(kept.path).schema().to_arrow().names
        assert kept.write(some(spark, 0, 0)) == 0
        assert kept.finished(spark, some(spark, 0, 0).schema).collect() == []


def test_rows_and_checkpoints_of_another_delta_table_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    kept = DeltaAppend(tmp_path / "t")
    kept.prepare()
    give_checkpoint(kept.checkpoint)
    kept.write(some(spark, 0, 2), BatchId(0))

    with pytest.raises(PipelineError, match=r"has the columns id long, .*nested array.*change one"):
        kept.write(some(spark, 2, 4).drop("nested"), BatchId(1))
    with pytest.raises(PipelineError, match="partitioned by kind: change one"):
        DeltaAppend(kept.path, partition_by=("kind",)).write(some(spark, 2, 4), BatchId(1))
    give_checkpoint(kept.checkpoint, "other")
    with pytest.raises(PipelineError, match=r"was written by query q1, .*belongs to query other"):
        kept.prepare()
    (kept.checkpoint / "metadata").unlink()
    with pytest.raises(PipelineError, match="is gone: everything would be read again"):
        kept.prepare()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a.parquet").write_text("")
    with pytest.raises(PipelineError, match="is not a Delta table"):
        DeltaComplete(tmp_path / "mine").prepare()


# --- stream and console ---------------------------------------------------------------------------


def test_a_stream_has_each_batch_of_each_series_once(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    kept = StreamTable(shop.url, "out", checkpoint=tmp_path / "c", options={"codec": "fields"})
    kept.prepare()
    give_checkpoint(kept.checkpoint)
    frame = some(spark, 0, 5).selectExpr("id AS n")

    assert kept.write(frame, BatchId(0)) == 5
    assert kept.write(frame, BatchId(0)) == THERE_ALREADY
    assert kept.write(frame.limit(0), BatchId(1)) == 0
    assert kept.write(frame, BatchId(0, "backfill")) == 5

    assert sorted(shop.numbers("out")) == sorted([*range(5), *range(5)])
    assert stages(shop) == {}
    with pytest.raises(PipelineError, match="cannot be read back as a table"):
        kept.finished(spark, frame.schema)
    with pytest.raises(DeclarationError, match="Did you mean 'maxlen'"):
        StreamTable(shop.url, "out", checkpoint=tmp_path / "c", options={"maxlne": "3"})


def test_a_stream_that_was_lost_with_its_record_is_refused(
    spark: SparkSession, shop: Shop, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # Given a stream with a batch, in a store that is then emptied
    at = tmp_path / "c"
    kept = StreamTable(shop.url, "out", checkpoint=at, options={})
    kept.prepare()
    give_checkpoint(kept.checkpoint)
    frame = some(spark, 0, 5).selectExpr("id AS n")
    kept.write(frame, BatchId(0))
    shop.client.flushall()

    # When the next batch is written, then it is refused, but not a backfill
    with pytest.raises(
        DataLoss, match=r"has no batch of query .* on record .*, and this is batch 1"
    ):
        kept.write(frame, BatchId(1))
    assert shop.client.keys() == []
    assert kept.write(frame, BatchId(3, "backfill")) == 5

    # And with the option it is a warning
    accepting = StreamTable(shop.url, "out", checkpoint=at, options={"failOnDataLoss": "false"})
    assert accepting.write(frame, BatchId(1)) == 5
    assert "has no batch of query" in caplog.text
    assert kept.write(frame, BatchId(2)) == 5


def test_a_console_prints_each_batch_once(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def console() -> Console:
        return Console("t", checkpoint=tmp_path / "c", options={"rows": "2"})

    console().prepare()

    assert console().write(spark.range(5), BatchId(0)) == 5
    assert console().write(spark.range(5), BatchId(0)) == THERE_ALREADY
    assert console().write(spark.range(0), BatchId(1)) == 0

    shown = capsys.readouterr().out
    assert shown.startswith("t: batch 0\n+---+\n| id|")
    assert shown.count("only showing top 2 rows") == 1
    with pytest.raises(PipelineError, match="cannot be read back"):
        console().finished(spark, spark.range(1).schema)
    with pytest.raises(DeclarationError, match="Did you mean 'rows'"):
        Console("t", checkpoint=tmp_path / "c", options={"row": "2"})


# --- killed drivers -------------------------------------------------------------------------------

FILE = """
[spark]
master = "local[2]"
conf = { "spark.sql.shuffle.partitions" = "2" }

[source.raw]
url = "${HW_TEST_URL}"
stream = "s"
schema = "n bigint"
maxEntriesPerTrigger = 40

[table.t]
sql = "SELECT n FROM raw"
"""

TARGETS = {
    "delta": 'mode = "append"\nsink = "delta"\npath = "t"',
    "update": 'mode = "update"\nsink = "delta"\npath = "t"\nkey = ["n"]',
    "stream": 'mode = "append"\nsink = "stream"\nurl = "${HW_TEST_URL}"\nstream = "t"\ncheckpoint = "c"',
    "console": 'mode = "append"\nsink = "console"\ncheckpoint = "c"\noptions = { rows = 1000 }',
}

KILLED = """
import os, signal, sys
from headwater.spark.pipeline import load, run
from headwater.spark.pipeline.sinks.console import Console
from headwater.spark.pipeline.sinks.delta import DeltaAppend
from headwater.spark.pipeline.sinks.stream import StreamTable

def dying(write):
    def write_and_die(self, frame, batch):
        rows = write(self, frame, batch)
        if batch.number == 1:
            sys.stdout.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        return rows
    return write_and_die

for sink in (DeltaAppend, StreamTable, Console):
    sink.write = dying(sink.write)
run(load(sys.argv[1]))
"""


def printed(text: str) -> list[int]:
    """Return the numbers in the tables that a console shows."""
    cells = (line.strip("| ") for line in text.splitlines() if line.startswith("|"))
    return sorted(int(cell) for cell in cells if cell.isdecimal())


@pytest.mark.slice
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", list(TARGETS))
def test_a_driver_killed_between_sink_and_commit_leaves_each_row_once(
    spark: SparkSession,
    shop: Shop,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kind: str,
) -> None:
    # Given a driver that dies after its second batch is in the sink and before Spark has logged it
    monkeypatch.setenv("HW_TEST_URL", shop.url)
    file = tmp_path / "p.toml"
    file.write_text(FILE + TARGETS[kind] + "\n")
    shop.add("s", range(1, 101))
    child = subprocess.run(
        [sys.executable, "-c", KILLED, str(file)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert child.returncode == -signal.SIGKILL, child.stderr

    # When the next run continues
    shop.add("s", range(101, 111))
    lines: list[str] = []
    made = run(load(file), report=lines.append)

    # Then it does not write that batch again and misses nothing
    assert any("batch 1 was already there" in line for line in lines), lines
    assert made[0].rows == 30
    look: dict[str, Callable[[], list[int]]] = {
        "delta": lambda: [n for (n,) in rows_of(tmp_path / "t", "n")],
        "update": lambda: [n for (n,) in rows_of(tmp_path / "t", "n")],
        "stream": lambda: sorted(shop.numbers("t")),
        "console": lambda: printed(child.stdout + capsys.readouterr().out),
    }
    assert look[kind]() == list(range(1, 111))
