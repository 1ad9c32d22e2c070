"""The history of a table's expectations: how many rows of each batch violated them, and how many were held back.

    checkpoint/headwater/quality.jsonl     a line for each batch; quality.old.jsonl has the earlier lines

Rule 1. A line is written before its batch. A batch that is repeated has a second line, which replaces the first.
Rule 2. Together, the two files have at least the last 16 MiB of lines, some 100,000 batches, and at most 32 MiB.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

from headwater.spark.core.durable import append_line, whole_lines
from headwater.spark.pipeline.sinks import BatchId

_MOST_BYTES: Final = 16 * 2**20


class BatchQuality(NamedTuple):
    """The quality of one batch. ``at`` is the Unix time at which its rows were counted, in seconds.

    ``rows`` is the number of all rows of the batch, including ``dropped`` and ``quarantined`` ones. ``violations``
    is the number of rows by expectation; a row may violate several expectations.
    """

    batch: BatchId
    at: float
    rows: int
    dropped: int
    quarantined: int
    violations: dict[str, int]

    @property
    def kept(self) -> int:
        """The number of the batch's rows that were neither dropped nor quarantined."""
        return self.rows - self.dropped - self.quarantined

    def as_json(self) -> dict[str, Any]:
        """Return the value of ``--json``."""
        batch = {"batch": self.batch.number, "series": self.batch.series}
        return (
            batch | {"kept": self.kept} | {k: v for k, v in self._asdict().items() if k != "batch"}
        )


class QualityLog:
    """The history in the directory ``own`` of a checkpoint."""

    def __init__(self, own: Path) -> None:
        self._path = own / "quality.jsonl"
        self._old = own / "quality.old.jsonl"

    def note(self, batch: BatchId, counts: dict[str, Any]) -> None:
        """Add the counts of a batch."""
        if self._path.exists() and self._path.stat().st_size > _MOST_BYTES:
            self._path.replace(self._old)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        line = {"batch": batch.number, "series": batch.series, "at": round(time.time(), 3)} | counts
        append_line(self._path, json.dumps(line).encode())

    def batches(self) -> list[BatchQuality]:
        """Return the batches in the order of their first lines."""
        found: dict[BatchId, BatchQuality] = {}
        for line in map(json.loads, [*whole_lines(self._old), *whole_lines(self._path)]):
            batch = BatchId(line.pop("batch"), line.pop("series"))
            found[batch] = BatchQuality(batch, **line)
        return list(found.values())
