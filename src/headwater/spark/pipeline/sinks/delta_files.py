"""Moves Spark's files into a Delta table, and adds them to the table's log. The Delta sinks share this module."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from headwater.errors import PipelineError
from headwater.spark.core.durable import directories, lines_of, sync, sync_all
from headwater.spark.pipeline.sinks.layout import (
    check_directory,
    has_files,
    literal,
    nullable_schema,
    partition_values,
    read_files,
    write_files,
)

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

STATE: Final = "_headwater"
"""Headwater's directory in a table. Delta's VACUUM skips names that begin with an underscore."""

TIMES_IN_UTC: Final = "headwater.times-in-utc"
"""The application transaction that marks a table whose partition values are times in UTC. Times of older tables
are in the zone of the session that wrote them, and that zone is not recorded."""

_UNUSABLE: Final = re.compile(r"%[0-9A-Fa-f]{2}|[\\\x00-\x1f\x7f]")
"""The parts of a path for which delta-rs opens another directory, or none."""


class File(NamedTuple):
    """A file that Spark wrote: its path, its directory in the table, its number of rows."""

    path: Path
    place: Path
    rows: int


class DeltaDirectory:
    """A Delta table of any mode, in a directory of this machine's file system."""

    def __init__(self, path: Path, partition_by: tuple[str, ...] = ()) -> None:
        self.path = path
        self.partition_by = partition_by
        self.state = path / STATE
        self.staging = self.state / "staging"

    def check(self) -> None:
        """Check that the directory is or can become the table, without writing anything.

        Raises `PipelineError` if it contains something else, or if delta-rs is not installed.
        """
        check_directory(self.path)
        unusable = _UNUSABLE.search(str(self.path))
        if unusable is not None:
            raise PipelineError(
                f"{str(self.path)!r} contains {unusable[0]!r}, with which delta-rs would open another directory; name "
                "another path"
            )
        try:
            import deltalake  # noqa: F401
        except ImportError as error:
            raise PipelineError(
                f"the sink delta needs delta-rs ({error}): pip install 'headwater[delta]'"
            ) from error
        if self.path.exists() and self.table() is None and has_files(self.path):
            raise PipelineError(
                f"{self.path} contains files but is not a Delta table; name another path"
            )

    def prepare(self) -> None:
        """Create the directory, and remove staged files. Raises the errors of `check`."""
        self.check()
        self.state.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self.staging, ignore_errors=True)

    def finished(self, spark: SparkSession, schema: StructType) -> DataFrame:
        """Return the contents of the newest version, with the columns of ``schema``."""
        table = self.table()
        if table is None:
            return spark.createDataFrame([], schema)
        if has_vectors(table):
            raise PipelineError(
                f"{self.path} has deletion vectors, which another writer made; OPTIMIZE or "
                "REORG … APPLY (PURGE) removes them"
            )
        actions = added_files(table)
        files = [str(local_file(self.path, one["path"])) for one in actions]
        if not files:
            return spark.createDataFrame([], schema)
        parts = table.metadata().partition_columns
        if not parts:
            return read_files(spark, schema, files)
        if len({Path(file).name for file in files}) < len(files):
            raise PipelineError(
                f"{self.path} has files with the same name in several directories, which another writer "
                "made; OPTIMIZE rewrites them"
            )
        rows = [
            (Path(file).name, *(one[f"partition.{name}"] for name in parts))
            for file, one in zip(files, actions, strict=True)
        ]
        return self._with_partitions(spark, schema, files, parts, rows).select(
            *(f"`{column}`" for column in schema.names)
        )

    def _with_partitions(
        self,
        spark: SparkSession,
        schema: StructType,
        files: list[str],
        parts: list[str],
        rows: list[tuple[Any, ...]],
    ) -> DataFrame:
        """Return the rows of ``files`` with the partition values of Delta's log: ``rows`` has a file's name, its values.

        The names of the directories are not used: delta-rs and Spark write non-ASCII letters in them
        differently, and only the log is authoritative.
        """
        from pyspark.sql import functions as F  # noqa: N812 - the name in Spark's documentation
        from pyspark.sql.types import StringType, StructField, StructType

        place = "_file"
        while place in map(str.lower, schema.names):
            place += "_"
        values = StructType(
            [
                StructField(place, StringType()),
                *(StructField(column, schema[column].dataType) for column in parts),
            ]
        )
        data = StructType([field for field in schema.fields if field.name not in parts])
        read = spark.read.schema(data).parquet(*map(literal, files))
        read = read.withColumn(place, F.col("_metadata.file_name"))
        return read.join(F.broadcast(spark.createDataFrame(rows, values)), place)

    def rows(self) -> int | None:
        """Return the number of rows in the newest version, by its log.

        Returns None if the table or delta-rs is missing, or if another writer omitted counts or made deletion vectors.
        """
        try:
            table = self.table()
        except ImportError:
            return None
        if table is None or has_vectors(table):
            return None
        counts: list[int | None] = [one["num_records"] for one in added_files(table)]
        return None if None in counts else sum(filter(None, counts))

    # --- steps of a write -------------------------------------------------------------------------

    def stage(self, frame: DataFrame) -> list[File]:
        """Write ``frame`` to the staging directory with Spark; return the files that have rows."""
        import pyarrow.parquet as pq

        shutil.rmtree(self.staging, ignore_errors=True)
        write_files(frame, self.partition_by, self.staging)
        files = []
        for path in sorted(self.staging.rglob("*.parquet")):
            rows: int = pq.read_metadata(path).num_rows
            if rows:  # a task without rows writes an empty file
                files.append(File(path, path.relative_to(self.staging).parent, rows))
        return files

    def move_in(self, files: list[File], prefix: str, schema: Any) -> list[Any]:
        """Move files into the table, with names that begin with ``prefix``; return Delta's actions for them."""
        from deltalake.transaction import AddAction

        times = set(self._times(schema))

        for left in self.path.rglob(f"{prefix}-*.parquet"):  # left by a run that did not commit
            left.unlink()
        sync_all(file.path for file in files)
        actions, now = [], time.time_ns() // 1_000_000
        for number, file in enumerate(files):
            name = file.place / f"{prefix}-{number:05d}.parquet"
            size = file.path.stat().st_size
            target = self.path / name
            target.parent.mkdir(parents=True, exist_ok=True)
            file.path.replace(target)
            stats = json.dumps({"numRecords": file.rows})
            values = {
                column: with_zone(text) if column in times and text is not None else text
                for column, text in partition_values(file.place).items()
            }
            actions.append(AddAction(str(name), size, values, now, True, stats))
        sync_all(directories([self.path / action.path for action in actions], self.path))
        return actions

    def open(self, frame: DataFrame, *, replacing_schema: bool = False) -> tuple[DeltaTable, Any]:
        """Return the table, created if it is missing, and the schema of ``frame`` for Delta.

        Raises `PipelineError` if the partitions or, without ``replacing_schema``, the schema differ.
        """
        from deltalake import DeltaTable, Schema

        wanted = nullable_schema(frame.schema)
        try:
            schema = Schema.from_json(json.dumps(wanted))
        except Exception as error:
            raise PipelineError(
                f"{self.path}: Delta has no type for a column of {frame.schema.simpleString()}: "
                f"{error}. Cast it."
            ) from None
        table = self.table()
        if table is None:
            table = DeltaTable.create(
                str(self.path),
                schema,
                partition_by=list(self.partition_by) or None,
                commit_properties=transactions((TIMES_IN_UTC, 1)),
            )
            self.sync_commit(table)
            return table, schema
        there = {
            field["name"]: field["type"] for field in json.loads(table.schema().to_json())["fields"]
        }
        here = {field["name"]: field["type"] for field in wanted["fields"]}
        parts = tuple(table.metadata().partition_columns)
        if (there != here and not replacing_schema) or parts != self.partition_by:
            raise PipelineError(
                f"{self.path} has the columns {_shown(there)} partitioned by "
                f"{', '.join(parts) or 'nothing'}, but the SQL has {_shown(here)} partitioned by "
                f"{', '.join(self.partition_by) or 'nothing'}: change one, or name another path"
            )
        return table, schema

    def sync_commit(self, table: DeltaTable) -> None:
        """Sync the last commit: delta-rs does not wait until the log and merged rows are on disk."""
        table.update_incremental()
        commit = commit_file(self.path, table.version())
        added = [one["add"] for one in actions_of(self.path, table.version()) if "add" in one]
        files = [local_file(self.path, one["path"]) for one in added]
        sync_all([*files, *directories(files, self.path)])
        sync(commit)
        sync(commit.parent)

    def table(self) -> DeltaTable | None:
        from deltalake import DeltaTable

        if not (self.path / "_delta_log").is_dir() or not DeltaTable.is_deltatable(str(self.path)):
            return None
        return open_table(self.path)

    def local_times(self) -> list[str]:
        """Return the partition columns whose times may be in the zone of the session that wrote them.

        Versions of Headwater before the transaction `TIMES_IN_UTC` wrote times in that zone.
        """
        table = self.table()
        if table is None or table.transaction_version(TIMES_IN_UTC) is not None:
            return []
        return self._times(table.schema()) if table.file_uris() else []

    def repair_times(self, in_utc: Callable[[str], str], *, dry_run: bool = False) -> int:
        """Replace the partition values of `local_times` in one commit; return the number of files.

        ``in_utc`` converts a time, as a string, from the zone in which it was written to UTC. The files are not
        moved, because only the log determines the values.
        """
        from deltalake.transaction import AddAction, RemoveAction

        table, columns = self.table(), self.local_times()
        assert table is not None, "the caller has found local times"
        parts: list[str] = table.metadata().partition_columns
        actions: list[AddAction | RemoveAction] = []
        for one in added_files(table):
            values = {name: value_text(one[f"partition.{name}"]) for name in parts}
            for name in columns:
                local = values[name]
                if local is not None:
                    values[name] = with_zone(in_utc(local.removesuffix("+00:00")))
            stats = {"numRecords": one["num_records"]}
            actions.append(
                AddAction(
                    unquote(one["path"]),
                    one["size_bytes"],
                    values,
                    one["modification_time"],
                    False,
                    json.dumps({name: n for name, n in stats.items() if n is not None}),
                )
            )
        if dry_run:
            return len(actions)
        table.create_write_transaction(
            actions,
            "append",
            table.schema(),
            parts,
            commit_properties=transactions((TIMES_IN_UTC, 1)),
        )
        self.sync_commit(table)
        return len(actions)

    def _times(self, schema: Any) -> list[str]:
        """Return the partition columns of Delta's type timestamp."""
        kinds = {field["name"]: field["type"] for field in json.loads(schema.to_json())["fields"]}
        return [name for name in self.partition_by if kinds.get(name) == "timestamp"]


