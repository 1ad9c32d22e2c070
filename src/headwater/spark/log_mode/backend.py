"""Where a reader's entries come from. The server is one backend; an archive and the server together
are another (archive/backend.py), which `source.py` chooses by the option ``archive``.
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
    """What a reader asks for entries. Spark pickles it to the executors, so it holds no connection."""

    def connect(self) -> tuple[SourceStore, Planner]:
        """What answers questions about the streams, in the driver."""

    def restart(self, store: SourceStore, stream: str) -> Position:
        """Where to read on in a stream that was deleted, made again or set back."""

    def read(self, part: EntryRange) -> Iterator[pa.RecordBatch]:
        """The rows of one partition, in an executor."""


@dataclass(frozen=True)
class ServerBackend:
    """Entries that the server holds."""

    options: SourceOptions
    shape: RowShape

    def connect(self) -> tuple[SourceStore, Planner]:
        store = SourceStore(self.options)
        return store, planner(store)

    def restart(self, store: SourceStore, stream: str) -> Position:  # noqa: ARG002 - a backend with an archive asks it
        return BEGINNING

    def read(self, part: EntryRange) -> Iterator[pa.RecordBatch]:
        from headwater.spark.decoding.reading import read_range

        return read_range(self.options, self.shape, part)
