"""The log of a table is read up to its last whole commit."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql.types import StructType

from headwater.spark.core.durable import end_of_lines
from headwater.spark.pipeline.table_log.logs import ManifestLog
from headwater.spark.pipeline.table_log.positions import NOTHING, LogPosition
from headwater.spark.pipeline.table_log.source import FilesTask, TableLogReader


def test_a_manifest_is_read_up_to_its_last_whole_line(tmp_path: Path) -> None:
    manifest = tmp_path / "_headwater" / "manifest.jsonl"
    log = ManifestLog(tmp_path)
    assert log.end() == NOTHING
    manifest.parent.mkdir()
    line = json.dumps({"batch": 0, "query": "q", "rows": 2, "files": ["a.parquet"]}) + "\n"
    manifest.write_text(line[:20])
    assert log.end() == NOTHING

    manifest.write_text(line)
    first = log.end()
    with manifest.open("a") as more:
        more.write(line[:-1])
    assert log.end() == first == LogPosition("q", len(line))
    assert [file.path for file in log.added(NOTHING, first)] == [str(tmp_path / "a.parquet")]
    with manifest.open("a") as more:
        more.write("\n")
    assert log.end() == LogPosition("q", 2 * len(line))
    assert len(log.added(first, log.end())) == 1


def test_a_batch_that_was_planned_before_the_table_was_there_is_empty(tmp_path: Path) -> None:
    # Given a reader that found no table, and a table that is made before the batch is divided
    reader = TableLogReader(tmp_path, "parquet", StructType([]), tasks=2)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    manifest = tmp_path / "_headwater" / "manifest.jsonl"
    manifest.parent.mkdir()
    line = json.dumps({"batch": 0, "query": "q", "rows": 2, "files": ["a.parquet"]}) + "\n"
    manifest.write_text(line)
    (tmp_path / "a.parquet").write_bytes(b"rows")
    # Then the batch has nothing, and the next one has the table's rows
    assert reader.partitions(start, end) == []
    (task,) = reader.partitions(end, reader.latestOffset(end, reader.getDefaultReadLimit()))
    assert isinstance(task, FilesTask)
    assert [file.path for file in task.files] == [str(tmp_path / "a.parquet")]


def test_the_end_of_lines_is_found_behind_a_long_partial_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    for whole, partial in (
        (b"", b""),
        (b"", b"x" * 200_000),
        (b"a\nb\n", b""),
        (b"a\n", b"x" * 200_000),
    ):
        path.write_bytes(whole + partial)
        with path.open("rb") as log:
            assert end_of_lines(log) == len(whole)
