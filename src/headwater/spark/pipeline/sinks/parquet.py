"""Tables as directories of Parquet files, written exactly once.

**Append** (`AppendTable`). A batch is written to a staging directory. Its files are moved into the table under
names that contain the batch's number. Then one line of the manifest records the batch:

    sales/
      category=tea/batch-00000012-00000.parquet
      _headwater/
        manifest.jsonl      one line per batch: number, query, rows, files, new columns; fsynced
        moving.json         the batch whose files are being moved; exists only during the move
        times.json          the zone of times in names of directories, the type of times in files; older tables lack it
        repairing.json      new names of files; exists only while `headwater pipeline repair` moves them
        staging/            files that Spark is writing
        checkpoint/         the query's checkpoint

Spark repeats a batch if it was killed before it logged the batch's end. A batch in the manifest is not written
again. Files of a batch that was being moved are removed first. After every start, any reader that lists the
directory therefore finds each row once. (Spark's own file sink has such a log too, but only Spark reads that log:
pandas or DuckDB would read the rows of a killed task's files twice.)

**Complete** (`CompleteTable`). Each run writes a new directory and then atomically replaces a symbolic link,
so a reader sees either the old table or the new one.

    by_category → .by_category.versions/00000007
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote, unquote

from headwater.errors import PipelineError
from headwater.spark.core.durable import (
    append_line,
    directories,
    lines_of,
    replacing,
    sync,
    sync_all,
    whole_lines,
)
from headwater.spark.pipeline.checkpoints import Checkpoint
from headwater.spark.pipeline.sinks import THERE_ALREADY, BatchId, check_is_last
from headwater.spark.pipeline.sinks.layout import (
    check_directory,
    check_partition_names,
    has_files,
    partition_values,
    read_files,
    write_files,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

STATE: Final = "_headwater"
"""Headwater's directory in a table. Readers of Parquet directories skip names that begin with an underscore."""


class WrittenBatch(NamedTuple):
    """One line of a manifest.

    ``files`` are relative to the table's directory. ``columns`` are the types, by name, of the columns that no
    earlier batch had.
    """

    id: BatchId
    query: str
    rows: int
    files: tuple[str, ...]
    columns: Mapping[str, str]


