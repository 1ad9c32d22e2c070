"""Prints the first rows of each batch on the terminal, to try out a declaration.

The checkpoint stores the number of the last printed batch, so a replay prints nothing. A batch is printed twice
only if the process ends between printing and storing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from headwater.errors import PipelineError
from headwater.spark.core import option_values as values
from headwater.spark.core.durable import replacing
from headwater.spark.pipeline.sinks import THERE_ALREADY, BatchId
from headwater.spark.pipeline.sinks.layout import SinkWithoutPath

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

OPTIONS: Final = ("rows", "truncate")

_ROWS: Final = 20
_TRUNCATE: Final = True


class Console(SinkWithoutPath):
    """Prints rows of the table ``name``.

    The options are ``rows``, the maximum number of rows to print of a batch (default 20), and ``truncate``, true
    if long values are cut (default true). Raises `DeclarationError` for other options.
    """

    def __init__(self, name: str, *, checkpoint: Path, options: Mapping[str, str]) -> None:
        super().__init__(checkpoint)
        self._name = name
        texts = values.recognised(options, OPTIONS)
        self._rows = values.count("rows", texts["rows"]) if "rows" in texts else _ROWS
        self._truncate = (
            values.flag("truncate", texts["truncate"]) if "truncate" in texts else _TRUNCATE
        )
        self._note = checkpoint / "headwater" / "printed.json"

    def write(self, frame: DataFrame, batch: BatchId) -> int:
        """Print a batch; return its number of rows, or `THERE_ALREADY`."""
        printed = self._printed()
        if batch.number <= printed.get(batch.series, -1):
            return THERE_ALREADY
        frame.persist()
        try:
            rows = frame.count()
            if rows:
                print(f"{self._name}: {batch.series or 'batch'} {batch.number}")  # noqa: T201 - its purpose
                frame.show(self._rows, truncate=self._truncate)
        finally:
            frame.unpersist()
        self._note.parent.mkdir(parents=True, exist_ok=True)
        with replacing(self._note) as temporary:
            temporary.write_text(json.dumps(printed | {batch.series: batch.number}))
        return rows

    def finished(self, spark: SparkSession, schema: StructType) -> NoReturn:  # noqa: ARG002
        """Raise `PipelineError`: printed rows cannot be read back."""
        raise PipelineError(
            f"table {self._name} is printed on the console and cannot be read back; use another sink"
        )

    def _printed(self) -> dict[str, int]:
        """Return the number of the last printed batch by series."""
        try:
            found: dict[str, int] = json.loads(self._note.read_text())
        except FileNotFoundError:
            return {}
        return found
