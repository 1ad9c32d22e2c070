"""Tables as directories of Parquet files, exactly once.

**Append** (`AppendTable`). A batch is written beside, its files are moved in under names that hold
the batch's number, and then one line of the manifest says that it is there:

    sales/
      category=tea/batch-00000012-00000.parquet
      _headwater/
        manifest.jsonl      one line a batch: number, query, rows, files, new columns; fsynced
        moving.json         there only while files are moved: which batch
        staging/            what Spark is writing
        checkpoint/         the query's

Spark runs a batch again when it was killed before it logged the batch's end. A batch that the
manifest names is then left alone; one that was being moved is removed first. So after every start
the directory holds each row once, for any reader that lists it. (Spark's own file sink keeps such a
log too, but only Spark reads it: to pandas or DuckDB a killed task's files are rows twice.)

**Complete** (`CompleteTable`). Each run writes a new directory and then replaces a symbolic link,
which is atomic: a reader sees the old table or the new one, whole.

    by_category → .by_category.versions/00000007
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote

from headwater.errors import PipelineError
from headwater.spark.core.durable import (
    append_line,
    directories,
    replacing,
    sync,
    sync_all,
    whole_lines,
)
from headwater.spark.pipeline.checkpoints import Checkpoint
from headwater.spark.pipeline.sinks import THERE_ALREADY, BatchId, check_is_last

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

STATE: Final = "_headwater"
"""Readers of Parquet directories pass over names that begin with an underscore."""


class WrittenBatch(NamedTuple):
    """One line of a manifest. ``files`` are relative to the table's directory, ``columns`` are those
    that no batch before had, with their types."""

    id: BatchId
    query: str
    rows: int
    files: tuple[str, ...]
    columns: Mapping[str, str]


class AppendTable:
    """The table at ``path``; only one query at a time writes to it.

    ``checkpoint`` is its own unless it is given: a quarantine is written by its table's query.
    """

    def __init__(
        self, path: Path, partition_by: tuple[str, ...], *, checkpoint: Path | None = None
    ) -> None:
        self.path = path
        self.partition_by = partition_by
        self.state = path / STATE
        self.checkpoint = checkpoint or self.state / "checkpoint"
        self._manifest = self.state / "manifest.jsonl"
        self._moving = self.state / "moving.json"
        self._staging = self.state / "staging"

    def prepare(self) -> None:
        """Make the directory, and undo what a killed run left half done.

        Raises `PipelineError` where files are that this table did not write.
        """
        if (self.path / "_delta_log").exists():
            raise PipelineError(
                f"{self.path} is a Delta table, and the sink is parquet: set sink = 'delta', or name "
                "another path"
            )
        if self.path.exists() and not self.state.exists() and _visible(self.path):
            raise PipelineError(
                f"{self.path} holds files that this pipeline did not write; name another path"
            )
        self.state.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self._staging, ignore_errors=True)
        batches = self.batches()
        self._undo_move({batch.id for batch in batches})
        query = Checkpoint(self.checkpoint).query()
        if batches and query is None:
            raise PipelineError(
                f"{self.path} was written from a checkpoint that is gone ({self.checkpoint}); "
                "a new one would read everything once more. Restore it, or remove the whole table."
            )
        if batches and batches[-1].query != query:
            raise PipelineError(
                f"{self.path} was written from another checkpoint (query {batches[-1].query}) than "
                f"lies there now (query {query}). Restore that one, or remove the whole table."
            )

    def batches(self) -> list[WrittenBatch]:
        """The batches that are in the table, in their order."""
        return [
            WrittenBatch(
                BatchId(line["batch"], line.get("series", "")),
                line["query"],
                line["rows"],
                tuple(line["files"]),
                line.get("columns", {}),
            )
            for line in map(json.loads, whole_lines(self._manifest))
        ]

    def files(self) -> list[Path]:
        """The files of the table: what a reader is to read while a batch is being moved in."""
        return [self.path / name for batch in self.batches() for name in batch.files]

    def finished(self, spark: SparkSession, schema: StructType) -> DataFrame:
        """What is in the table, with the query's schema: a column of partitions keeps its type."""
        files = [str(file) for file in self.files()]
        if not files:
            return spark.createDataFrame([], schema)
        frame = spark.read.schema(schema).option("basePath", str(self.path)).parquet(*files)
        return frame.select(*(f"`{column}`" for column in schema.names))

    def write(self, frame: DataFrame, batch: BatchId) -> int:
        """Add a batch; returns its rows. One that is there already is left alone.

        Raises `PipelineError` for rows that cannot be read together with those that are there.
        """
        batches = self.batches()
        done = [one.id.number for one in batches if one.id.series == batch.series]
        if done and batch.number <= max(done):
            check_is_last(self.path, batch, max(done))
            return THERE_ALREADY
        columns = self._new_columns(frame.schema, batches)
        shutil.rmtree(self._staging, ignore_errors=True)
        writer = frame.write.mode("overwrite")
        if self.partition_by:
            writer = writer.partitionBy(*self.partition_by)
        writer.parquet(str(self._staging))
        rows, moves = self._plan_moves(batch)
        sync_all(source for source, _name in moves)
        self._begin_move(batch)
        for source, name in moves:
            _move(source, self.path / name)
        sync_all(directories([self.path / name for _source, name in moves], self.path))
        query = Checkpoint(self.checkpoint).query()
        assert query is not None, "Spark writes the checkpoint's metadata before its first batch"
        files = tuple(name for _source, name in moves)
        self._append(WrittenBatch(batch, query, rows, files, columns if rows else {}))
        self._moving.unlink()
        shutil.rmtree(self._staging, ignore_errors=True)
        return rows

    # --- inside -----------------------------------------------------------------------------------

    def _new_columns(self, schema: StructType, batches: list[WrittenBatch]) -> dict[str, str]:
        """Those that no batch had. A column may come or go, and is null where it is not; what it is
        must stay, and so must the directories."""
        # By lower case: readers look columns up without regard to it.
        known = {name.lower(): kind for one in batches for name, kind in one.columns.items()}
        now = {field.name: field.dataType.simpleString() for field in schema.fields}
        changed = [
            f"{name} is {known[name.lower()]}, and the SQL gives {kind}"
            for name, kind in now.items()
            if known.get(name.lower(), kind) != kind
        ]
        file = next((Path(file) for batch in batches for file in batch.files), None)
        parts = self.partition_by
        if file is not None:
            parts = tuple(unquote(part.partition("=")[0]) for part in file.parent.parts)
        if parts != self.partition_by:
            there, asked = (", ".join(by) or "nothing" for by in (parts, self.partition_by))
            changed.append(f"it is partitioned by {there}, and is to be by {asked}")
        if changed:
            raise PipelineError(
                f"{self.path}: {'; '.join(changed)}: its files could not be read together. Change it "
                "back (CAST in SQL), or name another path."
            )
        return {name: kind for name, kind in now.items() if name.lower() not in known}

    def _plan_moves(self, batch: BatchId) -> tuple[int, list[tuple[Path, str]]]:
        """The rows that were written, and each file with its name in the table."""
        import pyarrow.parquet as pq

        rows, moves = 0, list[tuple[Path, str]]()
        for source in sorted(self._staging.rglob("*.parquet")):
            count: int = pq.read_metadata(source).num_rows
            if not count:
                continue  # a task without rows writes an empty file
            rows += count
            place = source.relative_to(self._staging).parent
            moves.append((source, str(place / f"{_prefix(batch)}-{len(moves):05d}.parquet")))
        return rows, moves

    def _begin_move(self, batch: BatchId) -> None:
        with replacing(self._moving) as beside:
            beside.write_text(json.dumps({"batch": batch.number, "series": batch.series}))

    def _undo_move(self, done: set[BatchId]) -> None:
        try:
            moving = json.loads(self._moving.read_text())
        except FileNotFoundError:
            return
        batch = BatchId(moving["batch"], moving.get("series", ""))
        if batch not in done:
            for file in self.path.rglob(f"{_prefix(batch)}-*.parquet"):
                file.unlink()
        self._moving.unlink()

    def _append(self, batch: WrittenBatch) -> None:
        line = {
            "batch": batch.id.number,
            "series": batch.id.series,
            "query": batch.query,
            "rows": batch.rows,
            "files": list(batch.files),
            "columns": dict(batch.columns),
        }
        append_line(self._manifest, json.dumps(line).encode())