class AppendTable:
    """The table at ``path``; only one query at a time writes to it.

    ``checkpoint`` is by default in the table's directory; a quarantine uses the checkpoint of its table's query.
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
        self._times = self.state / "times.json"
        self._repairing = self.state / "repairing.json"
        self._written = _Written()

    def check(self) -> None:
        """Raise `PipelineError` if another writer or query used the directory, or a repair was interrupted."""
        check_directory(self.path)
        if (self.path / "_delta_log").exists():
            raise PipelineError(
                f"{self.path} is a Delta table, but the sink is parquet: set sink = 'delta', or name "
                "another path"
            )
        if self.path.exists() and not self.state.exists() and has_files(self.path):
            raise PipelineError(
                f"{self.path} contains files that this pipeline did not write; name another path"
            )
        batches = self.batches()
        if not batches:
            check_partition_names(self.path, self.partition_by)
        query = Checkpoint(self.checkpoint).query()
        if self._repairing.exists():
            raise PipelineError(
                f"{self.path}: a repair of the table was interrupted; run headwater pipeline repair again"
            )
        if batches and query is None:
            raise PipelineError(
                f"{self.path} was written from a checkpoint that is gone ({self.checkpoint}); "
                "a new one would read everything again. Restore it, or remove the whole table."
            )
        if batches and batches[-1].query != query:
            raise PipelineError(
                f"{self.path} was written from another checkpoint (query {batches[-1].query}) than "
                f"the current one (query {query}). Restore that one, or remove the whole table."
            )

    def prepare(self) -> None:
        """Create the directory, and undo the incomplete work of a killed run. Raises as `check` does."""
        self.check()
        self.state.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self._staging, ignore_errors=True)
        self._written = _Written()
        batches = self.batches()
        if not batches:
            self._note_times(type="micros")
        self._undo_move({batch.id for batch in batches})

    def local_times(self) -> list[str]:
        """Return the partition columns whose times may be in the zone of the session that wrote them.

        Versions of Headwater before the file times.json wrote times in that zone.
        """
        done = self._times.exists() and not self._repairing.exists()
        batches = [] if done else self.batches()
        kinds = {name.lower(): kind for batch in batches for name, kind in batch.columns.items()}
        return [name for name in self.partition_by if kinds.get(name.lower()) == "timestamp"]

    def repair_times(self, in_utc: Callable[[str], str], *, dry_run: bool = False) -> int:
        """Move the files of `local_times` to the directories of their times in UTC; return the number of files.

        ``in_utc`` converts a time, as a string, from the zone in which it was written to UTC. The next repair
        completes a repair that was killed; until then `check` fails.
        """
        if self._repairing.exists():
            moves = json.loads(self._repairing.read_text())
        else:
            moves = self._moves(set(self.local_times()), in_utc)
            self._renamed(moves)  # raises before anything is changed
        if dry_run:
            return len(moves)
        with replacing(self._repairing) as temporary:
            temporary.write_text(json.dumps(moves))
        for old, new in moves.items():
            if (self.path / old).exists():
                _move(self.path / old, self.path / new)
        sync_all(directories([self.path / name for name in moves.values()], self.path))
        manifest = self._renamed(moves)
        with replacing(self._manifest) as temporary:
            temporary.write_bytes(manifest)
        self._note_times()
        for place in {self.path / old for old in moves}:
            for parent in place.parents[: len(self.partition_by)]:
                with suppress(OSError):  # the directory is not empty
                    parent.rmdir()
        self._repairing.unlink()
        return len(moves)

    def batches(self) -> list[WrittenBatch]:
        """Return the batches in the table, in order."""
        return [_batch_of(line) for line in whole_lines(self._manifest)]

    def files(self) -> list[Path]:
        """Return the files of the table, without those of a batch that is being moved in."""
        return [self.path / name for batch in self.batches() for name in batch.files]

    def finished(self, spark: SparkSession, schema: StructType) -> DataFrame:
        """Return the table's contents with the columns of ``schema``, so partition columns keep their types."""
        files = [str(file) for file in self.files()]
        if not files:
            return spark.createDataFrame([], schema)
        return read_files(spark, schema, files, self.path)

    def rows(self) -> int:
        """Return the number of rows in the table, by its manifest."""
        return sum(batch.rows for batch in self.batches())

    def write(self, frame: DataFrame, batch: BatchId) -> int:
        """Add a batch; return its number of rows, or `THERE_ALREADY`.

        Raises `PipelineError` for columns or partitions that do not agree with those of the table.
        """
        self._written.read(self._manifest)
        done = self._written.last.get(batch.series)
        if done is not None and batch.number <= done:
            check_is_last(self.path, batch, done)
            return THERE_ALREADY
        columns = self._new_columns(frame.schema)
        shutil.rmtree(self._staging, ignore_errors=True)
        write_files(frame, self.partition_by, self._staging, micros=self._has_micros())
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

    # --- internals --------------------------------------------------------------------------------

    def _note_times(self, **more: str) -> None:
        with replacing(self._times) as temporary:
            temporary.write_text(json.dumps({"zone": "UTC"} | more))

    def _has_micros(self) -> bool:
        """Return whether times in the table's files have microseconds. All files of a table have the same type."""
        try:
            return bool(json.loads(self._times.read_text()).get("type") == "micros")
        except FileNotFoundError:
            return False

    def _moves(self, columns: set[str], in_utc: Callable[[str], str]) -> dict[str, str]:
        moves = {}
        for batch in self.batches():
            for file in batch.files:
                place = Path(file)
                parts = [
                    f"{part.partition('=')[0]}={quote(in_utc(value), safe=' ')}"
                    if name in columns and value is not None
                    else part
                    for part, (name, value) in zip(
                        place.parts, partition_values(place.parent).items(), strict=False
                    )
                ]
                moves[file] = str(Path(*parts, place.name))
        return {old: new for old, new in moves.items() if old != new}

    def _renamed(self, moves: Mapping[str, str]) -> bytes:
        """Return the manifest with the new names of files.

        Its lines keep their lengths, because tables that read this one store an offset in the manifest.
        """
        lines = []
        for line in whole_lines(self._manifest):
            values = json.loads(line)
            values["files"] = [moves.get(name, name) for name in values["files"]]
            text = json.dumps(values).encode()
            if len(text) > len(line):
                text = json.dumps(values, separators=(",", ":")).encode()
            if len(text) > len(line):
                raise PipelineError(
                    f"{self._manifest}: the new file names of batch {values['batch']} do not fit into its line, "
                    "whose length must not change"
                )
            lines.append(text.ljust(len(line)) + b"\n")
        return b"".join(lines)

    def _new_columns(self, schema: StructType) -> dict[str, str]:
        """Return the columns that no earlier batch had.

        A column may be added or removed, and is null in batches without it. Raises `PipelineError` if the type
        of a column or the partition columns have changed.
        """
        known, file = self._written.columns, self._written.file
        now = {field.name: field.dataType.simpleString() for field in schema.fields}
        changed = [
            f"{name} is {known[name.lower()]}, but the SQL has {kind}"
            for name, kind in now.items()
            if known.get(name.lower(), kind) != kind
        ]
        parts = self.partition_by
        if file is not None:
            parts = tuple(unquote(part.partition("=")[0]) for part in file.parent.parts)
        if parts != self.partition_by:
            there, asked = (", ".join(by) or "nothing" for by in (parts, self.partition_by))
            changed.append(f"it is partitioned by {there}, but should be by {asked}")
        if changed:
            raise PipelineError(
                f"{self.path}: {'; '.join(changed)}: its files could not be read together. Change it "
                "back (CAST in SQL), or name another path."
            )
        return {name: kind for name, kind in now.items() if name.lower() not in known}

    def _plan_moves(self, batch: BatchId) -> tuple[int, list[tuple[Path, str]]]:
        """Return the number of rows written, and each file with its name in the table."""
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
        with replacing(self._moving) as temporary:
            temporary.write_text(json.dumps({"batch": batch.number, "series": batch.series}))

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


