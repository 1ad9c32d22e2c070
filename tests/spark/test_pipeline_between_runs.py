"""Which changes of a pipeline are allowed between two runs, and errors with one sentence."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headwater.cli.main import main
from headwater.errors import ListenError, PipelineError
from headwater.spark.pipeline import Progress, load
from headwater.spark.pipeline.checkpoints import Checkpoint
from headwater.spark.pipeline.metrics import served
from headwater.spark.pipeline.sinks.parquet import AppendTable, CompleteTable
from headwater.spark.pipeline.table_sinks import TableSinks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ONLY_COMPLETE = """
[input.items]
path = "items.csv"
[table.kinds]
mode = "complete"
sql = "SELECT DISTINCT category FROM items"
path = "tables/kinds"
"""


def test_sources_keep_their_number_and_order_but_may_be_renamed(tmp_path: Path) -> None:
    # Spark identifies a query's sources by index, so each would continue at the other's position.
    checkpoint = Checkpoint(tmp_path / "c")
    checkpoint.note_sources(["a", "b"])
    checkpoint.note_sources(["b", "a"])  # allowed: nothing was read yet
    checkpoint.note_sources(["a", "b"])
    (checkpoint.path / "offsets").mkdir()
    (checkpoint.path / "offsets" / "0").write_text("v1\n{}\n{}\n{}")

    for names in (["b", "a"], ["a"], ["a", "c", "b"], ["c", "a"]):
        with pytest.raises(
            PipelineError, match="belongs to a, b: the sources and their order must not"
        ):
            checkpoint.note_sources(names)
    checkpoint.note_sources(["a", "new"])

    assert checkpoint.sources() == ["a", "new"]


def test_two_runs_cannot_write_a_complete_table_at_once(tmp_path: Path) -> None:
    (tmp_path / "items.csv").write_text("item,category\ntea,drinks\n")
    file = tmp_path / "kinds.toml"
    file.write_text(ONLY_COMPLETE)

    with ExitStack() as first:
        TableSinks(load(file)).prepare(first)
        with (
            ExitStack() as second,
            pytest.raises(PipelineError, match=r"kinds: .*being written by"),
        ):
            TableSinks(load(file)).prepare(second)
    with ExitStack() as third:
        TableSinks(load(file)).prepare(third)


def test_metrics_without_their_package_fail_with_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with (
        pytest.raises(ListenError, match=r"pip install 'headwater\[spark\]'"),
        served(Progress(), port=0),
    ):
        pass


def test_a_pipeline_without_spark_fails_with_the_extras_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("pyspark", "pyspark.sql", "pyspark.sql.types"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(SystemExit):
        main(["pipeline", "status", str(tmp_path / "kinds.toml")])
    said = capsys.readouterr().err
    assert said.startswith("headwater: pipelines need Spark for Python")
    assert "pip install 'headwater[spark]'" in said


def test_impossible_names_are_mistakes_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "kinds.toml"
    file.write_text(
        ONLY_COMPLETE.replace("items.csv", "x" * 3000 + ".csv")
        + '[source.s]\nurl = "redis://localhost"\nstream = "s"\nschema = "id string"\n'
        + '[dead_letters]\npath = "dead"\nstreams = [""]\n'
    )
    with pytest.raises(PipelineError) as caught:
        load(file)
    assert ".csv' cannot be a path: File name too long" in str(caught.value)
    assert "dead_letters.streams: one of the names is empty" in str(caught.value)


def test_a_delta_table_is_not_continued_as_plain_parquet(tmp_path: Path) -> None:
    (tmp_path / "_headwater").mkdir()
    (tmp_path / "_delta_log").mkdir()
    with pytest.raises(PipelineError, match="is a Delta table, but the sink is parquet"):
        AppendTable(tmp_path, ()).prepare()


@pytest.mark.spark
@pytest.mark.peer
@pytest.mark.xdist_group("spark")
def test_a_complete_table_is_read_as_it_was_written(spark: SparkSession, tmp_path: Path) -> None:
    # Given partition values that look like numbers, and then no rows
    kept = CompleteTable(tmp_path / "parts", ("code",))
    kept.prepare()
    rows = spark.createDataFrame([(1, "0123")], "n int, code string")
    for frame in (rows, rows.where("n > 1")):
        kept.write(frame)
        assert kept.finished(spark, rows.schema).collect() == frame.collect()
