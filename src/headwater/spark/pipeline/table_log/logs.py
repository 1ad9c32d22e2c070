"""The files that each commit added to a table.

Rule 1. A position counts units that no longer change: bytes of a manifest, versions of a Delta table.
Rule 2. A position belongs to one table. A table that was removed and made again raises an error.
Rule 3. Rows are only added. A commit that removes rows raises an error; a commit that only rewrites files
        (OPTIMIZE) does not add rows.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import unquote

from headwater.errors import DataLoss, PipelineError
from headwater.spark.core.durable import end_of_lines
from headwater.spark.pipeline.sinks.delta_files import has_vectors, value_text
from headwater.spark.pipeline.sinks.layout import partition_values
from headwater.spark.pipeline.sinks.parquet import STATE
from headwater.spark.pipeline.table_log.positions import NOTHING, LogPosition

if TYPE_CHECKING:
    from deltalake import DeltaTable


class AddedFile(NamedTuple):
    """A Parquet file with its partition values. ``rows`` is None if the log does not record a number of rows."""

    path: str
    values: dict[str, str | None]
    rows: int | None


class TableLog(Protocol):
    """The log of one table."""

    def end(self) -> LogPosition:
        """Return the position after the newest commit."""

    def added(self, start: LogPosition, end: LogPosition) -> list[AddedFile]:
        """Return the files that the commits after ``start``, up to and including ``end``, added, in order.

        Raises `PipelineError` for a commit that removes rows, and `DataLoss` for a commit that cannot be read.
        """


def log_of(kind: str, path: Path) -> TableLog:
    """Return the log of the table at ``path``; ``kind`` is its sink, ``parquet`` or ``delta``."""
    return DeltaLog(path) if kind == "delta" else ManifestLog(path)


def checked(path: Path, start: LogPosition, end: LogPosition) -> LogPosition:
    """Return ``end``. Raises `DataLoss` if ``end`` is before ``start``, or belongs to another table."""
    if start.table is None or (start.table == end.table and start.to <= end.to):
        return end
    gone = end.table is None
    raise _lost(path, "is gone" if gone else "was removed and made again, or restored from a copy")


def _lost(path: Path, what: str) -> DataLoss:
    return DataLoss(
        f"the table at {path} {what}: new rows cannot be distinguished from rows already read. Restore "
        "it; or, to rebuild the table that reads it, remove that table and its checkpoint."
    )


class ManifestLog:
    """The manifest of a Parquet table (sinks/parquet.py). A position is the byte offset of a line's end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._manifest = path / STATE / "manifest.jsonl"

    def end(self) -> LogPosition:
        try:
            with self._manifest.open("rb") as manifest:
                first = manifest.readline()
                if not first.endswith(b"\n"):
                    return NOTHING
                return LogPosition(str(json.loads(first)["query"]), end_of_lines(manifest))
        except FileNotFoundError:
            return NOTHING

    def added(self, start: LogPosition, end: LogPosition) -> list[AddedFile]:
        begin = max(start.to, 0)
        try:
            with self._manifest.open("rb") as manifest:
                manifest.seek(begin)
                lines = manifest.read(end.to - begin).splitlines()
        except FileNotFoundError:
            lines = []
        commits = [json.loads(line) for line in lines]
        if any(commit["query"] != end.table for commit in commits) or (
            end.to > begin and not lines
        ):
            raise _lost(self._path, "is gone, or was removed and made again")
        return [
            AddedFile(
                path=str(self._path / name),
                values=partition_values(Path(name).parent),
                # The manifest counts the rows of a batch, not of each file, so the first file gets all.
                rows=commit["rows"] if not place else 0,
            )
            for commit in commits
            for place, name in enumerate(commit["files"])
        ]


class DeltaLog:
    """The log of a Delta table. A position is a version.

    A new query begins with all files of the newest version, because older commits may have expired, and files
    that OPTIMIZE replaced may be gone.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log = path / "_delta_log"
        self._end = NOTHING
        self._directory = 0
        """The inode of the log's directory, which differs if the table is made again."""

    def end(self) -> LogPosition:
        try:
            directory = self._log.stat().st_ino
        except FileNotFoundError:
            return NOTHING
        if directory != self._directory or self._commit(self._end.to + 1).exists():
            table = self._open()
            self._end = LogPosition(str(table.metadata().id), table.version())
            self._directory = directory
        return self._end

    def added(self, start: LogPosition, end: LogPosition) -> list[AddedFile]:
        if start.table is None:
            return self._files_of(end.to)
        found: list[AddedFile] = []
        for version in range(start.to + 1, end.to + 1):
            found += self._added_by(version)
        return found

    def _files_of(self, version: int) -> list[AddedFile]:
        import pyarrow as pa

        table = self._open(version)
        parts = table.metadata().partition_columns
        actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        if has_vectors(table):
            raise self._removes(version)
        return [
            AddedFile(
                path=str(self._path / unquote(one["path"])),
                values={name: value_text(one[f"partition.{name}"]) for name in parts},
                rows=one["num_records"],
            )
            for one in actions
        ]

    def _added_by(self, version: int) -> list[AddedFile]:
        try:
            lines = self._commit(version).read_text("utf-8").splitlines()
        except FileNotFoundError:
            raise DataLoss(
                f"the Delta table at {self._path} no longer has the log of version {version}, which was "
                "not read yet: it has expired (delta.logRetentionDuration). To rebuild the table that "
                "reads it, remove that table and its checkpoint."
            ) from None
        found: list[AddedFile] = []
        for action in map(json.loads, lines):
            for kind in ("add", "remove"):
                file: dict[str, Any] | None = action.get(kind)
                if file is None or not file.get("dataChange", True):
                    continue
                if kind == "remove" or file.get("deletionVector"):
                    raise self._removes(version)
                stats = json.loads(file.get("stats") or "{}")
                found.append(
                    AddedFile(
                        path=str(self._path / unquote(file["path"])),
                        values=dict(file.get("partitionValues") or {}),
                        rows=stats.get("numRecords"),
                    )
                )
        return found

    def _removes(self, version: int) -> PipelineError:
        return PipelineError(
            f"version {version} of the Delta table at {self._path} removes or changes rows, but a table "
            "that reads it has them already. Remove that table with its checkpoint to rebuild it, or give "
            "it mode = 'complete'."
        )

    def _commit(self, version: int) -> Path:
        return self._log / f"{version:020d}.json"

    def _open(self, version: int | None = None) -> DeltaTable:
        from deltalake import DeltaTable

        return DeltaTable(str(self._path), version=version)
