"""The backend for reads with the option ``archive``, which combine archive and stream.

Ids and counts (core/positions.py) describe a batch, and mean the same in the archive and the stream. A batch can
therefore be replayed even if its entries were trimmed between two attempts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from headwater.spark.archive.planning import ArchivePlanner
from headwater.spark.archive.store import ArchiveStore
from headwater.spark.core.planning.planning import Planner
from headwater.spark.core.positions import Position
from headwater.spark.core.ranges import EntryRange
from headwater.spark.core.store import SourceStore
from headwater.spark.decoding.backend import Backend

if TYPE_CHECKING:
    import pyarrow as pa


class ArchiveBackend(Backend):
    """Reads archived entries and the server's entries, each entry once."""

    def connect(self) -> tuple[SourceStore, Planner]:
        store = ArchiveStore(self.options)
        return store, ArchivePlanner(store)

    def restart(self, store: SourceStore, stream: str) -> Position:
        """Return the archive's end, because readers read the archived entries from the archive."""
        assert isinstance(store, ArchiveStore), store
        return store.manifest(stream).end

    def read(self, parts: Sequence[EntryRange]) -> Iterator[pa.RecordBatch]:
        from headwater.spark.archive.reading import read_range

        return chain.from_iterable(read_range(self.options, self.shape, part) for part in parts)
