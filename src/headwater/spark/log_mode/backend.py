"""The interface to where a reader's entries come from. The server is one backend. An archive together
with the server is another (archive/backend.py); `source.py` chooses it by the option ``archive``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from headwater.spark.core.options import SourceOptions
from headwater.spark.core.planning import Planner, planner
from headwater.spark.core.positions import BEGINNING, Position
from headwater.spark.core.ranges import EntryRange
from headwater.spark.core.store import SourceStore
from headwater.spark.decoding.columns import RowShape

if TYPE_CHECKING:
    import pyarrow as pa


class Backend(Protocol):
    """The source of a reader's entries. Spark pickles it to executors, so it has no connection."""

    def connect(self) -> tuple[SourceStore, Planner]:
        """Return the store and the planner that the driver uses."""

    def restart(self, store: SourceStore, stream: str) -> Position:
        """Return where reading continues in a stream that was deleted, recreated or set back."""

    def read(self, part: EntryRange) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition, in an executor."""


@dataclass(frozen=True)
class ServerBackend:
    """Reads entries from the server only."""

    options: SourceOptions
    shape: RowShape

    def connect(self) -> tuple[SourceStore, Planner]:
        store = SourceStore(self.options)
        return store, planner(store)

    def restart(self, store: SourceStore, stream: str) -> Position:  # noqa: ARG002 - the archive's backend uses them
        return BEGINNING

    def read(self, part: EntryRange) -> Iterator[pa.RecordBatch]:
        from headwater.spark.decoding.reading import read_range

        return read_range(self.options, self.shape, part)
