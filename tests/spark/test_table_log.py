"""The log of a table is read up to its last whole commit."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql.types import StructType

from headwater.errors import PipelineError
from headwater.spark.core.durable import end_of_lines
from headwater.spark.pipeline.checkpoints import Checkpoint
from headwater.spark.pipeline.sinks.delta_files import DeltaDirectory, commit_file
from headwater.spark.pipeline.sinks.files import TableFile, rows_of
from headwater.spark.pipeline.table_log.logs import DeltaLog, ManifestLog
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


LINES = "first\u2028second\u2029third\x85fourth\r\n fifth"
"""Text with each character that `str.splitlines` takes for the end of a line and JSON may contain unescaped."""


def test_a_delta_commit_is_read_whatever_its_texts_contain(tmp_path: Path) -> None:
    # Given a table with line separators in a partition value, in the statistics and in the name of a column
    rows = pa.table({"part": [LINES], f"text {LINES}": [LINES]})
    write_deltalake(tmp_path, rows, partition_by=["part"])
    write_deltalake(tmp_path, rows, mode="append")
    assert any(b"\xe2\x80\xa8" in commit_file(tmp_path, n).read_bytes() for n in (0, 1))

    # Then a table that follows it gets the files of each commit
    log = DeltaLog(tmp_path)
    end = log.end()
    assert end.to == 1
    assert [file.values for file in log.added(NOTHING, end)] == [{"part": LINES}] * 2
    (file,) = log.added(LogPosition(end.table, 0), end)
    assert file.values == {"part": LINES}
    (batch,) = rows_of(file, rows.schema)
    assert batch.to_pylist() == rows.to_pylist()
    # And a commit is synced
    DeltaDirectory(tmp_path).sync_commit(DeltaTable(tmp_path))


def test_a_file_with_a_variant_in_pieces_is_refused(tmp_path: Path) -> None:
    # Given a file of an earlier version, in which Spark had stored an attribute of the documents in its own column
    shredded = pa.array(
        [{"metadata": b"\x01", "value": None, "typed_value": 1}],
        pa.struct([("metadata", pa.binary()), ("value", pa.binary()), ("typed_value", pa.int64())]),
    )
    whole = pa.struct([("value", pa.binary()), ("metadata", pa.binary())])
    for array, type_ in (
        (shredded, whole),
        (pa.ListArray.from_arrays([0, 1], shredded), pa.list_(whole)),
        (pa.MapArray.from_arrays([0, 1], ["a"], shredded), pa.map_(pa.string(), whole)),
    ):
        pq.write_table(pa.table({"n": [1], "C": array}), tmp_path / "a.parquet")
        file = TableFile(str(tmp_path / "a.parquet"), {}, 1)

        with pytest.raises(PipelineError, match="the variant column 'c' is shredded, as earlier"):
            list(rows_of(file, pa.schema([("n", pa.int64()), ("c", type_)])))
        (batch,) = rows_of(file, pa.schema([("n", pa.int64())]))
        assert batch.to_pylist() == [{"n": 1}]


def test_offsets_of_spark_are_read_whatever_their_texts_contain(tmp_path: Path) -> None:
    offset = {"streams": {LINES: "1-0"}}
    file = tmp_path / "offsets" / "3"
    file.parent.mkdir()
    file.write_text(
        "\n".join(["v1", json.dumps(offset), json.dumps(offset, ensure_ascii=False), "-"])
    )

    assert Checkpoint(tmp_path).offsets(3) == [offset, None]


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
