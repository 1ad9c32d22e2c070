"""`Backend`, the interface to the source of a reader's entries, and `ServerBackend`, which reads only the server.

`archive.backend.ArchiveBackend` reads an archive and the server. ``source.py`` chooses it if the option
``archive`` is given.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from headwater.spark.core.options import SourceOptions
from headwater.spark.core.planning.planners import planner
from headwater.spark.core.planning.planning import Planner
from headwater.spark.core.positions import BEGINNING, Position
from headwater.spark.core.ranges import EntryRange, EntryTask
from headwater.spark.core.store import SourceStore
from headwater.spark.decoding.columns import RowShape

if TYPE_CHECKING:
    import pyarrow as pa


class Backend(Protocol):
    """The source of a reader's entries. Spark pickles it to executors, so it has no connection."""

    def connect(self) -> tuple[SourceStore, Planner]:
        """Return a new store, which the caller closes, and the planner that the driver uses with it."""

    def restart(self, store: SourceStore, stream: str) -> Position:
        """Return the position at which reading restarts in a stream that was deleted, recreated or set back."""

    def read(self, parts: Sequence[EntryRange]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of ranges, one after the other, as record batches. Runs in an executor."""


def read_task(backend: Backend, task: EntryTask) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one task. Runs in an executor."""
    from headwater.spark.decoding.merging import merged

    batches = backend.read(task.ranges)
    return batches if len(task.ranges) == 1 else merged(batches)


@dataclass(frozen=True)
class ServerBackend:
    """Reads entries from the server only."""

    options: SourceOptions
    shape: RowShape

    def connect(self) -> tuple[SourceStore, Planner]:
        store = SourceStore(self.options)
        return store, planner(store)

    def restart(self, store: SourceStore, stream: str) -> Position:  # noqa: ARG002 - the archive's backend uses them
        """Return the stream's beginning."""
        return BEGINNING

    def read(self, parts: Sequence[EntryRange]) -> Iterator[pa.RecordBatch]:
        from headwater.spark.decoding.reading import read_ranges

        return read_ranges(self.options, self.shape, parts)