def transactions(*named: tuple[str, int]) -> CommitProperties:
    """Return the properties of a commit with these application transactions and their versions."""
    from deltalake import CommitProperties, Transaction

    return CommitProperties(app_transactions=[Transaction(*one) for one in named])


def with_zone(text: str) -> str:
    """Return a UTC time in the form that names the zone, so that no reader takes it for a time in another zone.

    >>> with_zone("2026-11-21 10:00:00.5")
    '2026-11-21T10:00:00.500000Z'
    """
    day, _space, time = text.partition(" ")
    whole, _dot, fraction = time.partition(".")
    return f"{day}T{whole}.{fraction:0<6}Z"


def value_text(value: object) -> str | None:
    """Return a partition's value in the form of Delta's log; ``value`` is the Python object of delta-rs."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return value.decode()
    return str(value)


def has_vectors(table: DeltaTable) -> bool:
    if "deletionVectors" not in (table.protocol().reader_features or []):
        return False
    return any(batch.num_rows for batch in table.deletion_vectors())


def open_table(path: Path, version: int | None = None) -> DeltaTable:
    """Return the Delta table at ``path``, in its newest version or in ``version``."""
    from deltalake import DeltaTable

    return DeltaTable(str(path), version=version)


def commit_file(path: Path, version: int) -> Path:
    """Return the file in the log of the Delta table at ``path`` with the commit that made ``version``."""
    return path / "_delta_log" / f"{version:020d}.json"


def actions_of(path: Path, version: int) -> list[dict[str, Any]]:
    """Return the actions of a commit. Raises `FileNotFoundError` if the log does not have the commit any more."""
    return [json.loads(line) for line in lines_of(commit_file(path, version).read_bytes())]


def added_files(table: DeltaTable) -> list[dict[str, Any]]:
    """Return the actions for the files of a table's version, with the values ``partition.NAME``.

    Statistics of columns are left out: they may be times that Python's types cannot represent.
    """
    import pyarrow as pa

    names = ["path", "size_bytes", "modification_time", "num_records"]
    names += [f"partition.{name}" for name in table.metadata().partition_columns]
    found: list[dict[str, Any]] = (
        pa.table(table.get_add_actions(flatten=True)).select(names).to_pylist()
    )
    return found


def local_file(path: Path, name: str) -> Path:
    """Return the file that an action of the Delta table at ``path`` names: a relative path or a url, as in a url encoded."""
    return Path(unquote(urlsplit(name).path)) if name.startswith("file:") else path / unquote(name)


def _shown(columns: dict[str, Any]) -> str:
    return ", ".join(f"{n} {t if isinstance(t, str) else t['type']}" for n, t in columns.items())
