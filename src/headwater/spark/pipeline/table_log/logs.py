"""The files that each commit added to a table.

Rule 1. A position counts units that no longer change: bytes of a manifest, versions of a Delta table.
Rule 2. A position belongs to one table. A table that was removed and made again raises an error.
Rule 3. Rows are only added. A commit that removes rows raises an error; a commit that only rewrites files
        (OPTIMIZE) does not add rows.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Protocol

from headwater.errors import DataLoss, PipelineError
from headwater.spark.core.durable import end_of_lines, lines_of
from headwater.spark.pipeline.sinks.delta_files import (
    actions_of,
    added_files,
    commit_file,
    has_vectors,
    local_file,
    open_table,
    value_text,
)
from headwater.spark.pipeline.sinks.files import TableFile
from headwater.spark.pipeline.sinks.layout import partition_values
from headwater.spark.pipeline.sinks.parquet import STATE
from headwater.spark.pipeline.table_log.positions import NOTHING, LogPosition


class TableLog(Protocol):
    """The log of one table."""

    def end(self) -> LogPosition:
        """Return the position after the newest commit."""

    def added(self, start: LogPosition, end: LogPosition) -> list[TableFile]:
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

    def added(self, start: LogPosition, end: LogPosition) -> list[TableFile]:
        begin = max(start.to, 0)
        try:
            with self._manifest.open("rb") as manifest:
                manifest.seek(begin)
                lines = lines_of(manifest.read(end.to - begin))
        except FileNotFoundError:
            lines = []
        commits = [json.loads(line) for line in lines]
        if any(commit["query"] != end.table for commit in commits) or (
            end.to > begin and not lines
        ):
            raise _lost(self._path, "is gone, or was removed and made again")
        return [
            TableFile(
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
        if directory != self._directory or commit_file(self._path, self._end.to + 1).exists():
            table = open_table(self._path)
            self._end = LogPosition(str(table.metadata().id), table.version())
            self._directory = directory
        return self._end

    def added(self, start: LogPosition, end: LogPosition) -> list[TableFile]:
        if start.table is None:
            return self._files_of(end.to)
        found: list[TableFile] = []
        for version in range(start.to + 1, end.to + 1):
            found += self._added_by(version)
        return found

    def _files_of(self, version: int) -> list[TableFile]:
        table = open_table(self._path, version)
        parts = table.metadata().partition_columns
        if has_vectors(table):
            raise self._removes(version)
        return [
            TableFile(
                path=str(local_file(self._path, one["path"])),
                values={name: value_text(one[f"partition.{name}"]) for name in parts},
                rows=one["num_records"],
            )
            for one in added_files(table)
        ]

    def _added_by(self, version: int) -> list[TableFile]:
        try:
            actions = actions_of(self._path, version)
        except FileNotFoundError:
            raise DataLoss(
                f"the Delta table at {self._path} no longer has the log of version {version}, which was "
                "not read yet: it has expired (delta.logRetentionDuration). To rebuild the table that "
                "reads it, remove that table and its checkpoint."
            ) from None
        found: list[TableFile] = []
        for action in actions:
            for kind in ("add", "remove"):
                file: dict[str, Any] | None = action.get(kind)
                if file is None or not file.get("dataChange", True):
                    continue
                if kind == "remove" or file.get("deletionVector"):
                    raise self._removes(version)
                stats = json.loads(file.get("stats") or "{}")
                found.append(
                    TableFile(
                        path=str(local_file(self._path, file["path"])),
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
