"""The data source ``headwater_table_log``: a table of a pipeline as a stream of its commits' rows.

Spark logs positions of the table's log as offsets, so a batch can be replayed as long as its files exist.
A run registers the source. Its options are ``table`` (the path), ``kind`` (the table's sink) and ``tasks``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)

from headwater.errors import DataLoss
from headwater.spark.core.idle import IdlePauses
from headwater.spark.pipeline.sinks.files import TableFile, rows_of
from headwater.spark.pipeline.table_log.logs import checked, log_of
from headwater.spark.pipeline.table_log.positions import (
    NOTHING,
    LogPosition,
    offset_of,
    position_of,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


NAME: Final = "headwater_table_log"

_LEAST_BYTES: Final = 8 * 2**20
"""Minimum total size of a task's files, except for the last task, because starting a task takes milliseconds."""


class TableLogSource(DataSource):
    """A table of a pipeline, read in the order of its commits."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def streamReader(self, schema: StructType) -> TableLogReader:  # noqa: N802 - Spark's name
        """Return the reader for ``spark.readStream``; the schema is the table's."""
        options = self.options
        return TableLogReader(
            Path(options["table"]), options["kind"], schema, tasks=int(options["tasks"])
        )


def _size(file: TableFile) -> int:
    try:
        return Path(file.path).stat().st_size
    except FileNotFoundError:
        raise DataLoss(
            f"the file {file.path} is gone, and its rows were not read yet: it was removed, or its table was "
            "vacuumed. Restore it; or, to rebuild the table that reads it, remove that table and its checkpoint."
        ) from None


@dataclass
class FilesTask(InputPartition):
    """The files that one task reads."""

    files: list[TableFile]


class TableLogReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches in the driver and reads files in executors."""

    def __init__(self, path: Path, kind: str, schema: StructType, *, tasks: int) -> None:
        self._path = path
        self._kind = kind
        self._schema = schema
        self._tasks = tasks
        self._log = log_of(kind, path)
        self._pauses = IdlePauses()
        self._target: LogPosition | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {
            "path": self._path,
            "kind": self._kind,
            "schema": self._schema,
            "tasks": self._tasks,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Begin with the rows that the table already has."""
        return offset_of(NOTHING)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Read all commits in one batch, so that a watermark drops no row for being older than other commits' rows."""
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Remember the current end of the log, at which this run stops reading."""
        self._target = self._log.end()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002, N802
        """Return the end of the next batch. Raises `DataLoss` if the table was removed or made again."""
        self._pauses.wait()
        before = position_of(start)
        end = checked(self._path, before, self._target or self._log.end())
        self._pauses.polled(found=end != before)
        return start if end == before else offset_of(end)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Divide the files of the commits between two offsets among tasks."""
        if start == end:  # Spark also plans a batch before the table exists
            return []
        files = self._log.added(position_of(start), position_of(end))
        sizes = list(map(_size, files))
        least = max(_LEAST_BYTES, -(-sum(sizes) // self._tasks))
        tasks: list[FilesTask] = []
        room = 0
        for file, size in zip(files, sizes, strict=True):
            if room <= 0:
                tasks.append(FilesTask([]))
                room = least
            tasks[-1].files.append(file)
            room -= size
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task's files."""
        from pyspark.sql.pandas.types import to_arrow_schema

        assert isinstance(partition, FilesTask), partition
        schema = to_arrow_schema(self._schema, timezone="UTC")
        for file in partition.files:
            yield from rows_of(file, schema)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: a batch does not hold any resources."""
