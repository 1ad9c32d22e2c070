"""Tables as streams: the rows of each batch become entries of another stream, once.

A batch is one transaction of the sink (spark/sink). The transaction's application is the query's id from the
checkpoint's metadata, and its version is the batch's number. So the store records the last published batch
next to the stream, and a replayed batch adds nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from headwater.errors import PipelineError
from headwater.spark.embedded import reachable_options
from headwater.spark.pipeline.checkpoints import Checkpoint
from headwater.spark.pipeline.sinks import THERE_ALREADY, BatchId
from headwater.spark.pipeline.sinks.layout import SinkWithoutPath
from headwater.spark.sink.destination import check_recorded
from headwater.spark.sink.options import SinkOptions, parse_options
from headwater.spark.sink.publishing import recorded_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from headwater.spark.sink.marker import Marker


class StreamTable(SinkWithoutPath):
    """The stream ``stream`` at ``url``. ``options`` are the sink's, such as ``codec`` or ``maxlen``.

    Raises `DeclarationError` for options that the sink does not have.
    """

    def __init__(
        self, url: str, stream: str, *, checkpoint: Path, options: Mapping[str, str]
    ) -> None:
        super().__init__(checkpoint)
        self._given = {"url": url, "stream": stream, "failOnDataLoss": "true"} | dict(options)
        self._options(BatchId(0))

    def write(self, frame: DataFrame, batch: BatchId) -> int:
        """Add a batch; return its number of rows, or `THERE_ALREADY`."""
        options = self._options(batch)
        before = _recorded(options)
        if before is not None and before.done and before.epoch == batch.number:
            return THERE_ALREADY
        assert options.transaction is not None
        app, version = options.transaction
        if not batch.series:
            check_recorded(options, app, before, batch.number)
        given = reachable_options(self._given, frame.sparkSession)
        frame.write.format("headwater").mode("append").options(
            **given, txnAppId=app, txnVersion=str(version)
        ).save()
        after = _recorded(options)
        assert after is not None, "the sink records a transaction even when it has no rows"
        return after.entries

    def finished(self, spark: SparkSession, schema: StructType) -> NoReturn:  # noqa: ARG002
        """Raise `PipelineError`: a stream may be trimmed, and a table made from it would shrink."""
        raise PipelineError(
            f"the stream {self._given['stream']!r} cannot be read back as a table: let the other "
            "table read what this one reads, or read the stream as a source"
        )

    def _options(self, batch: BatchId) -> SinkOptions:
        query = Checkpoint(self.checkpoint).query() or "none"
        app = f"{query}.{batch.series}" if batch.series else query
        transaction = {"txnAppId": app, "txnVersion": str(batch.number)}
        return parse_options(self._given | transaction, streaming=False)


def _recorded(options: SinkOptions) -> Marker | None:
    assert options.transaction is not None
    return recorded_of(options, options.transaction[0])
