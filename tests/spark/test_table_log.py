"""The log of a table is read up to its last whole commit."""

from __future__ import annotations

import json
from pathlib import Path

from headwater.spark.core.durable import end_of_lines
from headwater.spark.pipeline.table_log.logs import ManifestLog
from headwater.spark.pipeline.table_log.positions import NOTHING, LogPosition


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