class _Written:
    """A writer's summary of a manifest. Only new lines are read, because a manifest has a line for each batch.

    ``last`` is the number of the last batch by series. ``columns`` are the types of all columns by name, in lower
    case because readers ignore case. ``file`` is the first file; None if no batch has a file.
    """

    def __init__(self) -> None:
        self.last: dict[str, int] = {}
        self.columns: dict[str, str] = {}
        self.file: Path | None = None
        self._read = 0

    def read(self, manifest: Path) -> None:
        """Read the lines that were added since the last call."""
        try:
            with manifest.open("rb") as log:
                log.seek(self._read)
                text = log.read()
        except FileNotFoundError:
            return
        text = text[: text.rfind(b"\n") + 1]
        for batch in map(_batch_of, lines_of(text)):
            series, number = batch.id.series, batch.id.number
            self.last[series] = max(number, self.last.get(series, number))
            self.columns |= {name.lower(): kind for name, kind in batch.columns.items()}
            if self.file is None and batch.files:
                self.file = Path(batch.files[0])
        self._read += len(text)


def _batch_of(line: bytes) -> WrittenBatch:
    values = json.loads(line)
    return WrittenBatch(
        BatchId(values["batch"], values.get("series", "")),
        values["query"],
        values["rows"],
        tuple(values["files"]),
        values.get("columns", {}),
    )


class CompleteTable:
    """The table at ``path`` that every run rebuilds."""

    def __init__(self, path: Path, partition_by: tuple[str, ...]) -> None:
        self.path = path
        self.partition_by = partition_by
        self._versions = path.parent / f".{path.name}.versions"

    def check(self) -> None:
        """Raise `PipelineError` if the table's path is something other than a table of mode complete."""
        check_directory(self.path.parent)
        check_partition_names(self.path, self.partition_by)
        if os.path.lexists(self.path) and not self._is_ours():
            raise PipelineError(
                f"{self.path} exists, but is not a table of mode complete; name another path"
            )

    def prepare(self) -> None:
        """Create the parent directory. Raises as `check` does."""
        self.check()
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def write(self, frame: DataFrame) -> int:
        """Replace the table's contents with the rows of ``frame``; return the number of rows."""
        import pyarrow.parquet as pq

        number = max((int(old.name) for old in self._old()), default=0) + 1
        version = self._versions / f"{number:08d}"
        partial = self._versions / f"{number:08d}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        write_files(frame, self.partition_by, partial)
        files = list(partial.rglob("*.parquet"))
        rows: int = sum(pq.read_metadata(file).num_rows for file in files)
        sync_all([*files, *directories(files, partial)])
        partial.rename(version)
        sync(self._versions)
        with replacing(self.path) as link:
            link.symlink_to(version.relative_to(self.path.parent))
        # The previous version stays for one more run, because a reader may have just listed its files.
        for old in self._old()[:-2]:
            shutil.rmtree(old, ignore_errors=True)
        return rows

    def finished(self, spark: SparkSession, schema: StructType) -> DataFrame:
        """Return the table's contents with the columns of ``schema``."""
        return read_files(spark, schema, [str(self.path)])

    def rows(self) -> int | None:
        """Return the number of rows in the current version; None before the first version."""
        import pyarrow.parquet as pq

        if not self.path.exists():
            return None
        files = self.path.resolve().rglob("*.parquet")
        counts: list[int] = [pq.read_metadata(file).num_rows for file in files]
        return sum(counts)

    def _old(self) -> list[Path]:
        """Return the complete versions, oldest first."""
        if not self._versions.is_dir():
            return []
        return sorted(version for version in self._versions.iterdir() if version.name.isdigit())

    def _is_ours(self) -> bool:
        return self.path.is_symlink() and (
            Path(os.readlink(self.path)).parent.name == self._versions.name  # noqa: PTH115
        )


def _prefix(batch: BatchId) -> str:
    """Return the prefix of a batch's file names. A series is always a valid part of a file name."""
    return f"{batch.series or 'batch'}-{batch.number:08d}"


def _move(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    source.replace(target)
