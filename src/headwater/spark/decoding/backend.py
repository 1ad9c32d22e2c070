"""The source of a log-mode reader's entries. If the option ``archive`` is given, ``source.py`` chooses
`archive.backend.ArchiveBackend` instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.spark.core.options import SourceOptions
from headwater.spark.core.planning.planners import planner
from headwater.spark.core.planning.planning import Planner
from headwater.spark.core.positions import BEGINNING, Position
from headwater.spark.core.ranges import EntryRange, EntryTask
from headwater.spark.core.store import SourceStore
from headwater.spark.decoding.columns import RowShape

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Backend:
    """Reads entries from the server. Spark pickles it to executors, so it has no connection."""

    options: SourceOptions
    shape: RowShape

    def connect(self) -> tuple[SourceStore, Planner]:
        """Return a new store, which the caller must close, and a planner on that store. For the driver."""
        store = SourceStore(self.options)
        return store, planner(store)

    def restart(self, store: SourceStore, stream: str) -> Position:  # noqa: ARG002 - the archive's backend uses them
        """Return the position at which reading restarts in a stream that was deleted, recreated or set back."""
        return BEGINNING

    def read(self, parts: Sequence[EntryRange]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of ``parts``, one after another, as record batches. Runs in an executor."""
        from headwater.spark.decoding.reading import read_ranges

        return read_ranges(self.options, self.shape, parts)

    def read_task(self, task: EntryTask) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task. Runs in an executor."""
        from headwater.spark.decoding.merging import merged

        batches = self.read(task.ranges)
        return batches if len(task.ranges) == 1 else merged(batches)