class CompleteTable:
    """The table at ``path``, which every run makes anew."""

    def __init__(self, path: Path, partition_by: tuple[str, ...]) -> None:
        self.path = path
        self.partition_by = partition_by
        self._versions = path.parent / f".{path.name}.versions"

    def prepare(self) -> None:
        """Make the directory above; raises `PipelineError` where something else is at ``path``."""
        if os.path.lexists(self.path) and not self._is_ours():
            raise PipelineError(
                f"{self.path} is there and is no table that mode complete made; name another path"
            )
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def write(self, frame: DataFrame) -> int:
        """Put ``frame``'s rows in the place of what the table holds; returns their number."""
        import pyarrow.parquet as pq

        number = max((int(old.name) for old in self._old()), default=0) + 1
        version = self._versions / f"{number:08d}"
        beside = self._versions / f"{number:08d}.partial"
        shutil.rmtree(beside, ignore_errors=True)
        writer = frame.write.mode("overwrite")
        if self.partition_by:
            writer = writer.partitionBy(*self.partition_by)
        writer.parquet(str(beside))
        files = list(beside.rglob("*.parquet"))
        rows: int = sum(pq.read_metadata(file).num_rows for file in files)
        sync_all([*files, *directories(files, beside)])
        beside.rename(version)
        sync(self._versions)
        with replacing(self.path) as link:
            link.symlink_to(version.relative_to(self.path.parent))
        # The version before stays for one more run: a reader may have listed it a moment ago.
        for old in self._old()[:-2]:
            shutil.rmtree(old, ignore_errors=True)
        return rows

    def finished(self, spark: SparkSession, schema: StructType) -> DataFrame:
        """What is in the table, with the columns of its SQL: of a directory's name Spark would make
        the number 1234 where the column holds the text '01234', and without files it knows none."""
        frame = spark.read.schema(schema).parquet(str(self.path))
        return frame.select(*(f"`{column}`" for column in schema.names))

    def _old(self) -> list[Path]:
        """The versions that are whole, oldest first."""
        if not self._versions.is_dir():
            return []
        return sorted(version for version in self._versions.iterdir() if version.name.isdigit())

    def _is_ours(self) -> bool:
        return self.path.is_symlink() and (
            Path(os.readlink(self.path)).parent.name == self._versions.name  # noqa: PTH115
        )


def _prefix(batch: BatchId) -> str:
    """What the names of a batch's files begin with; a series has a name that a file can have."""
    return f"{batch.series or 'batch'}-{batch.number:08d}"


def _move(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    source.replace(target)


def _visible(directory: Path) -> bool:
    return any(not entry.name.startswith((".", "_")) for entry in directory.iterdir())
