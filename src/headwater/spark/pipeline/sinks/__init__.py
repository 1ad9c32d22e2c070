"""Where a pipeline's tables are kept: one file a kind, each exactly once by the batch's number.

A batch that Spark runs again after a crash has the number that it had. A sink that has it already
leaves it alone; what a killed run left half done, `prepare` undoes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from headwater.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class BatchId(NamedTuple):
    """Which batch: Spark's number within a series. The series "" is the query's own batches; a
    backfill is a series of its own, so that its numbers are no one else's.
    """

    number: int
    series: str = ""


THERE_ALREADY = -1
"""What `AppendSink.write` returns for a batch that it has."""


def check_is_last(place: object, batch: BatchId, last: int) -> None:
    """Raise `PipelineError` for a batch below the last one that ``place`` has.

    Spark runs again the last batch that it logged, and no other. One below it comes of a checkpoint
    that was set back: it may go further than the batch of that number did, and must not be skipped.
    """
    if batch.number < last:
        raise PipelineError(
            f"{place} has batch {last}, and the query comes with batch {batch.number}: its checkpoint "
            "was set back. Restore it as it was; or remove the whole table, and make it anew."
        )


class AppendSink(Protocol):
    """What a streaming query adds its batches to."""

    @property
    def checkpoint(self) -> Path:
        """Where Spark keeps the query's progress."""

    def prepare(self) -> None:
        """Make what must be there, and undo what a killed run left half done.

        Raises `PipelineError` where something else is in its place.
        """

    def write(self, frame: DataFrame, batch: BatchId) -> int:
        """Add a batch; returns its rows, or `THERE_ALREADY`."""

    def finished(self, spark: SparkSession, schema: StructType) -> DataFrame:
        """What is in it: whole batches only. `PipelineError` for a sink that cannot be read back."""


class CompleteSink(Protocol):
    """What a table of mode complete is put into, in the place of what it held."""

    def prepare(self) -> None:
        """As `AppendSink.prepare`."""

    def write(self, frame: DataFrame) -> int:
        """Put the rows of ``frame`` there; returns their number."""

    def finished(self, spark: SparkSession, schema: StructType) -> DataFrame:
        """What is in it, with the columns of its SQL."""
