"""Delta Lake tables, written with delta-rs, which does not need a jar. Any Delta reader can read the tables.

Spark's tasks write a batch as Parquet files to a staging directory; only the files' names go through the
driver. The files are moved into the table under names that contain the batch's number; readers ignore them
until one commit of Delta's log adds them, with the application transaction (query, batch):

    sales/
      _delta_log/00000000000000000007.json   add …, txn {appId: "headwater.<query>", version: 6}
      day=2026-11-21/batch-00000006-00000.parquet
      _headwater/checkpoint/                 the query's checkpoint
      _headwater/staging/                    what Spark is writing

A batch whose transaction is in the log is not written again. **Update** merges the batch by key in one such
commit, with delta-rs in the driver's process. **Complete** replaces all files in one commit.

Files that a crash left without a commit are not part of the table: a replayed batch replaces them, and Delta's
VACUUM removes any others. Tables with deletion vectors, which delta-rs does not write, are not read back.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.errors import PipelineError
from headwater.spark.core.durable import replacing
from headwater.spark.pipeline.checkpoints import Checkpoint
from headwater.spark.pipeline.sinks import THERE_ALREADY, BatchId, check_is_last
from headwater.spark.pipeline.sinks.delta_files import (
    TIMES_IN_UTC,
    DeltaDirectory,
    File,
    transactions,
)
from headwater.spark.pipeline.sinks.files import TableFile, rows_of
from headwater.spark.pipeline.sinks.layout import check_directory, partition_values

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable
    from pyspark.sql import DataFrame


class DeltaAppend(DeltaDirectory):
    """The Delta table at ``path``, to which a query adds batches."""

    def __init__(
        self, path: Path, *, partition_by: tuple[str, ...] = (), checkpoint: Path | None = None
    ) -> None:
        super().__init__(path, partition_by)
        self.checkpoint = checkpoint or self.state / "checkpoint"
        self._writer = self.state / "query.json"

    def check(self) -> None:
        """Check the directory, and raise `PipelineError` if another query wrote the table."""
        super().check()
        check_directory(self.checkpoint)
        try:
            wrote = json.loads(self._writer.read_text())["query"]
        except FileNotFoundError:
            return
        query = Checkpoint(self.checkpoint).query()
        if query != wrote:
            there = f"belongs to query {query}" if query else "is gone"
            raise PipelineError(
                f"{self.path} was written by query {wrote}, but its checkpoint ({self.checkpoint}) "
                f"{there}: everything would be read again. Restore it, or remove the whole table."
            )

    def write(self, frame: DataFrame, batch: BatchId) -> int:
        """Add a batch; return its number of rows, or `THERE_ALREADY`."""
        query = Checkpoint(self.checkpoint).query()
        assert query is not None, "Spark writes the checkpoint's metadata before its first batch"
        app = ".".join(filter(None, ("headwater", query, batch.series)))
        table = self.table()
        done = table.transaction_version(app) if table is not None else None
        if done is not None and batch.number <= done:
            check_is_last(self.path, batch, done)
            return THERE_ALREADY
        if not self._writer.exists():
            with replacing(self._writer) as temporary:
                temporary.write_text(json.dumps({"query": query}))
        files = self.stage(frame)
        table, schema = self.open(frame)
        if files:
            self._commit(table, schema, files, batch, transactions((app, batch.number)))
            self.sync_commit(table)
        shutil.rmtree(self.staging, ignore_errors=True)
        return sum(file.rows for file in files)

    def _commit(
        self,
        table: DeltaTable,
        schema: Any,
        files: list[File],
        batch: BatchId,
        transaction: CommitProperties,
    ) -> None:
        actions = self.move_in(files, f"{batch.series or 'batch'}-{batch.number:08d}", schema)
        table.create_write_transaction(
            actions,
            "append",
            schema,
            list(self.partition_by) or None,
            commit_properties=transaction,
        )


class DeltaUpdate(DeltaAppend):
    """The Delta table at ``path`` with one row for each ``key``.

    A batch's rows replace the table's rows with the same keys, so a later batch wins. A batch with a key that
    is null or occurs twice raises `PipelineError`.
    """

    def __init__(
        self,
        path: Path,
        key: tuple[str, ...],
        *,
        partition_by: tuple[str, ...] = (),
        checkpoint: Path | None = None,
    ) -> None:
        assert key, "mode update has a key"
        super().__init__(path, partition_by=partition_by, checkpoint=checkpoint)
        self.key = key

    def _commit(
        self,
        table: DeltaTable,
        schema: Any,
        files: list[File],
        batch: BatchId,
        transaction: CommitProperties,
    ) -> None:
        import pyarrow as pa

        schema = pa.schema(table.schema().to_arrow())
        staged = [
            TableFile(str(file.path), partition_values(file.place), file.rows) for file in files
        ]
        self._check_keys(staged, schema, batch)
        rows = (rows for file in staged for rows in rows_of(file, schema))
        same = " AND ".join(f"target.`{column}` = source.`{column}`" for column in self.key)
        (
            table.merge(
                pa.RecordBatchReader.from_batches(schema, rows),
                same,
                source_alias="source",
                target_alias="target",
                commit_properties=transaction,
            )
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .execute()
        )

    def _check_keys(self, staged: list[TableFile], schema: pa.Schema, batch: BatchId) -> None:
        """Raise `PipelineError` for a key that is null or occurs twice in the batch."""
        import pyarrow as pa
        import pyarrow.compute as pc

        keys = pa.schema([schema.field(name) for name in self.key])
        table = pa.Table.from_batches((b for file in staged for b in rows_of(file, keys)), keys)
        values: list[pa.ChunkedArray] = []
        for column, found in zip(self.key, table.columns, strict=True):
            if pa.types.is_floating(found.type):  # -0.0 and 0.0 are the same key
                found = pc.add(found, pa.scalar(0.0, found.type))
            values.append(found)
            if found.null_count:
                raise PipelineError(
                    f"{self.path}: batch {batch.number} has rows whose key {column!r} is null; omit "
                    f"them (WHERE {column} IS NOT NULL)"
                )
        # The columns are numbered, because Arrow parses a name like ".a" as a path.
        numbers = [str(at) for at in range(len(values))]
        counted = pa.table(values, numbers).group_by(numbers).aggregate([([], "count_all")])
        twice = counted.filter(pc.greater(counted.column("count_all"), 1))
        if twice.num_rows:
            first = twice.slice(0, 1).to_pylist()[0]
            times, row = (
                first["count_all"],
                dict(zip(self.key, map(first.get, numbers), strict=True)),
            )
            raise PipelineError(
                f"{self.path}: batch {batch.number} has the key {row} {times} times, and it is not known "
                "which row is the last: make one row per key in SQL (GROUP BY, max_by)"
            )


class DeltaComplete(DeltaDirectory):
    """The Delta table at ``path`` that every run rebuilds. Files of old versions stay until VACUUM."""

    def write(self, frame: DataFrame) -> int:
        """Replace the table's contents with the rows of ``frame``; return the number of rows."""
        files = self.stage(frame)
        table, schema = self.open(frame, replacing_schema=True)
        table.create_write_transaction(
            self.move_in(files, f"version-{table.version() + 1:08d}", schema),
            "overwrite",
            schema,
            list(self.partition_by) or None,
            commit_properties=transactions((TIMES_IN_UTC, 1)),
        )
        self.sync_commit(table)
        shutil.rmtree(self.staging, ignore_errors=True)
        return sum(file.rows for file in files)
