"""The sinks of a pipeline's tables: one module per kind. Each writes a batch once, by the batch's number.

A batch that Spark runs again after a crash has the same number. A sink that already has the batch does not
write it again. `prepare` undoes the incomplete work of a killed run.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from headwater.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class BatchId(NamedTuple):
    """Identifies a batch: Spark's number within a series.

    The series "" has the query's own batches. Each backfill has its own series, so its batch does not have the
    number of another batch in the same series.
    """

    number: int
    series: str = ""


THERE_ALREADY = -1
"""Returned by `AppendSink.write` for a batch that the sink already has."""


def check_is_last(place: object, batch: BatchId, last: int) -> None:
    """Raise `PipelineError` for a batch below ``last``, the last batch that ``place`` has.

    Spark only repeats the last batch in its log. An earlier batch means that the checkpoint was set back. The
    batch may then contain more than the one that was written under its number, so it must not be skipped.
    """
    if batch.number < last:
        raise PipelineError(
            f"{place} has batch {last}, but the query writes batch {batch.number}: the query's "
            "checkpoint was set back. Restore the latest checkpoint, or remove the whole table and rebuild it."
        )


class AppendSink(Protocol):
    """A sink to which a streaming query adds its batches."""

    @property
    def checkpoint(self) -> Path:
        """The directory of the query's checkpoint."""

    def check(self) -> None:
        """Raise `PipelineError` if the sink's place contains something else. Writes nothing."""

    def prepare(self) -> None:
        """Create missing directories, and undo the incomplete work of a killed run. Raises as `check` does."""

    def write(self, frame: DataFrame, batch: BatchId) -> int:
        """Add a batch; return its number of rows, or `THERE_ALREADY`."""

    def finished(self, spark: SparkSession, schema: StructType) -> DataFrame:
        """Return the rows of complete batches. Raises `PipelineError` if the sink cannot be read back."""

    def rows(self) -> int | None:
        """Return the number of rows in the sink, without Spark; None if it is unknown."""


class CompleteSink(Protocol):
    """A sink whose contents each run of a complete table replaces."""

    def check(self) -> None:
        """Check the sink's place, like `AppendSink.check`."""

    def prepare(self) -> None:
        """Prepare the sink, like `AppendSink.prepare`."""

    def write(self, frame: DataFrame) -> int:
        """Replace the contents with the rows of ``frame``; return the number of rows."""

    def finished(self, spark: SparkSession, schema: StructType) -> DataFrame:
        """Return the contents, with the columns in ``schema``."""

    def rows(self) -> int | None:
        """Return the number of rows in the sink, without Spark; None if it is unknown."""
